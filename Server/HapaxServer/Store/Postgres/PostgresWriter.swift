import HapaxModel

/// One session that commits groups, on a queue of its own. Connects when it is needed and again after the connection was lost.
actor PostgresWriter {
    private let uri: String
    private let options: PostgresEventStore.Options
    private let breaker: Locked<ConnectionBreaker>
    private let told: Locked<Int64>
    private let executor: SerialQueueExecutor
    private var connection: PostgresConnection?
    /// When what a session cannot pin was looked at.
    private var checkedAt = ContinuousClock.now

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(uri: String, number: Int, options: PostgresEventStore.Options, breaker: Locked<ConnectionBreaker>, told: Locked<Int64>) {
        self.told = told
        self.uri = uri
        self.breaker = breaker
        self.options = options
        executor = SerialQueueExecutor(label: "hapax.postgres.\(number)")
    }

    func close() {
        connection = nil
    }

    /// See ``EventStore/commit(_:writer:)``.
    ///
    /// The fast way: look which ids are there, COPY the rest. A COPY must hold no id that is there. It waits for the database three times: for
    /// the look-up and the beginning of the transaction, for COPY to begin, and for COPY and COMMIT. The look-up is no part of the transaction,
    /// whose locks would keep a month from being made, and the other way round.
    func commit(_ group: StoreGroup) throws(StoreError) -> [EventKey: Int64] {
        let (connection, found) = try asking { (connection) throws(PostgresError) in
            let begin: PostgresConnection.Statements = [(Statement.begin, [])]
            return try lookUp(group.records.map(\.key), group.lookups, connection, then: begin + Self.keeping(group.reports))
        }
        self.connection = connection
        do throws(PostgresError) {
            let new = found.isEmpty ? group.records : group.records.filter { found[$0.key] == nil }
            do throws(PostgresError) {
                if new.isEmpty { try connection.commit() } else { try copy(new, group.batches, connection) }
                return found
            } catch  where error.kind == .statement && error.sqlState == "23505" {
                // Another session stored one of these ids after we looked. Nothing of ours is in; the slower way waits for the other.
                try connection.execute("ROLLBACK")
                return try insert(group, connection)
            }
        } catch {
            // Read-only: after a failover another host may be the one to write to.
            if error.sqlState == "25006" { connection.giveUp() }
            if connection.isBroken || (try? connection.execute("ROLLBACK")) == nil { self.connection = nil }
            throw StoreError(error)
        }
    }

    /// See ``EventStore/compare(_:writer:)``. In a transaction, which holds what the comparison gives up.
    func compare(_ records: [EventRecord]) throws(StoreError) -> [Bool?] {
        let end = ContinuousClock.now + ServerLimits.shortRead
        let (connection, same) = try asking { (connection) throws(PostgresError) in
            try connection.execute("BEGIN; SET LOCAL statement_timeout = '5s'")
            let same = try PostgresComparison.run(records, connection, until: end)
            try connection.execute("ROLLBACK")
            return same
        }
        self.connection = connection
        return same
    }

    private func copy(_ records: [RowKey], _ batches: [[UInt8]], _ connection: PostgresConnection) throws(PostgresError) {
        let stored = try connection.copyIn(Self.copyAndCommit, PostgresCopy.bytes(records, in: batches), commits: true)
        // A trigger of somebody's may swallow rows; then nothing here may be called stored.
        guard stored == records.count else {
            throw PostgresError(kind: .statement, sqlState: nil, summary: "the table took \(stored) of \(records.count) rows")
        }
    }

    private static let copyAndCommit = "\(PostgresCopy.statement); COMMIT"

    /// The way that survives a race: the unique key itself decides, row by row.
    private func insert(_ group: StoreGroup, _ connection: PostgresConnection) throws(PostgresError) -> [EventKey: Int64] {
        let arrays = PostgresEventColumn.allCases.map { $0.array(group.records, in: group.batches) }
        let inserted = try connection.pipeline(
            [[(Statement.begin, [])] + Self.keeping(group.reports) + [(Statement.insert, arrays)]]
        ).last
        var new: Set<EventKey> = []
        for row in 0..<(inserted?.count ?? 0) {
            if let key = inserted?.key(row) { new.insert(key) }
        }
        // A new statement sees what the others committed while the INSERT waited for them (read committed).
        let found = try lookUp(group.records.map(\.key).filter { !new.contains($0) }, group.lookups, connection)
        // Neither taken nor there: then nothing here may be called stored.
        guard group.records.allSatisfy({ new.contains($0.key) || found[$0.key] != nil }) else {
            throw PostgresError(kind: .statement, sqlState: nil, summary: "the table did not take every row")
        }
        try connection.commit()
        return found
    }

    /// Which of a group's keys are there, with their fingerprints.
    ///
    /// Month by month, so that each statement looks into one partition: one old id must not make a whole group search all between. A statement
    /// that waited for a month to be made looks for the month's rows where they lay before. The unique key tells that of what is to be stored; what
    /// is only looked for is asked for once more.
    ///
    /// - Parameter others: Keys that are only looked for.
    /// - Parameter next: What is to be sent along.
    private func lookUp(
        _ keys: [EventKey], _ others: [EventKey], _ connection: PostgresConnection, then next: PostgresConnection.Statements = []
    ) throws(PostgresError) -> [EventKey: Int64] {
        let probes = Self.probes(keys + others) + Self.probes(others)
        let answers = try connection.pipeline([probes, next].filter { !$0.isEmpty })
        var found: [EventKey: Int64] = [:]
        var wanted: Set<EventKey> = []
        for rows in answers.prefix(probes.count) where rows.count > 0 {
            // The same ids may be there for other projects.
            if wanted.isEmpty { wanted = Set(keys + others) }
            for row in 0..<rows.count {
                if let key = rows.key(row), wanted.contains(key), let fingerprint = rows.bytes(row, 2) {
                    found[key] = Int64(bigEndian: fingerprint.loadUnaligned(as: Int64.self))
                }
            }
        }
        return found
    }

    private static func probes(_ keys: [EventKey]) -> PostgresConnection.Statements {
        ProbeParts(keys).parts.map { part in
            (
                Statement.probe,
                [
                    PostgresArray.bytes(part.keys, oid: 2950) { $1.appendField($0.id) }, parameter(part.buckets.lowerBound),
                    parameter(part.buckets.upperBound),
                ]
            )
        }
    }

    private static func parameter(_ value: Int32) -> [UInt8] {
        withUnsafeBytes(of: value.bigEndian) { Array($0) }
    }

    private static func keeping(_ reports: [InstallReport]) -> PostgresConnection.Statements {
        guard !reports.isEmpty else { return [] }
        let columns = [
            PostgresArray.bytes(reports, oid: 23) { $1.appendField($0.key.projectID) },
            PostgresArray.bytes(reports, oid: 2950) { $1.appendField($0.key.id) },
            PostgresArray.bytes(reports, oid: 20) { $1.appendField($0.created) },
            PostgresArray.bytes(reports, oid: 20) { $1.appendField($0.acknowledged) },
            PostgresArray.bytes(reports, oid: 20) { $1.appendField($0.word) },
            PostgresArray.bytes(reports, oid: 3802) { $1.appendField(json: $0.held) },
            PostgresArray.bytes(reports, oid: 3802) { $1.appendField(json: $0.gone) },
            PostgresArray.bytes(reports, oid: 3802) { $1.appendField(json: $0.refused) },
        ]
        return [(Statement.installs, columns)]
    }

    // MARK: - Connection

    /// Asks what changes nothing. A session that was lost while it rested is replaced: nothing had been asked of it.
    private func asking<Value>(
        _ body: (PostgresConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> (PostgresConnection, Value) {
        if let rested = connection {
            connection = nil
            do throws(StoreError) {
                try checkAgain(rested)
                return (rested, try translating { () throws(PostgresError) in try body(rested) })
            } catch {
                guard rested.isBroken else { throw error }
            }
        }
        let fresh = try connect()
        return (fresh, try translating { () throws(PostgresError) in try body(fresh) })
    }

    /// By this a session of ours is known whose transaction may still store something, see ``PostgresReports/settled()``.
    static let applicationName = "hapax-server writer"

    private func checkAgain(_ connection: PostgresConnection) throws(StoreError) {
        guard checkedAt + options.durabilityRecheck <= .now else { return }
        try check(connection)
    }

    private func connect() throws(StoreError) -> PostgresConnection {
        let connection = try PostgresConnection.open(uri, breaker, deadline: options.answerDeadline)
        do throws(PostgresError) {
            // The look-up of ids must walk the index, whatever the statistics say, and lock no other month: a generic plan locks all. Nothing may
            // wait for ever. Whatever the database's default: the INSERT's look-up must see what others commit meanwhile.
            try connection.execute(
                """
                SET application_name = '\(Self.applicationName)'; SET enable_seqscan = off; SET plan_cache_mode = force_custom_plan;
                SET statement_timeout = '20s'; SET idle_in_transaction_session_timeout = '60s'; SET jit = off;
                SET default_transaction_isolation = 'read committed'
                """)
            try PostgresSettings.pin(connection)
            for statement in Statement.all { try connection.prepare(statement.name, statement.sql) }
        } catch {
            throw StoreError(error)
        }
        // Behind the pin: what is checked is what stays.
        try check(connection)
        return connection
    }

    private func check(_ connection: PostgresConnection) throws(StoreError) {
        if !options.unsafeAllowNonDurableStore { try PostgresSettings.checkDurability(connection) }
        try PostgresSettings.checkClock(connection, told: told.withLock { $0 })
        checkedAt = .now
    }

    static let probeSQL = """
        SELECT event_id, project_id, fingerprint FROM events
        WHERE event_id = ANY ($1::uuid[]) AND bucket >= $2::int4 AND bucket <= $3::int4
        """

    private enum Statement {
        static let begin = "hapax_begin"
        static let probe = "hapax_probe"
        static let insert = "hapax_insert"
        static let installs = "hapax_installs"

        static let all = [
            (name: begin, sql: "BEGIN"), (name: probe, sql: probeSQL),
            (
                name: insert,
                sql: """
                INSERT INTO events (\(PostgresEventColumn.list))
                SELECT * FROM unnest(\(PostgresEventColumn.allCases.enumerated().map { "$\($0 + 1)::\($1.type.name)[]" }.joined(separator: ", ")))
                ON CONFLICT (event_id, project_id, bucket) DO NOTHING RETURNING event_id, project_id
                """
            ),
            (
                name: installs,
                sql: """
                INSERT INTO installs AS i (project_id, install_id, created, acknowledged, word, held, gone, refused)
                SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int8[], $4::int8[], $5::int8[], $6::jsonb[], $7::jsonb[], $8::jsonb[])
                ON CONFLICT (project_id, install_id) DO UPDATE
                SET created = greatest(i.created, excluded.created), acknowledged = greatest(i.acknowledged, excluded.acknowledged),
                    word = greatest(i.word, excluded.word), held = CASE WHEN excluded.word > i.word THEN excluded.held ELSE i.held END,
                    gone = CASE WHEN excluded.word > i.word THEN excluded.gone ELSE i.gone END,
                    refused = CASE WHEN excluded.word > i.word THEN excluded.refused ELSE i.refused END, heard_at = now()
                WHERE excluded.created > i.created OR excluded.acknowledged > i.acknowledged OR excluded.word > i.word
                """
            ),
        ]
    }
}

extension PostgresRows {
    /// The key in the first two columns of a binary row.
    fileprivate func key(_ row: Int) -> EventKey? {
        guard let id = bytes(row, 0).flatMap({ EventID(bytes: $0) }), let project = bytes(row, 1), project.count == 4 else { return nil }
        return EventKey(id: id, projectID: Int32(bigEndian: project.loadUnaligned(as: Int32.self)))
    }
}
