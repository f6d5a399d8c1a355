/// An instant in microseconds, the finest that PostgreSQL keeps: 1970-01-01 to the end of the year 9999 (UTC).
package struct Timestamp: Hashable, Sendable, Comparable {
    /// Since 1970-01-01T00:00:00Z, 0…``maximum``.
    package let unixMicroseconds: Int64

    private static let maximum = EventLimits.maximumTime * 1_000 + 999
    private static let microsecondsPerDay: Int64 = 86_400_000_000

    /// - Returns: nil outside the years 1970 to 9999.
    package init?(unixMicroseconds: Int64) {
        guard (0...Self.maximum).contains(unixMicroseconds) else { return nil }
        self.unixMicroseconds = unixMicroseconds
    }

    /// An instant outside the years 1970 to 9999 becomes the nearest one inside.
    package init(clampingUnixMilliseconds milliseconds: Int64) {
        unixMicroseconds = min(max(milliseconds, 0), EventLimits.maximumTime) * 1_000
    }

    /// The beginning of a day (UTC).
    package init(_ day: CalendarDay) {
        unixMicroseconds = Int64(day.daysSince1970) * Self.microsecondsPerDay
    }

    /// Rounded down.
    package var unixMilliseconds: Int64 { unixMicroseconds / 1_000 }

    package static func < (left: Timestamp, right: Timestamp) -> Bool { left.unixMicroseconds < right.unixMicroseconds }
}

extension Timestamp: LosslessStringConvertible {
    /// Reads the form of RFC 3339: a day, `T`, a time with or without a fraction, and `Z` or an offset. Digits beyond microseconds are cut off;
    /// a leap second (`:60`) is refused.
    package init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count >= 20, let day = CalendarDay(String(decoding: bytes[..<10], as: UTF8.self)),
            bytes[10] | 0x20 == UInt8(ascii: "t"),
            bytes[13] == UInt8(ascii: ":"), bytes[16] == UInt8(ascii: ":"), let hour = Self.number(bytes[11..<13], below: 24),
            let minute = Self.number(bytes[14..<16], below: 60), let second = Self.number(bytes[17..<19], below: 60)
        else { return nil }
        var rest = bytes[19...]
        var fraction: Int64 = 0
        if rest.first == UInt8(ascii: ".") {
            let digits = rest.dropFirst().prefix { $0 &- 0x30 < 10 }
            guard !digits.isEmpty else { return nil }
            let microseconds = digits.prefix(6) + repeatElement(0x30, count: max(0, 6 - digits.count))
            fraction = microseconds.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
            rest = rest[digits.endIndex...]
        }
        guard let offset = Self.offsetMinutes(rest) else { return nil }
        let seconds = (hour * 60 + minute - offset) * 60 + second
        self.init(unixMicroseconds: Int64(day.daysSince1970) * Self.microsecondsPerDay + seconds * 1_000_000 + fraction)
    }

    private static func offsetMinutes(_ text: ArraySlice<UInt8>) -> Int64? {
        if text.count == 1, text.first.map({ $0 | 0x20 }) == UInt8(ascii: "z") { return 0 }
        let start = text.startIndex
        guard text.count == 6, text[start + 3] == UInt8(ascii: ":"), let hours = number(text[(start + 1)..<(start + 3)], below: 24),
            let minutes = number(text[(start + 4)...], below: 60)
        else { return nil }
        switch text[start] {
        case UInt8(ascii: "+"): return hours * 60 + minutes
        case UInt8(ascii: "-"): return -(hours * 60 + minutes)
        default: return nil
        }
    }

    private static func number(_ digits: ArraySlice<UInt8>, below limit: Int64) -> Int64? {
        guard digits.allSatisfy({ $0 &- 0x30 < 10 }) else { return nil }
        let value = digits.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
        return value < limit ? value : nil
    }

    /// `2026-11-25T09:00:00.123456Z`: always six digits, so that texts sort as instants do.
    package var description: String {
        let day = CalendarDay(daysSince1970: Int32(unixMicroseconds / Self.microsecondsPerDay))
        let rest = unixMicroseconds % Self.microsecondsPerDay
        func padded(_ number: Int64, _ digits: Int) -> String {
            let text = String(number)
            return String(repeating: "0", count: max(0, digits - text.count)) + text
        }
        let time = [rest / 3_600_000_000, rest / 60_000_000 % 60, rest / 1_000_000 % 60].map { padded($0, 2) }.joined(separator: ":")
        return "\(day?.description ?? "")T\(time).\(padded(rest % 1_000_000, 6))Z"
    }
}
