import HapaxModel

/// The table `report_bounds`: a row for each day of a project, from the first that can have a report to the one that begins within a day: when it
/// `starts`, `ends` and `closes`, and in which `time_zone`. A row never changes; those of imported history come later (``DayClosing/boundHistory(_:)``).
enum ReportBounds {
    /// - Parameter row: Day, begin, end and close in Unix milliseconds, zone.
    static func day(_ row: [String?]) throws(StoreError) -> ReportDay {
        let numbers = row[1...3].compactMap { $0.flatMap { Int64($0) }.map { $0 / 1_000 } }
        guard let day = row[0].flatMap({ CalendarDay($0) }), numbers.count == 3, let zone = row[4].flatMap({ ReportZone($0) }) else {
            throw .unusable("a day's bounds cannot be read")
        }
        return ReportDay(day: day, starts: numbers[0], ends: numbers[1], closes: numbers[2], zone: zone)
    }

    fileprivate static func insert(_ day: ReportDay, _ projectID: Int32) -> StoreSQL {
        """
        INSERT INTO report_bounds (project_id, day, starts, ends, closes, time_zone)
        VALUES (\(projectID), \(day.day), \(instant: day.starts), \(instant: day.ends), \(instant: day.closes), \(day.zone.name))
        """
    }
}

extension DayClosing {
    /// How long before a day begins its bounds are written.
    private static let secondsAhead: Int64 = 86_400
    /// Bounds of past days that one transaction writes.
    private static let boundsAtOnce = 1_000

    /// Writes the bounds that are missing, from the first day that can have a report to the last that begins within ``secondsAhead``.
    func fillBounds(_ projectID: Int32, _ history: ZoneHistory, now: Int64) async throws(StoreError) {
        let known = try await database.ask(
            """
            SELECT day, \(database.dialect.milliseconds("ends")) FROM report_bounds WHERE project_id = \(projectID) ORDER BY day DESC LIMIT 1
            """, as: .closing
        ).first
        var statements: [StoreSQL] = []
        var first: CalendarDay
        var ended: Int64?
        if let known {
            guard let day = known[0].flatMap({ CalendarDay($0) }), let ends = known[1].flatMap({ Int64($0) }) else {
                throw .unusable("a day's bounds cannot be read")
            }
            (first, ended) = (day.advanced(by: 1), ends / 1_000)
        } else {
            let received = try await database.ask(
                """
                SELECT \(database.dialect.milliseconds("min(received_at)")) FROM events
                WHERE project_id = \(projectID) \(database.dialect.sinceMade(projectID))
                """, as: .closing)
            // Without any event its days begin now.
            let start = received.first?[0].flatMap { Int64($0) }.map { $0 / 1_000 } ?? now
            // The first day that closes after the first event was received: the report of an earlier day would be empty.
            first = history.day(at: start).advanced(by: -2)
            while history.bounds(of: first).closes <= start { first = first.advanced(by: 1) }
            statements.append(
                "INSERT INTO report_progress (project_id, next_day, folded_to) VALUES (\(projectID), \(first), \(instant: 0))")
        }
        var day = history.bounds(of: first).beginning(at: ended)
        while day.starts <= now + Self.secondsAhead {
            statements.append(ReportBounds.insert(day, projectID))
            day = history.bounds(of: day.day.advanced(by: 1)).beginning(at: day.ends)
        }
        if !statements.isEmpty { try await database.change(statements, as: .closing) }
    }

    /// Writes bounds of days before the first one, which imported history needs.
    func boundHistory(_ received: StoreSQL) async throws(StoreError) {
        let milliseconds = database.dialect.milliseconds
        let rows = try await database.ask(
            """
            SELECT e.project_id, \(milliseconds("min(e.time)")), min(b.day) FROM (SELECT project_id, time FROM kept_events WHERE \(received)) AS e
            JOIN (SELECT project_id, min(day) AS day, min(starts) AS starts FROM report_bounds GROUP BY project_id) AS b
              ON b.project_id = e.project_id
            WHERE e.time < b.starts GROUP BY e.project_id
            """, as: .closing)
        for row in rows {
            guard let projectID = row[0].flatMap({ Int32($0) }), let time = row[1].flatMap({ Int64($0) }),
                let known = row[2].flatMap({ CalendarDay($0) })
            else { throw .unavailable("late events cannot be counted") }
            let history: ZoneHistory
            // The trouble of a project whose zones cannot be read has been noted; the late events of others are counted.
            do throws(StoreError) {
                history = try await ReportZones.zones(of: projectID, in: database, as: .closing) ?? ZoneHistory(.utc)
            } catch .unusable { continue }
            let first = history.day(at: time / 1_000)
            // Backwards from the first known day, so that an interruption leaves no gap, and in parts: an event of 1970 needs 20,000 days.
            var next = known
            while first < next {
                let part = max(first, next.advanced(by: -Self.boundsAtOnce))
                var statements: [StoreSQL] = []
                while part < next {
                    next = next.advanced(by: -1)
                    statements.append(ReportBounds.insert(history.bounds(of: next), projectID))
                }
                try await database.change(statements, as: .closing)
            }
        }
    }
}
