/// A day of the calendar (proleptic Gregorian), 1970-01-01 to 9999-12-31, without a time and without a zone.
public struct CalendarDay: Hashable, Sendable, Comparable {
    /// Days since 1970-01-01, 0…2932896.
    public let daysSince1970: Int32

    private static let range: ClosedRange<Int32> = 0...2_932_896

    package static let first = CalendarDay(inRange: range.lowerBound)
    package static let last = CalendarDay(inRange: range.upperBound)

    private init(inRange days: Int32) { daysSince1970 = days }

    /// - Returns: The day that many days later, or earlier if negative; never beyond the calendar's first or last day.
    package func advanced(by days: Int) -> CalendarDay {
        let (sum, isOverflow) = Int(daysSince1970).addingReportingOverflow(days)
        guard !isOverflow else { return days < 0 ? .first : .last }
        return CalendarDay(inRange: Int32(min(max(sum, Int(Self.range.lowerBound)), Int(Self.range.upperBound))))
    }

    /// - Returns: nil outside 1970-01-01…9999-12-31.
    public init?(daysSince1970 days: Int32) {
        guard Self.range.contains(days) else { return nil }
        daysSince1970 = days
    }

    /// - Returns: nil for a day that is not in the calendar, such as February 30.
    public init?(year: Int, month: Int, day: Int) {
        guard (1970...9999).contains(year), (1...12).contains(month), day >= 1, day <= Self.length(ofMonth: month, year) else { return nil }
        daysSince1970 = Self.days(year, month, day)
    }

    /// Its year, month (1…12) and day of the month (1…31).
    public var components: (year: Int, month: Int, day: Int) {
        // The mean length of a year gives a first guess, which is off by one year at most.
        var year = 1970 + Int(daysSince1970) * 400 / 146_097
        if Self.days(year, 1, 1) > daysSince1970 { year -= 1 } else if Self.days(year + 1, 1, 1) <= daysSince1970 { year += 1 }
        let month = (1...12).last { Self.days(year, $0, 1) <= daysSince1970 } ?? 1
        return (year, month, Int(daysSince1970 - Self.days(year, month, 1)) + 1)
    }

    public static func < (left: CalendarDay, right: CalendarDay) -> Bool { left.daysSince1970 < right.daysSince1970 }

    private static func isLeap(_ year: Int) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }

    private static func length(ofMonth month: Int, _ year: Int) -> Int {
        month == 2 ? (isLeap(year) ? 29 : 28) : [4, 6, 9, 11].contains(month) ? 30 : 31
    }

    private static func days(_ year: Int, _ month: Int, _ day: Int) -> Int32 {
        let before = year - 1
        // 719,162 days lie between 0001-01-01 and 1970-01-01.
        let years = before * 365 + before / 4 - before / 100 + before / 400 - 719_162
        let months = (1..<month).reduce(0) { $0 + length(ofMonth: $1, year) }
        return Int32(years + months + day - 1)
    }
}

extension CalendarDay: LosslessStringConvertible {
    /// Reads the form `2026-11-24` only.
    public init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.map(\.utf8.count) == [4, 2, 2], parts.allSatisfy({ $0.utf8.allSatisfy { $0 &- 0x30 < 10 } }),
            let year = Int(parts[0]), let month = Int(parts[1]), let day = Int(parts[2])
        else { return nil }
        self.init(year: year, month: month, day: day)
    }

    /// `2026-11-24`.
    public var description: String {
        let (year, month, day) = components
        return "\(year)-\(month < 10 ? "0" : "")\(month)-\(day < 10 ? "0" : "")\(day)"
    }
}
