import HapaxModel

/// The figures of one day of one project (docs/reading.md, The daily report).
struct DailyFigures: Equatable, Sendable {
    /// For so many days after their first one it is stored how many users came back.
    static let returnDays = 60

    struct Name: Equatable, Sendable {
        var event: String
        var count: Int64
    }

    var users: Int64 = 0
    var activeUsers: Int64 = 0
    var newUsers: Int64 = 0
    /// All sessions. The next two are the sessions with a duration, and the sum of these durations in milliseconds.
    var sessions: Int64 = 0
    var timedSessions: Int64 = 0
    var sessionMilliseconds: Int64 = 0
    /// Users with a session that has a duration.
    var timedUsers: Int64 = 0
    var events: Int64 = 0
    /// The commonest names first, at most ``ServerLimits/reportNames``; ties by their bytes.
    var byName: [Name] = []
    var ahead: Int64 = 0

    var other: Int64 { events - byName.reduce(0) { $0 + $1.count } }
    var meanSession: Int64? { Self.mean(sessionMilliseconds, timedSessions) }
    var meanUse: Int64? { Self.mean(sessionMilliseconds, timedUsers) }

    /// Rounded half up.
    private static func mean(_ sum: Int64, _ count: Int64) -> Int64? { count > 0 ? (2 * sum + count) / (2 * count) : nil }

    /// The columns of `report_days`, in this order.
    static let columns: StoreSQL = "users, active_users, new_users, sessions, timed_sessions, session_ms, timed_users, events, ahead"

    var values: StoreSQL {
        """
        \(users), \(activeUsers), \(newUsers), \(sessions), \(timedSessions), \(sessionMilliseconds), \(timedUsers), \(events), \(ahead)
        """
    }

    /// - Parameter columns: As ``columns`` names them.
    init?(columns: some Collection<String?>, byName: [Name]) {
        let numbers = columns.compactMap { $0.flatMap { Int64($0) } }
        guard numbers.count == 9 else { return nil }
        (users, activeUsers, newUsers, sessions, timedSessions) = (numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
        (sessionMilliseconds, timedUsers, events, ahead) = (numbers[5], numbers[6], numbers[7], numbers[8])
        self.byName = byName
    }

    init() {}
}

/// Computes the figures of a day from its events.
struct DailyQuery: Hashable, Sendable {
    var projectID: Int32
    var day: ReportDay
    /// Only events received before this count, in Unix seconds: the day's close, or `.max` for all events.
    var receivedBefore: Int64
    /// The instant up to which `report_users` holds each user's first start, in Unix seconds.
    var foldedTo: Int64

    /// Seconds. Events dated further ahead of their arrival do not count, so those of a day were received this long before it at the earliest.
    static let longestLead: Int64 = 86_400

    /// For a person's question.
    func figures(_ database: any SQLStore, in turn: QuestionTurn) async throws(StoreError) -> DailyFigures {
        try Self.figures(from: try await database.ask(try await statements(database, .question), as: .question(turn)))
    }

    /// What gives a day's figures if it is answered as of one moment: of rows that are removed in between, a name would be counted and no event.
    func statements(_ database: any SQLStore, _ parts: SpanParts) async throws(StoreError) -> [StoreSQL] {
        let ahead = CountedRows.ahead(of: projectID, from: day.starts, to: day.ends, database.dialect)
        let received = try await database.received(from: day.starts - Self.longestLead, to: receivedBefore, parts: parts)
        // Nothing was received in all that time.
        guard let received = received.first else { return [ahead] }
        let (dialect, ofDay) = (database.dialect, rows(received, database.dialect))
        // Starts before the day, of which `report_users` does not know yet.
        let unfolded = try await database.received(from: foldedTo, to: receivedBefore, parts: parts).first
        let earlier: StoreSQL =
            unfolded.map {
                """
                UNION ALL SELECT distinct_id, false, event, NULL FROM kept_events WHERE project_id = \(projectID) AND \($0)
                AND time < \(instant: day.starts) AND event = '$AppStart' AND NOT (\(dialect.isAhead))
                """
            } ?? ""
        // By user: what they did on the day, and whether they had started before.
        let sums: StoreSQL = """
            SELECT count(*) FILTER (WHERE events > 0), count(*) FILTER (WHERE starts > 0), count(*) FILTER (
                WHERE starts > 0 AND earlier_starts = 0 AND NOT EXISTS (
                  SELECT 1 FROM report_users r WHERE r.project_id = \(projectID) AND r.distinct_id = users.distinct_id
                  AND r.first_start < \(instant: day.starts))),
              coalesce(sum(sessions), 0), coalesce(sum(timed), 0), coalesce(sum(ms), 0), count(*) FILTER (WHERE timed > 0), coalesce(sum(events), 0)
            FROM (
              SELECT distinct_id, count(*) FILTER (WHERE of_day) AS events, count(*) FILTER (WHERE of_day AND event = '$AppStart') AS starts,
                count(*) FILTER (WHERE NOT of_day) AS earlier_starts, count(*) FILTER (WHERE event = '$AppEnd') AS sessions,
                count(ms) AS timed, sum(ms) AS ms
              FROM (
                SELECT distinct_id, true AS of_day, event, CASE WHEN event = '$AppEnd' THEN \(dialect.duration) END AS ms FROM \(ofDay)
                \(earlier)
              ) AS rows_of_users GROUP BY distinct_id
            ) AS users
            """
        return [
            ahead, sums,
            "SELECT event, count(*) FROM \(ofDay) GROUP BY event ORDER BY count(*) DESC, event LIMIT \(ServerLimits.reportNames)",
        ]
    }

    /// - Parameter answers: To ``statements(_:_:)``.
    static func figures(from answers: [[[String?]]]) throws(StoreError) -> DailyFigures {
        var figures = DailyFigures()
        guard let ahead = answers.first?.first?[0].flatMap({ Int64($0) }) else { throw .unavailable("a report has no figures") }
        figures.ahead = ahead
        guard answers.count == 3 else { return figures }
        let numbers = answers[1].first?.compactMap { $0.flatMap { Int64($0) } } ?? []
        guard numbers.count == 8 else { throw .unavailable("a report has no figures") }
        (figures.users, figures.activeUsers, figures.newUsers, figures.sessions) = (numbers[0], numbers[1], numbers[2], numbers[3])
        (figures.timedSessions, figures.sessionMilliseconds, figures.timedUsers, figures.events) = (
            numbers[4], numbers[5], numbers[6], numbers[7]
        )
        figures.byName = try answers[2].map { (row) throws(StoreError) in try DailyFigures.Name(row) }
        return figures
    }

    /// The rows of the day, of whatever event.
    private func rows(_ received: StoreSQL, _ dialect: Dialect) -> StoreSQL {
        CountedRows.rows(of: projectID, received, from: day.starts, to: day.ends, dialect)
    }

    /// Of the day's users, those who were new on it or on an earlier day, by that day; and those who have their first start in time on it, and are
    /// new on none. All starts that were known at its close are folded.
    ///
    /// - Returns: nil if nothing was received. `read` reads the answer to the statement.
    func returns(_ database: any SQLStore) async throws(StoreError) -> (
        statement: StoreSQL, read: ([[String?]]) throws(StoreError) -> (cohorts: [(day: CalendarDay, users: Int64)], unassigned: Int64)
    )? {
        let received = try await database.received(from: day.starts - Self.longestLead, to: receivedBefore, parts: .whole)
        guard let received = received.first else { return nil }
        let milliseconds = database.dialect.milliseconds
        let bounds = try await database.ask(
            """
            SELECT day, \(milliseconds("starts")), \(milliseconds("ends")), \(milliseconds("closes")), time_zone FROM report_bounds
            WHERE project_id = \(projectID) AND day > \(day.day.advanced(by: -DailyFigures.returnDays)) AND day <= \(day.day) ORDER BY day
            """, as: .closing
        ).map { (row) throws(StoreError) in try ReportBounds.day(row) }
        guard let first = bounds.first else { return nil }
        let statement: StoreSQL = """
            SELECT number, count(*) FILTER (WHERE is_new), count(*) FILTER (WHERE NOT is_new) FROM (
              SELECT \(BoundNumber.sql(of: "first_counted", bounds.enumerated().map { ($1.ends, $0) })) AS number,
                first_known = first_counted AS is_new
              FROM report_users WHERE project_id = \(projectID) AND first_counted >= \(instant: first.starts)
                AND first_counted < \(instant: day.ends)
                AND distinct_id IN (SELECT distinct_id FROM \(rows(received, database.dialect)))
            ) AS users GROUP BY number
            """
        return (
            statement,
            { (found) throws(StoreError) in
                var (cohorts, unassigned) = ([(day: CalendarDay, users: Int64)](), Int64(0))
                for row in found {
                    let numbers = row.compactMap { $0.flatMap { Int64($0) } }
                    guard numbers.count == 3 else { throw .unavailable("a report has no figures") }
                    let day = bounds[Int(numbers[0])].day
                    if numbers[1] > 0 { cohorts.append((day, numbers[1])) }
                    if day == self.day.day { unassigned = numbers[2] }
                }
                return (cohorts, unassigned)
            }
        )
    }
}

extension DailyFigures.Name {
    /// - Parameter row: The name and how many there are.
    init(_ row: some RandomAccessCollection<String?>) throws(StoreError) {
        guard let event = row.first ?? nil, let count = row.last.flatMap({ $0.flatMap { Int64($0) } }) else {
            throw .unavailable("a report has no figures")
        }
        self.init(event: event, count: count)
    }
}

/// Which of some days an instant belongs to, as SQL.
enum BoundNumber {
    /// The number of the first bound that an instant lies before; that of the last one after all of them.
    static func sql(of column: StoreSQL, _ bounds: [(before: Int64, number: Int)]) -> StoreSQL {
        guard bounds.count > 1 else { return StoreSQL(stringLiteral: "\(bounds[0].number)") }
        let middle = bounds.count / 2
        let (low, high) = (sql(of: column, Array(bounds[..<middle])), sql(of: column, Array(bounds[middle...])))
        return "CASE WHEN \(column) < \(instant: bounds[middle - 1].before) THEN \(low) ELSE \(high) END"
    }
}
