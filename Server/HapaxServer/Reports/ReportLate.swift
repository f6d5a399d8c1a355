import HapaxModel

/// The tables `report_late`, how many events came to each day after it had closed, and `report_late_progress`, one row: up to which arrivals that is
/// counted (`late_to`).
extension DayClosing {
    /// Counts the events that were received after their day had closed, up to an instant in Unix seconds. One comparison leaves out most events:
    /// they were received too soon after their own time to be late.
    func foldLate(upTo settled: Int64) async throws(StoreError) {
        let row = try await database.ask("SELECT \(database.dialect.milliseconds("late_to")) FROM report_late_progress", as: .closing)
        let from = try Self.instant(row) / 1_000
        guard from < settled else { return }
        for received in try await database.received(from: from, to: settled, parts: .whole) { try await boundHistory(received) }
        var statements: [StoreSQL] = []
        for received in try await database.received(from: from, to: settled, parts: .whole) {
            let days = try await database.ask(
                """
                SELECT e.project_id, b.day, count(*) FROM (
                  SELECT project_id, time, received_at FROM kept_events
                  WHERE \(received) AND received_at - time >= (SELECT min(closes - ends) FROM report_bounds)
                ) AS e
                JOIN report_bounds b ON b.project_id = e.project_id AND e.time < b.ends
                  AND b.starts = (SELECT max(s.starts) FROM report_bounds s WHERE s.project_id = e.project_id AND s.starts <= e.time)
                WHERE e.received_at >= b.closes GROUP BY e.project_id, b.day
                """, as: .closing)
            for row in days {
                guard let projectID = row[0].flatMap({ Int32($0) }), let day = row[1].flatMap({ CalendarDay($0) }),
                    let late = row[2].flatMap({ Int64($0) })
                else { throw .unavailable("late events cannot be counted") }
                statements.append(
                    """
                    INSERT INTO report_late (project_id, day, late) VALUES (\(projectID), \(day), \(late))
                    ON CONFLICT (project_id, day) DO UPDATE SET late = report_late.late + excluded.late
                    """)
            }
        }
        statements.append("UPDATE report_late_progress SET late_to = \(instant: settled)")
        try await database.change(statements, as: .closing)
    }
}
