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

    /// See ``EventReader/differing(_:)``.
    func differing(_ records: [EventRecord], within time: Duration) throws(StoreError) -> Set<Int> {
        try withTransaction(within: time) { (connection) throws(PostgresError) in
            var differing = Set(records.indices)
            let group = StoreGroup(records: records)
            for part in ProbeParts(records.map(\.key)).parts {
                let places = records.indices.filter { part.buckets.contains(records[$0].key.id.bucket) }
                let columns: [PostgresEventColumn] = [.eventID, .projectID, .event, .distinctID, .properties]
                let rows = try connection.query(
                    Self.same,
                    binary: [PostgresArray.bytes(places, oid: 23) { $1.appendField(Int32($0)) }]
                        + columns.map { column in column.array(places.map { group.records[$0] }, in: group.batches) }
                        + [part.buckets.lowerBound, part.buckets.upperBound].map { withUnsafeBytes(of: $0.bigEndian) { Array($0) } })
                for row in 0..<rows.count {
                    if let place = rows.bytes(row, 0) { differing.remove(Int(Int32(bigEndian: place.loadUnaligned(as: Int32.self)))) }
                }
            }
            return differing
        }
    }

    /// One index look-up for each event, in one month.
    private static let same = """
        SELECT n.place FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::text[], $6::jsonb[])
          AS n (place, event_id, project_id, event, distinct_id, properties)
        CROSS JOIN LATERAL (
          SELECT event, distinct_id, properties FROM events
          WHERE event_id = n.event_id AND project_id = n.project_id AND bucket >= $7::int4 AND bucket <= $8::int4 LIMIT 1
        ) AS e
        WHERE e.event = n.event AND e.distinct_id = n.distinct_id AND e.properties = n.properties
        """

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
