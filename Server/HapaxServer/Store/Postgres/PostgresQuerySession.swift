import HapaxModel

/// One session for questions. Connects when it is needed and again after the connection was lost.
actor PostgresQuerySession {
    private let uri: String
    private let breaker: Locked<ConnectionBreaker>
    private let isReadOnly: Bool
    private let executor: SerialQueueExecutor
    private var connection: PostgresConnection?
    private var isClosed = false

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// - Parameter isReadOnly: Whether it only reads, for people; the other one does the server's own work, which may take long.
    init(uri: String, name: String, breaker: Locked<ConnectionBreaker>, isReadOnly: Bool = true) {
        self.uri = uri
        self.isReadOnly = isReadOnly
        self.breaker = breaker
        executor = SerialQueueExecutor(label: "hapax.postgres.reader.\(name)")
    }

    func close() {
        connection = nil
        isClosed = true
    }

    /// - Throws: ``StoreError/tooHeavy`` if it takes longer.
    func query(_ sql: String, _ parameters: [String], within time: Duration) throws(StoreError) -> [[String?]] {
        try withTransaction(within: time) { (connection) throws(PostgresError) in try connection.query(sql, parameters) }
    }

    /// See ``EventReader/compare(_:)``.
    func compare(_ records: [EventRecord], within time: Duration) throws(StoreError) -> [Bool?] {
        let end = ContinuousClock.now + time
        return try withTransaction(within: time) { (connection) throws(PostgresError) in
            try PostgresComparison.run(records, connection, until: end)
        }
    }

    /// As many events as `bytes` of properties hold, at least one if there is any; a statement that took too long gives what it had by then.
    ///
    /// - Returns: Whether there may be more, too.
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

    /// All of it in one transaction.
    func write(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) {
        try withTransaction(within: Self.longest) { (connection) throws(PostgresError) in
            for statement in statements { _ = try connection.query(statement.sql, statement.parameters) }
        }
    }

    /// A transaction that sees every row: a statement that waits for a month to be made would look for the month's rows where they lay before,
    /// had it not waited for the lock first.
    private func withTransaction<Value>(
        within time: Duration, _ body: (PostgresConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        let milliseconds = Int64(time / .milliseconds(1))
        // To PostgreSQL 0 means no limit at all.
        guard milliseconds > 0 else { throw .tooHeavy }
        return try withConnection { (connection) throws(PostgresError) in
            do throws(PostgresError) {
                try connection.execute(
                    "BEGIN; SET LOCAL statement_timeout = \(milliseconds); LOCK TABLE events IN ACCESS SHARE MODE")
                let value = try body(connection)
                // What was given up half read has ended its transaction already.
                if isReadOnly { try connection.execute("COMMIT") } else { try connection.commit() }
                return value
            } catch {
                if !connection.isBroken { try? connection.execute("ROLLBACK") }
                throw error
            }
        }
    }

    private func withConnection<Value>(_ body: (PostgresConnection) throws(PostgresError) -> Value) throws(StoreError) -> Value {
        guard !isClosed else { throw .unavailable("the store is closed") }
        // One that was lost while it rested is replaced: nothing had been asked of it. What writes is not tried again here.
        for isLast in [connection == nil, true] {
            let connection: PostgresConnection
            if let known = self.connection { connection = known } else { connection = try connect() }
            self.connection = connection
            do throws(PostgresError) {
                return try body(connection)
            } catch {
                if connection.isBroken { self.connection = nil }
                // https://www.postgresql.org/docs/current/errcodes-appendix.html: query_canceled.
                if error.sqlState == "57014" { throw .tooHeavy }
                guard !isLast, self.connection == nil, isReadOnly else { throw StoreError(error) }
            }
        }
        throw .unavailable("the connection was lost")
    }

    /// How long one statement of the server's own work may take.
    static let longest = Duration.seconds(60 * 60)

    private func connect() throws(StoreError) -> PostgresConnection {
        let connection = try PostgresConnection.open(
            uri, breaker, deadline: isReadOnly ? ServerLimits.heavyRead + .seconds(5) : Self.longest)
        // Parallel workers would take the processors from ingest; text in UTC is what the answers hold. A day's users are grouped by hash: the
        // planner would rather sort all of their rows on disk.
        let settings = """
            SET default_transaction_read_only = \(isReadOnly ? "on" : "off"); SET DateStyle = 'ISO'; SET TimeZone = 'UTC';
            SET max_parallel_workers_per_gather = 0; SET jit = off; SET work_mem = '32MB'; SET enable_sort = off;
            SET idle_in_transaction_session_timeout = '60s'
            """
        try translating { () throws(PostgresError) in try connection.execute(settings) }
        return connection
    }
}
