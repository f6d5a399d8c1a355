import HapaxModel

/// One session for questions. Connects when it is needed and again after the connection was lost.
actor PostgresQuerySession {
    private let isReadOnly: Bool
    private let executor: SerialQueueExecutor
    private var session: PostgresSession

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// - Parameter longest: How long one statement may take at most.
    init(
        uri: String, name: String, breaker: Locked<ConnectionBreaker>, longest: Duration = ServerLimits.heavyRead, isReadOnly: Bool = true
    ) {
        self.isReadOnly = isReadOnly
        session = PostgresSession(uri: uri, breaker: breaker, deadline: longest + .seconds(5)) { (connection) throws(StoreError) in
            // Parallel workers would take the processors from ingest; answers hold text in UTC. A day's users are grouped by hash: the planner would
            // rather sort all of their rows on disk.
            try translating { () throws(PostgresError) in
                try connection.execute(
                    """
                    SET default_transaction_read_only = \(isReadOnly ? "on" : "off"); SET DateStyle = 'ISO'; SET TimeZone = 'UTC';
                    SET max_parallel_workers_per_gather = 0; SET jit = off; SET work_mem = '32MB'; SET enable_sort = off;
                    SET idle_in_transaction_session_timeout = '60s'
                    """)
            }
        }
        executor = SerialQueueExecutor(label: "hapax.postgres.reader.\(name)")
    }

    func close() {
        session.close()
    }

    /// - Throws: ``StoreError/tooHeavy`` if it takes longer.
    func query(_ sql: String, _ parameters: [String], within time: Duration) throws(StoreError) -> [[String?]] {
        try withTransaction(within: time) { (connection) throws(PostgresError) in try connection.query(sql, parameters) }
    }

    /// The rows of each statement, all as of one moment.
    func answers(
        _ statements: [(sql: String, parameters: [String])], within time: Duration
    ) throws(StoreError) -> [[[String?]]] {
        let end = ContinuousClock.now + time
        return try withTransaction(within: time, isRepeatable: true, isOneMoment: statements.count > 1) {
            (connection) throws(PostgresError) in
            var answers: [[[String?]]] = []
            for (sql, parameters) in statements {
                if !answers.isEmpty {
                    // All statements together have this time; 0 would mean no limit.
                    try connection.execute("SET LOCAL statement_timeout = \(max(1, Int64((end - .now) / .milliseconds(1))))")
                }
                answers.append(try connection.query(sql, parameters))
            }
            return answers
        }
    }

    /// The rows of one statement as they come. Once there were some, it does not begin anew.
    func each(_ sql: String, _ parameters: [String], within time: Duration, _ row: @Sendable ([String?]) -> Void) throws(StoreError) {
        var isBegun = false
        try withTransaction(within: time) { (connection) throws(PostgresError) in
            guard !isBegun else { throw PostgresError(kind: .connection, summary: "the connection was lost in the middle of an answer") }
            try connection.query(sql, parameters) { found in
                isBegun = true
                row(found)
                return true
            }
        }
    }

    /// See ``EventReader/compare(_:)``.
    func compare(_ records: [EventRecord], within time: Duration) throws(StoreError) -> [Bool?] {
        let end = ContinuousClock.now + time
        return try withTransaction(within: time) { (connection) throws(PostgresError) in
            try PostgresComparison.run(records, connection, until: end)
        }
    }

    /// Reads events until their properties reach `bytes`, at least one event if there is any.
    ///
    /// - Returns: The events, also if the time was up after some of them, and whether there may be more.
    func events(
        _ sql: String, _ parameters: [String], bytes: Int, within time: Duration
    ) throws(StoreError) -> (events: [EventRow], isCut: Bool) {
        var (events, held) = ([EventRow](), 0)
        do throws(StoreError) {
            try withTransaction(within: time) { (connection) throws(PostgresError) in
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
    func change(_ statements: [(sql: String, parameters: [String])], within time: Duration) throws(StoreError) -> [[String?]] {
        try withTransaction(within: time) { (connection) throws(PostgresError) in try connection.last(statements) }
    }

    /// Runs `body` in a transaction that locks `events` first: a statement that is planned while a month is being made would look for the
    /// month's rows in DEFAULT and miss them.
    private func withTransaction<Value>(
        within time: Duration, isRepeatable: Bool = false, isOneMoment: Bool = false,
        _ body: (PostgresConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        let milliseconds = Int64(time / .milliseconds(1))
        // To PostgreSQL a timeout of 0 means none.
        guard milliseconds > 0 else { throw .tooHeavy }
        return try session.use(isRepeatable: isReadOnly || isRepeatable) { (connection) throws(StoreError) in
            if isReadOnly { connection.isUnwanted = Asker.hasLeft }
            defer { connection.isUnwanted = nil }
            return try translating { () throws(PostgresError) in
                do throws(PostgresError) {
                    // The snapshot of a repeatable read is taken after the lock.
                    let begin = isOneMoment ? "BEGIN ISOLATION LEVEL REPEATABLE READ" : "BEGIN"
                    try connection.execute(
                        "\(begin); SET LOCAL statement_timeout = \(milliseconds); LOCK TABLE events IN ACCESS SHARE MODE")
                    let value = try body(connection)
                    // A query that was cancelled half read has aborted the transaction, which `commit()` would report as an error.
                    if isReadOnly { try connection.execute("COMMIT") } else { try connection.commit() }
                    return value
                } catch {
                    if !connection.isBroken { try? connection.execute("ROLLBACK") }
                    throw error
                }
            }
        }
    }
}
