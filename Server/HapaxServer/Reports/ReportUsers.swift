/// The table `report_users`: when each user of a project started first, by which the new users of a day are counted. `first_start` is the first of
/// all starts, `first_counted` the first that came in time, `first_known` the first of all that were known when the day of `first_counted` closed: the
/// user is new on that day if these two are one.
extension DayClosing {
    /// Updates each user's first starts from the events received between a span's begin, in Unix seconds, and a day's close. Repeating it changes
    /// nothing.
    func foldUsers(_ projectID: Int32, from: Int64, toCloseOf day: ReportDay) async throws(StoreError) {
        let least = database.dialect.least
        for received in try await database.received(from: from, to: day.closes, parts: .small) {
            try await database.change(
                [
                    """
                    INSERT INTO report_users (project_id, distinct_id, first_start, first_counted, first_known)
                    SELECT project_id, distinct_id, min(time), min(CASE WHEN time >= \(instant: day.starts) THEN time END), min(time) FROM kept_events
                    WHERE project_id = \(projectID) AND event = '$AppStart' AND \(received) AND NOT (\(database.dialect.isAhead))
                    GROUP BY project_id, distinct_id
                    ON CONFLICT (project_id, distinct_id) DO UPDATE
                    SET first_start = \(least)(report_users.first_start, excluded.first_start),
                      first_counted = \(least)(
                        coalesce(report_users.first_counted, excluded.first_counted), coalesce(excluded.first_counted, report_users.first_counted)),
                      first_known = CASE WHEN report_users.first_counted < \(instant: day.starts) THEN report_users.first_known
                        ELSE \(least)(coalesce(report_users.first_known, report_users.first_start), excluded.first_known) END
                    """
                ], as: .closing)
        }
    }
}
