import HapaxModel

/// How many of the users who are new on a day come back (docs/reading.md, Return).
struct ReturnQuery: Hashable, Sendable {
    enum Unit: String, CaseIterable, Sendable {
        case day, week
    }

    enum Mode: String, CaseIterable, Sendable {
        /// In that unit.
        case on
        /// In that unit or a later one of the days asked for.
        case onOrAfter = "on_or_after"
    }

    /// Who is new is decided by this event, as by `$AppStart` in the daily report.
    var start = "$AppStart"
    /// What counts as a return.
    var again = EventFilter()
    var unit = Unit.day
    var mode = Mode.on
    var basis = DailyReport.Basis.closed

    /// The most cohorts.
    static let maximumUnits = DailyFigures.returnDays
}

struct Return: Sendable {
    struct Cohort: Sendable {
        /// The first of its days.
        var day: CalendarDay
        var size: Int64 = 0
        /// By units from its own on.
        var returned: [Int64] = []
    }

    var query: ReturnQuery
    var frame: AnalysisFrame
    var cohorts: [Cohort]
    /// Of each unit of the days: whether nothing of it can change, and whether it has begun.
    var units: [(isClosed: Bool, hasBegun: Bool)]
    /// Users who had their first start in time in these days, and are new on none, since an earlier start of theirs was known by then.
    var unassigned: Int64 = 0

    /// The state of a cohort's cell; nil before its unit has begun.
    func state(_ cohort: Int, _ cell: Int) -> DailyReport.State? {
        let unit = cohort + cell
        guard units[unit].hasBegun else { return nil }
        let isClosed = query.mode == .on ? units[unit].isClosed : units[unit...].allSatisfy(\.isClosed)
        return isClosed ? .closed : .open
    }

    /// Over all cohorts whose cell is closed: how many came back, of how many.
    var average: [(users: Int64, size: Int64)] {
        cohorts.indices.map { cell in
            cohorts.indices.reduce((0, 0)) { sum, cohort in
                guard cohort + cell < cohorts.count, state(cohort, cell) == .closed else { return sum }
                return (sum.0 + cohorts[cohort].returned[cell], sum.1 + cohorts[cohort].size)
            }
        }
    }
}

extension ReturnQuery {
    /// The units of some days, by the numbers of their days.
    func units(_ days: [ReportDay]) -> [Int] {
        guard unit == .week, let first = days.first else { return Array(days.indices) }
        // 1970-01-01 was a Thursday.
        return days.map { Int(($0.day.daysSince1970 + 3) / 7 - (first.day.daysSince1970 + 3) / 7) }
    }

    func answer(_ days: ProjectDays, _ reader: AnalysisReader) async throws(StoreError) -> Return {
        let rows = try await reader.rows(basis)
        let span = days.days(from: days.from, count: days.count)
        let unitOf = units(span)
        var result = Return(
            query: self, frame: try await reader.frame(days, rows, dependsOn: span), cohorts: [], units: [])
        for (day, unit) in zip(span, unitOf) {
            let isClosed = rows.state(of: day) == .closed
            if unit == result.units.count {
                result.cohorts.append(.init(day: day.day))
                result.units.append((isClosed, day.starts * 1_000 < rows.settled))
            } else {
                result.units[unit].isClosed = result.units[unit].isClosed && isClosed
            }
        }
        let count = result.cohorts.count
        for index in result.cohorts.indices { result.cohorts[index].returned = Array(repeating: 0, count: count - index) }
        let closed = try await closed(days, reader)
        for (number, day) in closed.days.enumerated() { result.cohorts[unitOf[number]].size += day.new }
        result.unassigned = closed.days.reduce(0) { $0 + $1.unassigned }
        for cell in closed.cells { result.cohorts[cell.cohort].returned[cell.day - cell.cohort] += cell.users }

        // What was not stored is computed: who is new on the rest of the days, and who came back on all of them or the rest.
        let rest = span[closed.days.count...]
        var (tables, sums, news): ([StoreSQL], [StoreSQL], [StoreSQL]) = ([], [], [])
        if let starts = try await starts(rest, isStored: closed.isKnown, rows, reader) {
            tables += [
                starts,
                """
                first AS (
                  SELECT distinct_id, min(CASE WHEN known <= day AND day >= 0 THEN day END) AS day,
                    min(CASE WHEN known > day THEN known ELSE day + 1 END) AS known, max(earlier) AS earlier
                  FROM starts GROUP BY distinct_id
                )
                """,
            ]
            news = ["SELECT distinct_id, day FROM first WHERE day < known"]
            sums = [
                "SELECT 0, day, 0, count(*) FROM first WHERE day < known GROUP BY day",
                "SELECT 2, 0, 0, count(*) FROM first WHERE day >= known AND earlier = 0",
            ]
        }
        if !closed.days.isEmpty {
            let ends = rest.first?.starts ?? span[span.count - 1].ends
            news.append(
                """
                SELECT distinct_id, \(BoundNumber.sql(of: "first_counted", span.enumerated().map { ($1.ends, $0) })) AS day FROM report_users
                WHERE project_id = \(reader.projectID) AND first_counted >= \(instant: span[0].starts) AND first_counted < \(instant: ends)
                  AND first_known = first_counted
                """)
        }
        let scanned = closed.hasCells ? rest.startIndex : 0
        let pieces = CountedRows.pieces(Array(span[scanned...])) { unitOf[scanned + $0] }
        if !news.isEmpty, let returns = try await rows.table(pieces, again.condition(reader.database.dialect), reader.database) {
            let point: StoreSQL = mode == .on ? "point" : "max(point) AS point"
            tables += [
                "new AS (\(Self.joined(news, " UNION ALL ")))",
                "back AS (SELECT distinct_id, \(point) FROM \(returns) GROUP BY distinct_id\(mode == .on ? ", point" as StoreSQL : ""))",
            ]
            sums.append("SELECT 1, day, point, count(*) FROM new JOIN back ON new.distinct_id = back.distinct_id GROUP BY day, point")
        }
        guard !sums.isEmpty else { return result }
        for row in try await reader.ask("WITH \(Self.joined(tables, ", ")) \(Self.joined(sums, " UNION ALL "))") {
            let numbers = try row.sums()
            if numbers[0] == 2 {
                result.unassigned += numbers[3]
                continue
            }
            let cohort = unitOf[Int(numbers[1])]
            guard numbers[0] == 1 else {
                result.cohorts[cohort].size += numbers[3]
                continue
            }
            let last = Int(numbers[2]) - cohort
            guard last >= 0 else { continue }
            for cell in (mode == .on ? last : 0)...last { result.cohorts[cohort].returned[cell] += numbers[3] }
        }
        result.frame.isRowsRemoved = try await reader.isRowsRemoved(days, span)
        return result
    }

    /// What was stored when days closed.
    private struct Closed {
        /// Whether what closed before the days asked for, or of them, is stored.
        var isKnown = false
        /// The first of the days asked for.
        var days: [(new: Int64, unassigned: Int64)] = []
        /// Whether the cells of these days are stored, too.
        var hasCells = false
        /// By the numbers of days.
        var cells: [(cohort: Int, day: Int, users: Int64)] = []
    }

    /// Who began an app is known of closed days, and of each day that any of them came back to.
    private func closed(_ days: ProjectDays, _ reader: AnalysisReader) async throws(StoreError) -> Closed {
        var closed = Closed()
        guard start == ReturnQuery().start, basis == .closed else { return closed }
        let project = reader.projectID
        func day(_ text: String?) -> CalendarDay? { text.flatMap { CalendarDay($0) } }
        let stored = try await reader.ask(
            "SELECT max(CASE WHEN unassigned IS NULL THEN day END), max(day) FROM report_days WHERE project_id = \(project)")
        // Before the first of its days a project has no event that counts. Those that a version before has closed are computed, and all before.
        guard let last = day(stored.first?[1]), day(stored.first?[0]).map({ $0 < days.from }) ?? true else { return closed }
        let count = Int(min(last.advanced(by: 1), days.to).daysSince1970 - days.from.daysSince1970)
        (closed.isKnown, closed.days) = (true, Array(repeating: (0, 0), count: max(count, 0)))
        // A day that closes meanwhile is one of the rest.
        let end = min(last.advanced(by: 1), days.to)
        func number(_ day: CalendarDay) -> Int { Int(day.daysSince1970 - days.from.daysSince1970) }
        for row in try await reader.ask(
            "SELECT day, new_users, unassigned FROM report_days WHERE project_id = \(project) AND day >= \(days.from) AND day < \(end)")
        {
            guard let day = day(row[0]), let new = row[1].flatMap({ Int64($0) }), let unassigned = row[2].flatMap({ Int64($0) }) else {
                continue
            }
            closed.days[number(day)] = (new, unassigned)
        }
        closed.hasCells = again == EventFilter() && unit == .day && mode == .on
        guard closed.hasCells else { return closed }
        for row in try await reader.ask(
            "SELECT cohort, day, users FROM report_returns WHERE project_id = \(project) AND cohort >= \(days.from) AND day < \(end)")
        {
            guard let cohort = day(row[0]), let day = day(row[1]), let users = row[2].flatMap({ Int64($0) }) else {
                throw .unavailable("an answer of the store cannot be read")
            }
            closed.cells.append((number(cohort), number(day), users))
        }
        return closed
    }

    /// All rows that say something about who is new on which of some days, as tables of which `starts` has users with `day`, the number of the day
    /// that a row lies in (-1 before the first), `known`, the number of the first day that had not closed when it was received, and `earlier`, 1
    /// if it counts in a day before the first. A user is new on the first day with a row that came in time, unless a row of an earlier day was
    /// known by then. nil if there are none.
    ///
    /// - Parameter isStored: Whether all days before were folded into `report_users`, as those that closed are.
    private func starts(
        _ span: ArraySlice<ReportDay>, isStored: Bool, _ rows: CountedRows, _ reader: AnalysisReader
    ) async throws(StoreError) -> StoreSQL? {
        guard let first = span.first, let last = span.last else { return nil }
        let (dialect, project) = (reader.database.dialect, reader.projectID)
        let present = rows.settled / 1_000 + 1
        let end = basis == .closed ? min(present, last.closes) : present
        var (from, folded) = (Int64(0), Int64(0))
        if isStored {
            let progress = try await reader.ask(
                "SELECT \(dialect.milliseconds("folded_to")) FROM report_progress WHERE project_id = \(project)")
            // A project without any has closed no day.
            folded = try (progress.first ?? [nil]).sum(0) / 1_000
            from = min(first.starts - DailyQuery.longestLead, folded)
        }
        guard let received = try await reader.database.received(from: from, to: end, parts: .question).first else { return nil }
        // Of what was received before the last close, days before are known. What came later for them came too late.
        let unfolded: StoreSQL = isStored ? " AND (time >= \(instant: first.starts) OR received_at >= \(instant: folded))" : ""
        let earlier: StoreSQL =
            basis == .all
            ? "1"
            : """
            CASE WHEN time < \(instant: first.starts) AND received_at < (
              SELECT b.closes FROM report_bounds b WHERE b.project_id = \(project) AND b.starts <= time ORDER BY b.starts DESC LIMIT 1
            ) THEN 1 ELSE 0 END
            """
        let receivedRows: StoreSQL = """
            SELECT distinct_id, \(BoundNumber.sql(of: "time", [(first.starts, -1)] + zip(span, span.indices).map { ($0.ends, $1) })) AS day,
              \(basis == .closed ? BoundNumber.sql(of: "received_at", zip(span, span.indices).map { ($0.closes, $1) }) : "0") AS known,
              \(earlier) AS earlier
            FROM kept_events WHERE project_id = \(project) AND \(received) AND received_at < \(milliseconds: rows.settled)
              AND event = \(start) AND time < \(instant: last.ends) AND (time < received_at OR NOT (\(dialect.isAhead)))\(unfolded)
            """
        guard isStored else { return "starts AS (\(receivedRows))" }
        return """
            unfolded AS (\(receivedRows)), starts AS (
              SELECT * FROM unfolded
              UNION ALL SELECT distinct_id, -1, 0, CASE WHEN first_counted < \(instant: first.starts) THEN 1 ELSE 0 END FROM report_users
              WHERE project_id = \(project) AND first_start < \(instant: first.starts) AND distinct_id IN (SELECT distinct_id FROM unfolded)
            )
            """
    }

    private static func joined(_ parts: [StoreSQL], _ separator: StoreSQL) -> StoreSQL {
        parts.dropFirst().reduce(parts.first ?? "") { "\($0)\(separator)\($1)" }
    }
}
