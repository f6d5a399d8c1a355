import HapaxModel

/// The table `report_zones`: from which day on which time zone holds in a project (`from_day`, `time_zone`). Each project has a row from
/// ``CalendarDay/first`` on, once a server has seen it.
enum ReportZones {
    /// The zone of all days of a project that has none yet; the project must be there, and what another has set meanwhile stays.
    static func first(_ zone: ReportZone, of projectID: Int32) -> StoreSQL {
        """
        INSERT INTO report_zones (project_id, from_day, time_zone)
        SELECT project_id, \(CalendarDay.first), \(zone.name) FROM projects WHERE project_id = \(projectID) ON CONFLICT DO NOTHING
        """
    }

    /// What makes another zone hold: from the first day on that has no bounds yet.
    static func change(_ known: ZoneHistory, to zone: ReportZone, of projectID: Int32, now: Int64) -> [StoreSQL] {
        let day = ZoneHistory.firstDay(of: zone, now: now)
        return [
            // An earlier change that was to hold from this day or a later one was never used, and is dropped.
            "DELETE FROM report_zones WHERE project_id = \(projectID) AND from_day >= \(day)",
            """
            INSERT INTO report_zones (project_id, from_day, time_zone)
            SELECT project_id, \(day), \(zone.name) FROM projects WHERE project_id = \(projectID)
            ON CONFLICT (project_id, from_day) DO UPDATE SET time_zone = excluded.time_zone
            """,
        ]
    }

    /// - Returns: nil for a project that has none yet.
    static func zones(of projectID: Int32, in database: any SQLStore, as purpose: Purpose) async throws(StoreError) -> ZoneHistory? {
        let rows = try await database.ask(
            "SELECT from_day, time_zone FROM report_zones WHERE project_id = \(projectID) ORDER BY from_day", as: purpose)
        var history: ZoneHistory?
        for row in rows {
            guard let day = row[0].flatMap({ CalendarDay($0) }), let zone = row[1].flatMap({ ReportZone($0) }) else {
                throw .unusable("this program does not know the time zone \(row[1] ?? "")")
            }
            if history == nil { history = ZoneHistory(zone) } else { history?.add(zone, from: day) }
        }
        return history
    }
}
