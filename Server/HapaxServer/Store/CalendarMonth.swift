import HapaxModel

/// A month of the calendar in UTC, as the partitions of `events` are.
struct CalendarMonth: Hashable, Comparable {
    private let first: CalendarDay

    init(_ day: CalendarDay) { first = day.advanced(by: 1 - day.components.day) }

    /// - Parameter bucket: See ``EventID/bucket``.
    /// - Returns: nil for the bucket of an id without a day.
    init?(bucket: Int32) {
        guard let day = CalendarDay(daysSince1970: bucket) else { return nil }
        self.init(day)
    }

    /// No month has more than 31 days.
    var next: CalendarMonth { CalendarMonth(first.advanced(by: 31)) }

    func earlier(by months: Int) -> CalendarMonth {
        let (year, month, _) = first.components
        let count = max(0, year * 12 + month - 1 - months)
        return CalendarMonth(CalendarDay(year: count / 12, month: count % 12 + 1, day: 1) ?? .first)
    }

    /// The buckets of its days.
    var buckets: Range<Int32> { first.daysSince1970..<next.first.daysSince1970 }

    /// Such as `2026-11`.
    var text: String { String(first.description.prefix(7)) }

    static func < (left: CalendarMonth, right: CalendarMonth) -> Bool { left.first < right.first }
}

extension EventID {
    /// No id of this day or a later one is below it.
    static func least(of bucket: Int32) -> EventID {
        EventID(high: UInt64(clamping: Int64(bucket) * 86_400_000) << 16, low: 0) ?? .least
    }
}
