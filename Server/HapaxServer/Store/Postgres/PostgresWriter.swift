import HapaxModel

/// One session that commits groups, on a queue of its own. Connects when it is needed and again after the connection was lost.
actor PostgresWriter {
    private let options: PostgresEventStore.Options
    private let reported: Locked<Int64>
    private let executor: SerialQueueExecutor
    private var session: PostgresLink
    /// When the clock, and the settings that a session cannot pin, were last checked, and on which connection.
    private var checkedAt = ContinuousClock.now
    private weak var checked: PostgresConnection?

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(uri: String, number: Int, options: PostgresEventStore.Options, breaker: Locked<ConnectionBreaker>, reported: Locked<Int64>) {
        self.reported = reported
        self.options = options
        executor = SerialQueueExecutor(label: "hapax.postgres.\(number)")
        session = PostgresLink(uri: uri, breaker: breaker, deadline: options.answerDeadline) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                // The look-up must use the index, whatever the statistics say. The timeouts end every wait. Read committed lets the look-up after an
                // INSERT see what other sessions have committed meanwhile.
                try connection.execute(
                    """
                    SET application_name = '\(Self.applicationName)'; SET enable_seqscan = off; SET statement_timeout = \(Int64(ServerLimits.commit / .milliseconds(1))); SET idle_in_transaction_session_timeout = '60s'; SET jit = off;
                    SET default_transaction_isolation = 'read committed'
                    """)
                try PostgresSettings.pin(connection)
                for statement in Statement.all { try connection.prepare(statement.name, statement.sql) }
                for month in try PostgresPartitions.readable(connection) {
                    try connection.prepare(Self.probe(of: month), Self.probeSQL(of: month))
                }
            }
        }
    }

    func close() {
        session.close()
    }

    /// See ``EventStore/commit(_:writer:)``.
    ///
    /// The fast way: look up which ids are stored, then COPY the others, since COPY fails on a stored id. It waits for the database three times:
    /// for the look-up, BEGIN and the books, for COPY to begin, and for COPY and COMMIT. The look-up is not part of the transaction: its locks on months
    /// would hold up a month that is being made, and that month would hold up the group.
    func commit(_ group: StoreGroup) throws(StoreError) -> [EventKey: Int64] {
        let (begun, found, books) = try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            try check(connection)
            let (found, books) = try undoing(connection) { () throws(PostgresError) in
                let (found, rows) = try lookUp(
                    group.records.map(\.key), group.lookups, connection,
                    then: [(Statement.begin, [])] + PostgresBooks.opening(group.reports))
                return (found, try open(group.reports, rows, connection))
            }
            return (connection, found, books)
        }
        let new = found.isEmpty ? group.records : group.records.filter { found[$0.key] == nil }
        return try session.use { (connection) throws(StoreError) in
            // Another connection has neither begun the transaction nor been checked.
            guard connection === begun else { throw .unavailable("the connection was lost") }
            return try undoing(connection) { () throws(PostgresError) in
                do throws(PostgresError) {
                    let update = books.update(group.entries(found: found))
                    if new.isEmpty { try connection.commit(after: update) } else { try copy(new, group.batches, connection, after: update) }
                    return found
                } catch  where error.kind == .statement && error.sqlState == "23505" {
                    // Another session stored one of these ids after our look-up. Nothing of the group is stored; INSERT waits for that session.
                    try connection.execute("ROLLBACK")
                    return try insert(group, connection)
                }
            }
        }
    }

    /// See ``EventStore/compare(_:writer:)``. In a transaction, because the comparison needs savepoints.
    func compare(_ records: [EventRecord]) throws(StoreError) -> [Bool?] {
        let end = ContinuousClock.now + ServerLimits.shortRead
        return try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            try check(connection)
            return try undoing(connection) { () throws(PostgresError) in
                try connection.execute("BEGIN; SET LOCAL statement_timeout = \(Int64(ServerLimits.shortRead / .milliseconds(1)))")
                let same = try PostgresComparison.run(records, connection, until: end)
                try connection.execute("ROLLBACK")
                return same
            }
        }
    }

    /// Rolls back what failed; a connection on which that fails, too, is given up.
    private func undoing<Value>(_ connection: PostgresConnection, _ body: () throws(PostgresError) -> Value) throws(StoreError) -> Value {
        do throws(PostgresError) { return try body() } catch {
            // Read-only: after a failover another host may be the one to write to. A new connection asks for the months again, if one is gone.
            if ["25006", "42P01", "42501"].contains(error.sqlState) || (try? connection.execute("ROLLBACK")) == nil { connection.giveUp() }
            throw StoreError(error)
        }
    }

    /// Locks the installs' books; new installs are added first.
    ///
    /// - Parameter rows: Those that were found.
    private func open(
        _ reports: [InstallReport], _ rows: PostgresRows?, _ connection: PostgresConnection
    ) throws(PostgresError) -> PostgresBooks.Locked {
        guard let rows, !reports.isEmpty else { return PostgresBooks.Locked() }
        let books = PostgresBooks.Locked(rows)
        guard books.count < reports.count else { return books }
        let all = PostgresBooks.opened(try connection.pipeline([PostgresBooks.adding(reports)])).map { PostgresBooks.Locked($0) } ?? books
        guard all.count == reports.count else {
            throw PostgresError(kind: .statement, sqlState: nil, summary: "the table of installs did not take every row")
        }
        return all
    }

    private func copy(
        _ records: [RowKey], _ batches: [[UInt8]], _ connection: PostgresConnection, after update: String
    ) throws(PostgresError) {
        let stored = try connection.copyIn(update + Self.copyAndCommit, PostgresCopy.bytes(records, in: batches), commits: true)
        // A foreign trigger may swallow rows; then nothing of the group may be reported as stored.
        guard stored == records.count else {
            throw PostgresError(kind: .statement, sqlState: nil, summary: "the table took \(stored) of \(records.count) rows")
        }
    }

    private static let copyAndCommit = "\(PostgresCopy.statement()); COMMIT"

    /// The slower way, for a race with another session: the unique key decides row by row.
    private func insert(_ group: StoreGroup, _ connection: PostgresConnection) throws(PostgresError) -> [EventKey: Int64] {
        let arrays = PostgresEventColumn.allCases.map { $0.array(group.records, in: group.batches) }
        let begun = try connection.pipeline([[(Statement.begin, [])] + PostgresBooks.opening(group.reports)])
        let books = try open(group.reports, PostgresBooks.opened(begun), connection)
        let inserted = try connection.pipeline([[(Statement.insert, arrays)]]).last
        var new: Set<EventKey> = []
        for row in 0..<(inserted?.count ?? 0) {
            if let key = inserted?.key(row) { new.insert(key) }
        }
        // A new statement sees what the others committed while the INSERT waited for them (read committed).
        let (found, _) = try lookUp(group.records.map(\.key).filter { !new.contains($0) }, group.lookups, connection)
        // If a row was neither inserted nor found, nothing of the group may be reported as stored.
        guard group.records.allSatisfy({ new.contains($0.key) || found[$0.key] != nil }) else {
            throw PostgresError(kind: .statement, sqlState: nil, summary: "the table did not take every row")
        }
        try connection.commit(after: books.update(group.entries(found: found)))
        return found
    }

    /// Which of a group's keys are stored, with their fingerprints.
    ///
    /// Month by month, so that each statement searches one partition: one old id must not make a whole group search all partitions between. A
    /// statement that waited while a month was made looks for the month's rows in DEFAULT and misses them. For keys that are to be stored the
    /// unique key shows that; keys that are only looked up are probed twice.
    ///
    /// - Parameter others: Keys that are only looked up.
    /// - Parameter next: Statements to send in the same pipeline.
    /// - Returns: Also the books, if these end with ``PostgresBooks/opening(_:)``.
    private func lookUp(
        _ keys: [EventKey], _ others: [EventKey], _ connection: PostgresConnection, then next: PostgresConnection.Statements = []
    ) throws(PostgresError) -> (found: [EventKey: Int64], books: PostgresRows?) {
        let probes = Self.probes(keys + others, connection) + Self.probes(others, connection)
        let answers = try connection.pipeline([probes, next].filter { !$0.isEmpty })
        var found: [EventKey: Int64] = [:]
        var wanted: Set<EventKey> = []
        for rows in answers.prefix(probes.count) where rows.count > 0 {
            // Other projects may have stored the same ids.
            if wanted.isEmpty { wanted = Set(keys + others) }
            for row in 0..<rows.count {
                if let key = rows.key(row), wanted.contains(key), let fingerprint = rows.bytes(row, 2) {
                    found[key] = Int64(bigEndian: fingerprint.loadUnaligned(as: Int64.self))
                }
            }
        }
        return (found, PostgresBooks.opened(answers))
    }

    /// A month's own table is asked by a plan that is kept: to plan over all months takes longer than the look-up itself, and a plan over all that is
    /// kept would lock all.
    private static func probes(_ keys: [EventKey], _ connection: PostgresConnection) -> PostgresConnection.Statements {
        ProbeParts(keys).parts.map { part in
            let ids = PostgresArray.bytes(part.keys, oid: 2950) { $1.appendField($0.id) }
            let table = part.month.map { probe(of: $0.partition) }
            if let table, connection.prepared.contains(table) { return (table, [ids]) }
            return (probeSQL, [ids, parameter(part.buckets.lowerBound), parameter(part.buckets.upperBound)])
        }
    }

    private static func probe(of table: String) -> String { "hapax_probe_\(table)" }

    static func probeSQL(of table: String) -> String {
        "SELECT event_id, project_id, fingerprint FROM \(table) WHERE event_id = ANY ($1::uuid[])"
    }

    private static func parameter(_ value: Int32) -> [UInt8] {
        withUnsafeBytes(of: value.bigEndian) { Array($0) }
    }

    /// The name by which ``PostgresSQLStore/clock()`` finds the sessions whose transactions may still store something.
    static let applicationName = "hapax-server writer"

    /// Checks what pinning a session does not ensure, on a new connection and again after a while.
    private func check(_ connection: PostgresConnection) throws(StoreError) {
        guard checked !== connection || checkedAt + options.durabilityRecheck <= .now else { return }
        do throws(StoreError) {
            if !options.unsafeAllowNonDurableStore { try PostgresSettings.checkDurability(connection) }
            try PostgresSettings.checkClock(connection, reported: reported.withLock { $0 })
        } catch {
            // It has pinned what it found; the next one finds what has been mended.
            connection.giveUp()
            throw error
        }
        (checked, checkedAt) = (connection, .now)
    }

    static let probeSQL = """
        SELECT event_id, project_id, fingerprint FROM events
        WHERE event_id = ANY ($1::uuid[]) AND bucket >= $2::int4 AND bucket <= $3::int4
        """

    private enum Statement {
        static let begin = "hapax_begin"
        static let insert = "hapax_insert"

        static let all =
            [
                (name: begin, sql: "BEGIN"),
                (
                    name: insert,
                    sql: """
                    INSERT INTO events (\(PostgresEventColumn.list))
                    SELECT * FROM unnest(\(PostgresEventColumn.allCases.enumerated().map { "$\($0 + 1)::\($1.type.name)[]" }.joined(separator: ", ")))
                    ON CONFLICT (event_id, project_id, bucket) DO NOTHING RETURNING event_id, project_id
                    """
                ),
            ] + PostgresBooks.statements
    }
}

extension PostgresRows {
    /// The key in the first two columns of a binary row.
    func key(_ row: Int) -> EventKey? {
        guard let id = bytes(row, 0).flatMap({ EventID(bytes: $0) }), let project = bytes(row, 1), project.count == 4 else { return nil }
        return EventKey(id: id, projectID: Int32(bigEndian: project.loadUnaligned(as: Int32.self)))
    }
}
