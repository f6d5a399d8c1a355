import HapaxModel

/// Closes days: writes their bounds ahead of time, stores each day's figures once all of its events are there, and counts later ones as late.
///
/// One server at a time does it. If that server ends, the next one continues its work: each step is one transaction, which also stores where to
/// go on.
struct DayClosing: Sendable {
    let database: any SQLStore
    /// The zone of each project by its number. A project that is missing keeps the zone it has, at first UTC.
    let zones: [Int32: ReportZone]

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

    /// The project's zones in the store, after adding one that the settings have changed.
    private func zones(of projectID: Int32, now: Int64) async throws(StoreError) -> ZoneHistory {
        // A server without a setting for this project leaves the zone to a server that has one.
        let wanted = zones[projectID]
        if let known = try await ReportZones.zones(of: projectID, in: database, as: .closing) {
            guard let wanted, known.latest != wanted else { return known }
            try await database.change(ReportZones.change(known, to: wanted, of: projectID, now: now), as: .closing)
        } else {
            try await database.change([ReportZones.first(wanted ?? .utc, of: projectID)], as: .closing)
        }
        // Somebody may have set another one meanwhile.
        guard let known = try await ReportZones.zones(of: projectID, in: database, as: .closing) else {
            throw .unavailable("a project has no time zone")
        }
        return known
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
        return try rows.first.map { (row) throws(StoreError) in try ReportBounds.day(row) }
    }

    static func instant(_ rows: [[String?]]) throws(StoreError) -> Int64 {
        guard let instant = rows.first?[0].flatMap({ Int64($0) }) else { throw .unavailable("how far days were closed cannot be read") }
        return instant
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
}
