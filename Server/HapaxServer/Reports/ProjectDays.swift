import HapaxModel

/// The days of a project, as its zones bound them.
struct ProjectDays: Sendable {
    let history: ZoneHistory
    /// By the server's clock.
    let today: CalendarDay
    private let known: [CalendarDay: ReportDay]
    let from: CalendarDay
    /// Not part of it.
    let to: CalendarDay

    /// The project's zone today.
    var zone: ReportZone { history.zone(of: today) }
    /// Whether there are as many days as a report may have, or fewer.
    var isUsable: Bool { from <= to && to.daysSince1970 - from.daysSince1970 <= ServerLimits.reportDays }

    /// - Parameters:
    ///   - zone: Of a project that has none in the store yet.
    ///   - span: The days asked for, `to` not included; by default `to` is tomorrow, and `from` seven days earlier.
    ///   - now: The wall clock in Unix seconds.
    init(
        _ projectID: Int32, zone: ReportZone?, _ span: (from: CalendarDay?, to: CalendarDay?), now: Int64, _ database: any SQLStore,
        as purpose: Purpose
    ) async throws(StoreError) {
        history = try await ReportZones.zones(of: projectID, in: database, as: purpose) ?? ZoneHistory(zone ?? .utc)
        today = history.day(at: now)
        to = span.to ?? today.advanced(by: 1)
        from = span.from ?? to.advanced(by: -7)
        let ms = database.dialect.milliseconds
        var known: [CalendarDay: ReportDay] = [:]
        for row in try await database.ask(
            """
            SELECT day, \(ms("starts")), \(ms("ends")), \(ms("closes")), time_zone FROM report_bounds
            WHERE project_id = \(projectID) AND day >= \(from) AND day < \(to)
            """, as: purpose)
        {
            let day = try ReportBounds.day(row)
            known[day.day] = day
        }
        self.known = known
    }

    subscript(day: CalendarDay) -> ReportDay { known[day] ?? history.bounds(of: day) }

    /// The days from one on, in their order.
    func days(from first: CalendarDay, count: Int) -> [ReportDay] { (0..<count).map { self[first.advanced(by: $0)] } }

    /// So many days up to the first one, or as many as there are since 1970.
    func before(_ count: Int) -> [ReportDay] {
        let count = min(count, Int(from.daysSince1970))
        return days(from: from.advanced(by: -count), count: count)
    }

    var count: Int { Int(to.daysSince1970 - from.daysSince1970) }
}
