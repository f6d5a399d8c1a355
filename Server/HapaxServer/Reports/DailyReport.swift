import HapaxModel

/// The daily report of a project over a span of days (docs/reading.md, The daily report).
struct DailyReport: Sendable {
    enum Basis: String, CaseIterable, Sendable {
        /// What had arrived when a day closed: final.
        case closed
        /// Everything that has arrived by now.
        case all
    }

    enum State: String, Sendable {
        case open
        /// Its close has passed, but it is not certain yet that all events received before that are stored.
        case closing
        case closed
    }

    struct Day: Sendable {
        var bounds: ReportDay
        var state: State
        var figures: DailyFigures
        var late: Int64
    }

    /// The days from ``from`` up to, not including, ``to``.
    var days: [Day]
    var from: CalendarDay
    var to: CalendarDay
    /// The project's zone today.
    var zone: ReportZone
    var basis: Basis
    /// The instant up to which late events are counted, in Unix seconds; nil before the first count.
    var lateAsOf: Int64?
    /// Whether late events of the closed days may have arrived since then, which are not counted yet.
    var isCountingLate = false

    /// Closed days whose events all came late, as with imported history: their closed figures are 0.
    var onlyLate: [Day] { basis == .closed ? days.filter { $0.state == .closed && $0.figures.events == 0 && $0.late > 0 } : [] }
}

/// Reads reports: closed days from their stored figures, other days from their events.
struct DailyReportReader: Sendable {
    let database: any SQLStore
    /// The zone of a project that has none in the store yet.
    let zones: [Int32: ReportZone]

    /// - Parameters:
    ///   - span: The days asked for, `to` not included; by default `to` is tomorrow, and `from` seven days earlier. A span of more than
    ///     ``ServerLimits/reportDays``, or with `to` before `from`, gets no day.
    ///   - now: The wall clock in Unix seconds.
    ///   - figures: Computes a day's figures from its events, or takes them from a cache.
    func report(
        _ projectID: Int32, _ span: (from: CalendarDay?, to: CalendarDay?), _ basis: DailyReport.Basis, now: Int64,
        in turn: QuestionTurn, figures: (DailyQuery) async throws(StoreError) -> DailyFigures
    ) async throws(StoreError) -> DailyReport {
        func ask(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] { try await database.ask(sql, as: .question(turn)) }
        let project = try await ProjectDays(projectID, zone: zones[projectID], span, now: now, database, as: .question(turn))
        let (from, to) = (project.from, project.to)
        var report = DailyReport(days: [], from: from, to: to, zone: project.zone, basis: basis, lateAsOf: nil)
        guard project.isUsable else { return report }
        let milliseconds = database.dialect.milliseconds
        let bounds: StoreSQL = "project_id = \(projectID) AND day >= \(from) AND day < \(to)"
        // Read before the closed days: a day that closes in between counts as open, never as a closed one without a row.
        let progress = try await ask(
            "SELECT next_day, \(milliseconds("folded_to")) FROM report_progress WHERE project_id = \(projectID)")
        let next = progress.first?[0].flatMap { CalendarDay($0) }
        let folded = (progress.first?[1].flatMap { Int64($0) } ?? 0) / 1_000
        let closed = try await closed(bounds, ask)
        let late = try await ask("SELECT day, late FROM report_late WHERE \(bounds)").reduce(into: [String: Int64]()) { late, row in
            late[row[0] ?? ""] = row[1].flatMap { Int64($0) }
        }
        let lateTo = try await ask("SELECT \(milliseconds("late_to")) FROM report_late_progress").first?[0].flatMap { Int64($0) }
        report.lateAsOf = lateTo.flatMap { $0 > 0 ? $0 / 1_000 : nil }
        var date = from
        while date < to {
            let day = project[date]
            // A day before the project's first one is closed and empty, and has no row.
            let isClosed = closed[date.description] != nil || next.map { date < $0 } ?? false
            var entry = DailyReport.Day(
                bounds: day, state: isClosed ? .closed : day.closes <= now ? .closing : .open,
                figures: closed[date.description] ?? DailyFigures(),
                late: late[date.description] ?? 0)
            if !isClosed || basis == .all {
                let before = basis == .all ? Int64.max : day.closes
                entry.figures = try await figures(DailyQuery(projectID: projectID, day: day, receivedBefore: before, foldedTo: folded))
            }
            report.days.append(entry)
            guard date < .last else { break }
            date = date.advanced(by: 1)
        }
        report.isCountingLate = try await isCountingLate(projectID, report, ask)
        return report
    }

    /// Late events are counted some seconds after they arrive. Until then an import is invisible, so the report must say that.
    private func isCountingLate(
        _ projectID: Int32, _ report: DailyReport, _ ask: (StoreSQL) async throws(StoreError) -> [[String?]]
    ) async throws(StoreError) -> Bool {
        let closed = report.days.filter { $0.state == .closed }.map(\.bounds)
        guard report.basis == .closed, let first = closed.first, let last = closed.last else { return false }
        do throws(StoreError) {
            for received in try await database.received(from: report.lateAsOf ?? 0, to: .max, parts: .question) {
                let event: StoreSQL =
                    "SELECT 1 FROM kept_events WHERE project_id = \(projectID) AND \(received) AND time >= \(instant: first.starts)"
                if try await !ask("\(event) AND time < \(instant: last.ends) LIMIT 1").isEmpty { return true }
            }
            return false
        } catch .tooHeavy {
            return true
        }
    }

    private func closed(
        _ bounds: StoreSQL, _ ask: (StoreSQL) async throws(StoreError) -> [[String?]]
    ) async throws(StoreError) -> [String: DailyFigures] {
        // One transaction writes a day and its names, so if the day is found, the names read after it are, too.
        let days = try await ask("SELECT day, \(DailyFigures.columns) FROM report_days WHERE \(bounds)")
        var names: [String: [DailyFigures.Name]] = [:]
        for row in try await ask("SELECT day, event, count FROM report_events WHERE \(bounds) ORDER BY day, count DESC, event") {
            names[row[0] ?? "", default: []].append(try .init(row.dropFirst()))
        }
        var closed: [String: DailyFigures] = [:]
        for row in days {
            // A day without events has no names.
            guard let day = row[0], let figures = DailyFigures(columns: row.dropFirst(), byName: names[day] ?? []) else {
                throw .unavailable("a report has no figures")
            }
            closed[day] = figures
        }
        return closed
    }
}
