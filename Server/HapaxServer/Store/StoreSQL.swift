import HapaxModel

/// A statement in the part of SQL that both databases share. Interpolated values become parameters, apart from the text.
package struct StoreSQL: Sendable, ExpressibleByStringInterpolation {
    package enum Value: Sendable {
        case integer(Int64)
        case text(String)
        /// Unix milliseconds; a `timestamptz` in PostgreSQL, a number in SQLite.
        case instant(Int64)
    }

    package enum Part: Sendable {
        case text(String)
        case value(Value)
    }

    package private(set) var parts: [Part]

    package init(stringLiteral text: String) { parts = [.text(text)] }
    package init(stringInterpolation: StringInterpolation) { parts = stringInterpolation.parts }

    package struct StringInterpolation: StringInterpolationProtocol {
        fileprivate(set) var parts: [Part] = []

        package init(literalCapacity: Int, interpolationCount: Int) {}

        package mutating func appendLiteral(_ text: String) { parts.append(.text(text)) }
        package mutating func appendInterpolation(_ number: some BinaryInteger) { parts.append(.value(.integer(Int64(number)))) }
        package mutating func appendInterpolation(_ text: String) { parts.append(.value(.text(text))) }
        package mutating func appendInterpolation(_ day: CalendarDay) { parts.append(.value(.text(day.description))) }
        /// Unix seconds.
        package mutating func appendInterpolation(instant seconds: Int64) {
            parts.append(.value(.instant(StoreSQL.milliseconds(seconds))))
        }
        package mutating func appendInterpolation(milliseconds: Int64) { parts.append(.value(.instant(milliseconds))) }
        package mutating func appendInterpolation(_ sql: StoreSQL) { parts += sql.parts }
    }

    /// Limited to the range of times that an event may have, which both databases can hold.
    private static func milliseconds(_ seconds: Int64) -> Int64 {
        min(max(seconds, 0), EventLimits.maximumTime / 1_000) * 1_000
    }

    /// - Parameter placeholder: Returns the text for the n-th value, from 1.
    func rendered(_ placeholder: (Int) -> String) -> (text: String, values: [Value]) {
        var (text, values) = ("", [Value]())
        for part in parts {
            switch part {
            case .text(let literal): text += literal
            case .value(let value):
                values.append(value)
                text += placeholder(values.count)
            }
        }
        return (text, values)
    }
}
