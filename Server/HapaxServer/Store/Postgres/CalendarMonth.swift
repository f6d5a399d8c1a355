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

    /// The buckets of its days.
    var buckets: Range<Int32> { first.daysSince1970..<next.first.daysSince1970 }

    /// Such as `2026-11`.
    var text: String { String(first.description.prefix(7)) }

    static func < (left: CalendarMonth, right: CalendarMonth) -> Bool { left.first < right.first }
}
