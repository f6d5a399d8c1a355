import HapaxModel

/// One connection for one ``Purpose``, on a queue of its own, since libpq blocks.
actor PostgresSession {
    /// What a connection is for, and what follows from it.
    struct Profile: Sendable {
        var name: String
        /// How long one statement may take at most, where its question does not say.
        var longest: Duration
        /// Further settings of a fresh connection.
        var settings = ""
        /// Whether a transaction locks `events` first: a statement that is planned while a month is being made would look for the month's rows in
        /// DEFAULT and miss them.
        var locksEvents = false
        var isReadOnly = false

        /// Keys, projects, the clock and the horizon: never waits for a month that is being made.
        static let own = Profile(name: "own", longest: ServerLimits.own)
        /// Parallel workers would take the processors from ingest. A day's users are grouped by hash: the planner would rather sort all of their
        /// rows on disk.
        private static let reading = """
            SET max_parallel_workers_per_gather = 0; SET jit = off; SET work_mem = '32MB'; SET enable_sort = off;
            SET idle_in_transaction_session_timeout = '60s'
            """
        static func question(_ number: Int) -> Profile { reading("question.\(number)", longest: ServerLimits.heavyRead) }
        /// One event or one figure, which waits for no list.
        static let short = reading("short", longest: ServerLimits.shortRead)
        static let search = reading("search", longest: ServerLimits.ownWork)
        static let closing = Profile(name: "closing", longest: ServerLimits.ownWork, settings: reading, locksEvents: true)
        static let owner = Profile(name: "owner", longest: ServerLimits.owner)

        private static func reading(_ name: String, longest: Duration) -> Profile {
            Profile(
                name: name, longest: longest, settings: "\(reading); SET default_transaction_read_only = on", locksEvents: true,
                isReadOnly: true)
        }
    }

    typealias Statements = [(sql: String, parameters: [String])]

    private let profile: Profile
    private let executor: SerialQueueExecutor
    private var link: PostgresLink

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(_ profile: Profile, uri: String, breaker: Locked<ConnectionBreaker>) {
        self.profile = profile
        executor = SerialQueueExecutor(label: "hapax.postgres.\(profile.name)")
        // The database ends a statement more gently than the end of the connection does.
        link = PostgresLink(uri: uri, breaker: breaker, deadline: profile.longest + .seconds(5)) { (connection) throws(StoreError) in
            let timeout = Int64(profile.longest / .milliseconds(1))
            try translating { () throws(PostgresError) in
                // Answers hold text in UTC.
                try connection.execute(
                    "SET DateStyle = 'ISO'; SET TimeZone = 'UTC'; SET statement_timeout = \(timeout); \(profile.settings)")
            }
        }
    }

    func close() { link.close() }

    /// Work on the connection outside a transaction.
    func use<Value: Sendable>(
        isRepeatable: Bool = false, _ body: @Sendable (PostgresConnection) throws(StoreError) -> Value
    ) throws(StoreError) -> Value { try link.use(isRepeatable: isRepeatable, body) }

    /// The same for what only asks.
    func look<Value: Sendable>(_ body: @Sendable (PostgresConnection) throws(PostgresError) -> Value) throws(StoreError) -> Value {
        try link.use(isRepeatable: true) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in try body(connection) }
        }
    }

    /// - Throws: ``StoreError/tooHeavy`` if it takes longer.
    func query(_ sql: String, _ parameters: [String] = [], in turn: QuestionTurn? = nil) throws(StoreError) -> [[String?]] {
        try answers([(sql, parameters)], in: turn).first ?? []
    }

    /// The rows of each statement, all as of one moment.
    ///
    /// - Parameter turn: Its time is for all of them together; nil for as long as the profile allows each.
    func answers(_ statements: Statements, in turn: QuestionTurn? = nil) throws(StoreError) -> [[[String?]]] {
        try transaction(in: turn, isRepeatable: true, isOneMoment: statements.count > 1) {
            (connection) throws(PostgresError) in
            var answers: [[[String?]]] = []
            for (sql, parameters) in statements {
                if let turn, !answers.isEmpty {
                    // 0 would mean no limit.
                    try connection.execute("SET LOCAL statement_timeout = \(max(1, Int64(turn.left / .milliseconds(1))))")
                }
                answers.append(try connection.query(sql, parameters))
            }
            return answers
        }
    }

    /// The rows of one statement as they come. Once there were some, it does not begin anew.
    func each(_ sql: String, _ parameters: [String], in turn: QuestionTurn, _ row: @Sendable ([String?]) -> Void) throws(StoreError) {
        var isBegun = false
        try transaction(in: turn) { (connection) throws(PostgresError) in
            guard !isBegun else { throw PostgresError(kind: .connection, summary: "the connection was lost in the middle of an answer") }
            try connection.query(sql, parameters) { found in
                isBegun = true
                row(found)
                return true
            }
        }
    }

    /// See ``EventReader/compare(_:in:)``.
    func compare(_ records: [EventRecord], in turn: QuestionTurn) throws(StoreError) -> [Bool?] {
        try transaction(in: turn) { (connection) throws(PostgresError) in
            try PostgresComparison.run(records, connection, until: turn.deadline)
        }
    }

    /// Reads events until their properties reach `bytes`, at least one event if there is any.
    ///
    /// - Returns: The events, also if the time was up after some of them, and whether there may be more.
    func events(
        _ sql: String, _ parameters: [String], bytes: Int, in turn: QuestionTurn
    ) throws(StoreError) -> (events: [EventRow], isCut: Bool) {
        var (events, held) = ([EventRow](), 0)
        do throws(StoreError) {
            try transaction(in: turn) { (connection) throws(PostgresError) in
                (events, held) = ([], 0)
                try connection.query(sql, parameters) { row in
                    guard let event = EventRow(row) else { return true }
                    events.append(event)
                    held += event.properties.count
                    return held < bytes
                }
            }
        } catch .tooHeavy where !events.isEmpty {
            return (events, true)
        }
        return (events, held >= bytes)
    }

    /// Runs all statements in one transaction.
    ///
    /// - Returns: The rows of the last one.
    func change(_ statements: Statements) throws(StoreError) -> [[String?]] {
        try transaction { (connection) throws(PostgresError) in
            var rows: [[String?]] = []
            for statement in statements { rows = try connection.query(statement.sql, statement.parameters) }
            return rows
        }
    }

    private func transaction<Value>(
        in turn: QuestionTurn? = nil, isRepeatable: Bool = false, isOneMoment: Bool = false,
        _ body: (PostgresConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        // Who has left while others were answered is not asked for any more.
        if let turn, turn.hasLeft() { throw .tooHeavy }
        // The snapshot of a repeatable read is taken after the lock.
        var begin = isOneMoment ? "BEGIN ISOLATION LEVEL REPEATABLE READ" : "BEGIN"
        if let turn {
            let milliseconds = Int64(turn.left / .milliseconds(1))
            // To PostgreSQL a timeout of 0 means none.
            guard milliseconds > 0 else { throw .tooHeavy }
            begin += "; SET LOCAL statement_timeout = \(milliseconds)"
        }
        if profile.locksEvents { begin += "; LOCK TABLE events IN ACCESS SHARE MODE" }
        return try link.use(isRepeatable: profile.isReadOnly || isRepeatable) { (connection) throws(StoreError) in
            connection.isUnwanted = turn?.hasLeft
            defer { connection.isUnwanted = nil }
            return try translating { () throws(PostgresError) in
                do throws(PostgresError) {
                    try connection.execute(begin)
                    let value = try body(connection)
                    // A query that was cancelled half read has aborted the transaction, which `commit()` would report as an error.
                    if profile.isReadOnly { try connection.execute("COMMIT") } else { try connection.commit() }
                    return value
                } catch {
                    if !connection.isBroken { try? connection.execute("ROLLBACK") }
                    throw error
                }
            }
        }
    }
}
