import HapaxModel

/// Closes days: writes their bounds ahead of time, stores each day's figures once all of its events are there, and counts later ones as late.
///
/// One server at a time does it. If that server ends, the next one continues its work: each step is one transaction, which also stores where to
/// go on.
struct DayClosing: Sendable {
    let database: any SQLStore
    /// The zone of each project by its number. A project that is missing keeps the zone it has, at first UTC.
    let zones: [Int32: ReportZone]

    /// How long before a day begins its bounds are written.
    private static let secondsAhead: Int64 = 86_400
    /// Bounds of past days that one transaction writes.
    private static let boundsAtOnce = 1_000

    /// What became of a run.
    struct Outcome: Sendable {
        /// Why projects, by name, could not be brought up to date.
        var failures: [String: StoreError] = [:]
        /// See ``StoreClock/ahead``.
        var clockAhead: Int64 = 0
    }

    /// Does all that is due. A project that cannot be brought up to date stops no other one.
    ///
    /// The store's own clock decides which days close, and for which days bounds are written: servers have clocks of their own.
    ///
    /// - Returns: nil if another server, or a removal, is at it.
    func perform() async throws(StoreError) -> Outcome? {
        let outcome = Locked<Outcome?>(nil)
        try await database.exclusively { () async throws(StoreError) in
            let clock = try await database.clock()
            outcome.withLock { $0 = Outcome(clockAhead: clock.ahead) }
            let settled = clock.closing / 1_000
            var projects: [(id: Int32, name: String)] = []
            for row in try await database.ask("SELECT project_id, name FROM projects ORDER BY project_id", as: .closing) {
                guard let id = row[0].flatMap({ Int32($0) }), let name = row[1] else { throw .unavailable("a project cannot be read") }
                projects.append((id, name))
            }
            for project in projects {
                do throws(StoreError) {
                    let history = try await zones(of: project.id, now: settled)
                    try await fillBounds(project.id, history, now: settled)
                    while let day = try await next(project.id, closesUpTo: settled) { try await close(project.id, day) }
                } catch {
                    outcome.withLock { $0?.failures[project.name] = error }
                }
            }
            try await foldLate(upTo: settled)
        }
        return outcome.withLock { $0 }
    }

    // MARK: - Zones and bounds

    /// The project's zones in the store, after adding one that the settings have changed.
    private func zones(of projectID: Int32, now: Int64) async throws(StoreError) -> ZoneHistory {
        // A server without a setting for this project leaves the zone to whoever has one.
        let wanted = zones[projectID]
        if let known = try await Self.zones(of: projectID, in: database, as: .closing) {
            guard let wanted, known.latest != wanted else { return known }
            try await database.change(Self.change(known, to: wanted, of: projectID, now: now), as: .closing)
        } else {
            try await database.change([Self.first(wanted ?? .utc, of: projectID)], as: .closing)
        }
        // Somebody may have set another one meanwhile.
        guard let known = try await Self.zones(of: projectID, in: database, as: .closing) else {
            throw .unavailable("a project has no time zone")
        }
        return known
    }

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

    /// Writes the bounds that are missing, from the first day that can have a report to the last that begins within ``secondsAhead``.
    private func fillBounds(_ projectID: Int32, _ history: ZoneHistory, now: Int64) async throws(StoreError) {
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
            statements.append(Self.insert(day, projectID))
            day = history.bounds(of: day.day.advanced(by: 1)).beginning(at: day.ends)
        }
        if !statements.isEmpty { try await database.change(statements, as: .closing) }
    }

    private static func insert(_ day: ReportDay, _ projectID: Int32) -> StoreSQL {
        """
        INSERT INTO report_bounds (project_id, day, starts, ends, closes, time_zone)
        VALUES (\(projectID), \(day.day), \(instant: day.starts), \(instant: day.ends), \(instant: day.closes), \(day.zone.name))
        """
    }

    // MARK: - Closing

    /// The next day to close, if it can be.
    private func next(_ projectID: Int32, closesUpTo settled: Int64) async throws(StoreError) -> ReportDay? {
        let milliseconds = database.dialect.milliseconds
        let rows = try await database.ask(
            """
            SELECT b.day, \(milliseconds("b.starts")), \(milliseconds("b.ends")), \(milliseconds("b.closes")), b.time_zone
            FROM report_progress p JOIN report_bounds b ON b.project_id = p.project_id AND b.day = p.next_day
            WHERE p.project_id = \(projectID) AND b.closes <= \(instant: settled)
            """, as: .closing)
        return try rows.first.map { (row) throws(StoreError) in try Self.day(row) }
    }

    private static func instant(_ rows: [[String?]]) throws(StoreError) -> Int64 {
        guard let instant = rows.first?[0].flatMap({ Int64($0) }) else { throw .unavailable("how far days were closed cannot be read") }
        return instant
    }

    /// - Parameter row: Day, begin, end and close in Unix milliseconds, zone.
    static func day(_ row: [String?]) throws(StoreError) -> ReportDay {
        let numbers = row[1...3].compactMap { $0.flatMap { Int64($0) }.map { $0 / 1_000 } }
        guard let day = row[0].flatMap({ CalendarDay($0) }), numbers.count == 3, let zone = row[4].flatMap({ ReportZone($0) }) else {
            throw .unusable("a day's bounds cannot be read")
        }
        return ReportDay(day: day, starts: numbers[0], ends: numbers[1], closes: numbers[2], zone: zone)
    }

    private func close(_ projectID: Int32, _ day: ReportDay) async throws(StoreError) {
        let folded = try await database.ask(
            "SELECT \(database.dialect.milliseconds("folded_to")) FROM report_progress WHERE project_id = \(projectID)", as: .closing)
        try await foldUsers(projectID, from: try Self.instant(folded) / 1_000, toCloseOf: day)
        let query = DailyQuery(projectID: projectID, day: day, receivedBefore: day.closes, foldedTo: day.closes)
        let (statements, returning) = (try await query.statements(database, .whole), try await query.returns(database))
        // As of one moment: an erasure may remove rows meanwhile.
        let answers = try await database.ask(statements + [returning?.statement].compactMap { $0 }, as: .closing)
        let figures = try DailyQuery.figures(from: Array(answers.prefix(statements.count)))
        let returns =
            try returning.map { (returning) throws(StoreError) in try returning.read(answers.last ?? []) } ?? (cohorts: [], unassigned: 0)
        // A day's key is unique: if two servers close one day, the second one's transaction fails.
        var changes: [StoreSQL] = [
            """
            INSERT INTO report_days (project_id, day, \(DailyFigures.columns), unassigned)
            VALUES (\(projectID), \(day.day), \(figures.values), \(returns.unassigned))
            """
        ]
        for cohort in returns.cohorts {
            changes.append(
                "INSERT INTO report_returns (project_id, cohort, day, users) VALUES (\(projectID), \(cohort.day), \(day.day), \(cohort.users))"
            )
        }
        for name in figures.byName {
            changes.append(
                "INSERT INTO report_events (project_id, day, event, count) VALUES (\(projectID), \(day.day), \(name.event), \(name.count))")
        }
        changes.append(
            "UPDATE report_progress SET next_day = \(day.day.advanced(by: 1)), folded_to = \(instant: day.closes) WHERE project_id = \(projectID)"
        )
        try await database.change(changes, as: .closing)
    }

    /// Updates each user's first starts from the events received between a span's begin, in Unix seconds, and a day's close. Repeating it changes
    /// nothing.
    ///
    /// `first_start` is the first of all. `first_counted` is the first that came in time: those received since the last close are, if they are of
    /// this day or a later one. `first_known` is the first of all that were known when the day of `first_counted` closed: the user is new on that
    /// day if they are one.
    private func foldUsers(_ projectID: Int32, from: Int64, toCloseOf day: ReportDay) async throws(StoreError) {
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

    // MARK: - Late

    /// Counts the events that were received after their day had closed, up to an instant in Unix seconds. One comparison leaves out most events:
    /// they were received too soon after their own time to be late.
    private func foldLate(upTo settled: Int64) async throws(StoreError) {
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

    /// Writes bounds of days before the first one, which imported history needs.
    private func boundHistory(_ received: StoreSQL) async throws(StoreError) {
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
                history = try await Self.zones(of: projectID, in: database, as: .closing) ?? ZoneHistory(.utc)
            } catch .unusable { continue }
            let first = history.day(at: time / 1_000)
            // Backwards from the first known day, so that an interruption leaves no gap, and in parts: an event of 1970 needs 20,000 days.
            var next = known
            while first < next {
                let part = max(first, next.advanced(by: -Self.boundsAtOnce))
                var statements: [StoreSQL] = []
                while part < next {
                    next = next.advanced(by: -1)
                    statements.append(Self.insert(history.bounds(of: next), projectID))
                }
                try await database.change(statements, as: .closing)
            }
        }
    }
}
