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
    static let maximumUnits = 60
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
    /// Users with a start in these days who are new on none of them.
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
            let isClosed = basis == .closed && rows.state(of: day) == .closed
            if unit == result.units.count {
                result.cohorts.append(.init(day: day.day))
                result.units.append((isClosed, day.starts * 1_000 < rows.settled))
            } else {
                result.units[unit].isClosed = result.units[unit].isClosed && isClosed
            }
        }
        let count = result.cohorts.count
        for index in result.cohorts.indices { result.cohorts[index].returned = Array(repeating: 0, count: count - index) }
        let pieces = CountedRows.pieces(span) { unitOf[$0] }
        guard let starts = try await starts(span, rows, reader),
            let returns = try await rows.table(pieces, again.condition(reader.database.dialect), reader.database)
        else { return result }
        let back: StoreSQL =
            mode == .on
            ? "SELECT distinct_id, point FROM \(returns) GROUP BY distinct_id, point"
            : "SELECT distinct_id, max(point) AS point FROM \(returns) GROUP BY distinct_id"
        let found = try await reader.ask(
            """
            WITH first AS (
              SELECT distinct_id, min(CASE WHEN known <= day AND day >= 0 THEN day END) AS day,
                min(CASE WHEN known > day THEN known ELSE day + 1 END) AS known
              FROM \(starts) GROUP BY distinct_id
            ),
            new AS (SELECT distinct_id, day FROM first WHERE day < known),
            back AS (\(back))
            SELECT 0, day, 0, count(*) FROM new GROUP BY day
            UNION ALL SELECT 1, day, point, count(*) FROM new JOIN back ON new.distinct_id = back.distinct_id GROUP BY day, point
            UNION ALL SELECT 2, 0, 0, count(*) FROM first WHERE day >= known
            """)
        for row in found {
            let numbers = row.map { $0.flatMap { Int64($0) } ?? 0 }
            if numbers[0] == 2 {
                result.unassigned = numbers[3]
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
        return result
    }

    /// All rows that say something about who is new on which day, as a table of users with `day`, the number of the day that a row lies in (-1
    /// before the first), and `known`, the number of the first day that had not closed when it was received. A user is new on the first day with
    /// a row that came in time, unless a row of an earlier day was known by then. nil if there are none.
    private func starts(
        _ span: [ReportDay], _ rows: CountedRows, _ reader: AnalysisReader
    ) async throws(StoreError) -> StoreSQL? {
        guard let first = span.first, let last = span.last else { return nil }
        let (dialect, project) = (reader.database.dialect, reader.projectID)
        let present = rows.settled / 1_000 + 1
        let end = basis == .closed ? min(present, last.closes) : present
        func table(from: Int64, to: Int64, _ condition: StoreSQL) async throws(StoreError) -> StoreSQL? {
            guard let received = try await reader.database.received(from: from, to: to, parts: .question).first else { return nil }
            return """
                kept_events WHERE project_id = \(project) AND \(received) AND received_at < \(milliseconds: rows.settled)
                AND event = \(start) AND time < \(instant: last.ends) AND (time < received_at OR NOT (\(dialect.isAhead)))\(condition)
                """
        }
        let columns: StoreSQL = """
            SELECT distinct_id, \(Self.number(of: "time", [(first.starts, -1)] + span.enumerated().map { ($1.ends, $0) })) AS day,
            \(basis == .closed ? Self.number(of: "received_at", span.enumerated().map { ($1.closes, $0) }) : "0") AS known FROM
            """
        // Of `$AppStart` it is known who has begun before, if none of these events came when one of the days had closed.
        let late = try await table(from: first.closes, to: present, " AND time < \(instant: first.starts)")
        var isKnown = start == "$AppStart" && basis == .closed
        if isKnown, let late { isKnown = try await reader.ask("SELECT 1 FROM \(late) LIMIT 1").isEmpty }
        guard isKnown else { return try await table(from: 0, to: end, "").map { "(\(columns) \($0)) AS starts" } }
        let progress = try await reader.ask(
            "SELECT \(dialect.milliseconds("folded_to")) FROM report_progress WHERE project_id = \(project)")
        let folded = (progress.first?[0].flatMap { Int64($0) } ?? 0) / 1_000
        let unfolded = try await table(
            from: min(first.starts - DailyQuery.longestLead, folded), to: end,
            " AND (time >= \(instant: first.starts) OR received_at >= \(instant: folded))")
        guard let unfolded else { return nil }
        return """
            (\(columns) \(unfolded) UNION ALL
            SELECT distinct_id, -1, 0 FROM report_users WHERE project_id = \(project) AND first_start < \(instant: first.starts)) AS starts
            """
    }

    /// The number of the first bound that an instant lies before; the last one's behind all of them.
    private static func number(of column: StoreSQL, _ bounds: [(before: Int64, number: Int)]) -> StoreSQL {
        guard bounds.count > 1 else { return StoreSQL(stringLiteral: "\(bounds[0].number)") }
        let middle = bounds.count / 2
        let (low, high) = (number(of: column, Array(bounds[..<middle])), number(of: column, Array(bounds[middle...])))
        return "CASE WHEN \(column) < \(instant: bounds[middle - 1].before) THEN \(low) ELSE \(high) END"
    }
}
