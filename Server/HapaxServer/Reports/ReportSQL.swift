import HapaxModel

/// A statement of the reports, in the part of SQL that both databases share. Interpolated values become parameters, apart from the text.
package struct ReportSQL: Sendable, ExpressibleByStringInterpolation {
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
            parts.append(.value(.instant(ReportSQL.milliseconds(seconds))))
        }
        package mutating func appendInterpolation(_ sql: ReportSQL) { parts += sql.parts }
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

/// The expressions in which the two databases differ.
package struct ReportDialect: Sendable {
    /// Whether an event is dated more than a day ahead of its arrival; the condition of the index `events_ahead`.
    var isAhead: ReportSQL
    /// The milliseconds of an `$AppEnd`'s `$event_duration`, each rounded half up; NULL if it is no number of seconds in 0…86,400.
    var duration: ReportSQL
    /// The name of the function that gives the lesser of two values.
    var least: ReportSQL
    /// A column with an instant, as Unix milliseconds.
    var milliseconds: @Sendable (ReportSQL) -> ReportSQL
}

/// What reports need of a store.
///
/// Closing a day changes nothing but the tables of the reports, and reads only what cannot change any more (``settled()``), so reading and
/// writing need not be one transaction.
package protocol ReportDatabase: Sendable {
    var dialect: ReportDialect { get }

    /// Rows of text, on a connection for people's questions; NULL is nil.
    ///
    /// - Throws: ``StoreError/tooHeavy`` if it takes longer.
    func rows(_ sql: ReportSQL, until deadline: ContinuousClock.Instant) async throws(StoreError) -> [[String?]]

    /// The same for the server's own work, which may take long: on a connection that people's questions do not wait for.
    func rows(_ sql: ReportSQL) async throws(StoreError) -> [[String?]]

    /// Runs all statements in one transaction.
    func write(_ statements: [ReportSQL]) async throws(StoreError)

    /// The settled instant, in Unix milliseconds: every event received before it is stored, and none can be received before it any more.
    func settled() async throws(StoreError) -> Int64

    /// Conditions that together name the rows received in a span of Unix seconds, each for as many rows as one statement should take.
    ///
    /// - Throws: ``StoreError/tooHeavy`` for a question about too many.
    func received(from: Int64, to: Int64, parts: ReportParts) async throws(StoreError) -> [ReportSQL]

    /// Runs `body` unless another server is running it.
    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError)
}

/// How large a part of a span may be.
package enum ReportParts: Sendable {
    /// One part, however long it takes: for the server's own work that only reads.
    case whole
    /// One part, for a person's question: a span with too many rows is refused.
    case question
    /// Small parts, for a transaction that writes: commits may have to wait for it.
    case small
}
