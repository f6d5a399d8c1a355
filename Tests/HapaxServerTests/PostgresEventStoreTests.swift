import HapaxModel
import Logging
import Synchronization
import TestSupport
import Testing

@testable import HapaxServer

/// What only PostgreSQL has: settings, schema, partitions.
@Suite("The store in PostgreSQL", .serialized)
struct PostgresEventStoreTests {
    private func open(
        _ uri: String, unsafe: Bool = false, day: @escaping @Sendable () -> Int32 = { Sample.day }, deadline: Duration = .seconds(30)
    ) async throws -> PostgresEventStore {
        var options = PostgresEventStore.Options()
        options.unsafeAllowNonDurableStore = unsafe
        options.answerDeadline = deadline
        return try await PostgresEventStore(
            uri: uri, options: options, today: day, logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    }

    private func query(_ sql: String, _ uri: String) async throws -> [[String]] {
        try await PostgresCluster.shared.query(sql, database: uri)
    }

    @Test("Numbers at the edge of the limits are stored, not refused by the database", arguments: ["1e308", "-1e-1000", "0e1000", "1e+0"])
    func extremeNumbersAreStored(number: String) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        let text = #"{"event_id":"\#(Sample.id(1))","event":"e","time":1,"distinct_id":"d","properties":{"n":\#(number)}}"#
        let scanned = EventScanner.scan(Array(text.utf8)[...])
        #expect(scanned.problem == nil)
        let record = EventRecord(scanned, id: Sample.id(1), projectID: 1, envelope: .init())
        #expect(try await store.commit(Sample.group([record]), writer: 0).isEmpty)
        await store.close()
    }

    @Test("Data that slips past the scanner is refused as data, and the session goes on (D13)")
    func refusedDataLeavesTheSessionUsable() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        var bad = Sample.record(Sample.id(1))
        bad.properties = Array(#"{"a":"\u0000"}"#.utf8)[...]
        await #expect(throws: StoreError.dataRefused("22P05")) { try await store.commit(Sample.group([bad]), writer: 0) }
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(2))]), writer: 0).isEmpty)
        await store.close()
    }

    @Test("A race between look-up and COPY falls back to the INSERT, and finds the other's row")
    func raceFallsBackToInsert() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        // Another session holds an uncommitted row of the same key: the look-up misses it, the COPY waits for it and collides.
        let other = try PostgresConnection(uri: uri)
        let record = Sample.record(Sample.id(1), properties: ["amount": 1])
        try other.execute("BEGIN")
        try other.copyIn(PostgresCopy.statement, PostgresCopy.bytes([record]))
        async let found = store.commit(
            Sample.group([Sample.record(Sample.id(1)), Sample.record(Sample.id(2))]), writer: 0)
        // The store's session is waiting for ours when PostgreSQL says so.
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()"
        while try await query(waiting, uri) == [["0"]] {}
        try other.execute("COMMIT")
        #expect(try await found == [record.key: record.fingerprint])
        #expect(try await query("SELECT count(*) FROM events", uri) == [["2"]])
        await store.close()
    }

    @Test("Two servers that start at once both find the schema (and migrate it once)")
    func concurrentStartsMigrateOnce() async throws {
        for _ in 0..<3 {
            let uri = try await PostgresCluster.shared.makeDatabase()
            let stores = try await withThrowingTaskGroup(of: PostgresEventStore.self) { group in
                for _ in 0..<4 { group.addTask { try await open(uri) } }
                var stores: [PostgresEventStore] = []
                for try await store in group { stores.append(store) }
                return stores
            }
            #expect(try await query("SELECT name FROM hapax_migrations", uri) == PostgresSchema.migrations.map { [$0.name] })
            #expect(try await query("SELECT count(*) FROM event_partitions WHERE is_open", uri) == [["1"]])
            for store in stores { await store.close() }
        }
    }

    @Test("A server that starts while another still makes the first partitions, however slowly, waits for them")
    func firstPartitionsAreWaitedFor() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try open(uri)).close()
        let parts = try await query("SELECT name FROM event_partitions", uri).map { $0[0] }
        _ = try await query("DROP TABLE \(parts.joined(separator: ", ")); DELETE FROM event_partitions", uri)
        let slow = try PostgresConnection(uri: uri)
        try slow.execute("BEGIN; LOCK TABLE event_partitions IN EXCLUSIVE MODE")
        let hasStarted = Atomic(false)
        async let opened = {
            defer { hasStarted.store(true, ordering: .releasing) }
            return try await open(uri)
        }()
        // Held for longer than a lock on `events` may be waited for.
        let waiting = """
            SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
                AND clock_timestamp() - query_start > 2 * interval '\(PostgresPartitions.lockTimeout)'
            """
        while try await query(waiting, uri) == [["0"]], !hasStarted.load(ordering: .acquiring) {}
        try slow.execute("ROLLBACK")
        let store = try await opened
        #expect(!store.needsUpkeep)
        #expect(try await query("SELECT count(*) FROM event_partitions WHERE is_open", uri) == [["1"]])
        await store.close()
    }

    @Test("A database that acknowledges before it is durable is refused, unless unsafe is asked for (I4)")
    func unsafeSettingsAreRefused() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let name = String(uri.split(separator: "/").last ?? "")
        _ = try await query("ALTER DATABASE \(name) SET synchronous_commit = off", uri)
        let error = await #expect(throws: StoreError.self) { try await open(uri) }
        #expect(error?.description.contains("synchronous_commit") == true)
        await (try open(uri, unsafe: true)).close()
    }

    @Test("Upkeep splits the open partition; rows that clocks running ahead put there move into their month, each still once (I2)")
    func upkeepSplitsTheOpenPartition() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await open(uri, day: { clock.withLock { $0 } })
        // An id dated 2027-06, seventeen months ahead.
        let ahead = try #require(EventID("01a62045-2000-7000-8000-000000000001"))
        let record = Sample.record(ahead)
        #expect(try await store.commit(Sample.group([record]), writer: 0).isEmpty)
        let home = "SELECT tableoid::regclass::text FROM events"
        #expect(try await query(home, uri) == [["events_future"]])
        clock.withLock { $0 += 540 }
        try await store.performUpkeep()
        #expect(try await query(home, uri) != [["events_future"]])
        #expect(try await store.commit(Sample.group([record]), writer: 0) == [record.key: record.fingerprint])
        // Together the partitions still hold every integer: no gap where months were skipped.
        let gaps = try await query(
            """
            SELECT count(*) FROM (SELECT pg_get_expr(relpartbound, oid) AS bound FROM pg_class WHERE relispartition AND relkind = 'r') p,
            LATERAL regexp_match(bound, 'TO \\((.*)\\)') AS upper
            WHERE upper[1] <> 'MAXVALUE' AND NOT EXISTS (
              SELECT 1 FROM pg_class n WHERE n.relispartition AND n.relkind = 'r'
              AND pg_get_expr(n.relpartbound, n.oid) LIKE '%FROM (' || trim(both '''' from upper[1]) || ')%'
              OR n.relispartition AND n.relkind = 'r' AND pg_get_expr(n.relpartbound, n.oid) LIKE '%FROM (' || upper[1] || ')%')
            """, uri)
        #expect(gaps == [["0"]])
        try await store.performUpkeep()
        await store.close()
    }

    @Test("The look-up of ids walks the index of the partitions in question, whatever the statistics say")
    func lookupUsesTheIndex() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        _ = try await store.commit(Sample.group((1...2_000).map { Sample.record(Sample.id($0)) }), writer: 0)
        let connection = try PostgresConnection(uri: uri)
        try connection.execute("ANALYZE events; SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        try connection.execute("PREPARE probe AS \(PostgresWriter.probeSQL)")
        let bucket = Sample.id(1).bucket
        let plan = try connection.query("EXPLAIN EXECUTE probe('{\(Sample.id(1)),\(Sample.id(2))}', \(bucket), \(bucket))")
            .map { $0[0] ?? "" }.joined(separator: "\n")
        #expect(plan.contains("Index Cond: ((event_id = ANY ($1))"))
        #expect(!plan.contains("Seq Scan"))
        #expect(plan.contains("Subplans Removed"))
        await store.close()
    }

    @Test("The same id of another project is not taken for this one's, in one group and apart (I9)")
    func lookupKeepsProjectsApart() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        let other = Sample.record(Sample.id(1), project: 2)
        _ = try await store.commit(Sample.group([other]), writer: 0)
        let mine = EventKey(id: Sample.id(1), projectID: 1)
        #expect(try await store.commit(Sample.group([], lookups: [mine]), writer: 0).isEmpty)
        #expect(try await store.commit(Sample.group([], lookups: [mine, other.key]), writer: 0) == [other.key: other.fingerprint])
        await store.close()
    }

    @Test("Connection errors give the reason, never a part of the password or the URI (I14)")
    func errorsKeepSecrets() async throws {
        let cluster = try await PostgresCluster.shared.makeDatabase()
        let port = cluster.split(separator: ":").last?.split(separator: "/").first ?? ""
        for uri in [
            "postgres://u:hunter2@127.0.0.1:1/db", "postgres://u:hunter2@:x/db?nonsense=hunter2", "postgres://u:a@hunter2@127.0.0.1:1/db",
            "postgres://u:a/hunter2@127.0.0.1:1/db", "postgres://u:1/hunter2@127.0.0.1:1/db",
            "postgres://hapax:hunter2@127.0.0.1:\(port)/test1",
            "postgres://hunter2:x@127.0.0.1:\(port)/hunter2", "postgres://u:a?hunter2@127.0.0.1:1/db",
            "postgres://u:a#hunter2@127.0.0.1:1/db",
        ] {
            let error = await #expect(throws: StoreError.self) { try await open(uri) }
            #expect(error?.description.contains("hunter2") == false, "\(uri)")
        }
    }

    @Test("A session that was cut while it rested is replaced without a word: nothing had been asked of it (I15)")
    func restedSessionIsReplaced() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        try await cutSessions(uri)
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(2))]), writer: 0).isEmpty)
        await store.close()
    }

    private func cutSessions(_ uri: String) async throws {
        _ = try await query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()", uri)
    }

    @Test("A database that stops answering is given up after the deadline; the next session works (I15)")
    func silentDatabaseIsGivenUp() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri, deadline: .milliseconds(500))
        // Our statement waits for a lock that is never given up: as good as a server that has stopped.
        let blocker = try PostgresConnection(uri: uri)
        try blocker.execute("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        let group = Sample.group([Sample.record(Sample.id(1))])
        let error = await #expect(throws: StoreError.self) { try await store.commit(group, writer: 0) }
        #expect(error == .unavailable("the database did not answer in time"))
        try blocker.execute("ROLLBACK")
        // Whether the first attempt was committed after all is not known; either way the event is there once now.
        _ = try await store.commit(group, writer: 0)
        #expect(try await query("SELECT count(*) FROM events", uri) == [["1"]])
        await store.close()
    }

    @Test("Settings that turned unsafe while the server ran are met by the next session, which refuses to work (I4)")
    func settingsAreCheckedForEverySession() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(uri)
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        let name = String(uri.split(separator: "/").last ?? "")
        _ = try await query("ALTER DATABASE \(name) SET synchronous_commit = off", uri)
        try await cutSessions(uri)
        let group = Sample.group([Sample.record(Sample.id(2))])
        let error = await #expect(throws: StoreError.self) { try await store.commit(group, writer: 0) }
        guard case .unusable = error else { Issue.record("\(String(describing: error))"); return }
        _ = try await query("ALTER DATABASE \(name) SET synchronous_commit = on", uri)
        #expect(try await store.commit(group, writer: 0).isEmpty)
        await store.close()
    }

    @Test("A database in another encoding is refused: good events would be refused for it", arguments: ["LATIN1", "SQL_ASCII"])
    func otherEncodingsAreRefused(encoding: String) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let name = "encoded_\(encoding.lowercased())_\(UInt32.random(in: 0...UInt32.max))"
        _ = try await query("CREATE DATABASE \(name) TEMPLATE template0 ENCODING '\(encoding)' LC_COLLATE 'C' LC_CTYPE 'C'", uri)
        let other = uri.split(separator: "/").dropLast().joined(separator: "/").replacing("postgres:/", with: "postgres://") + "/\(name)"
        let error = await #expect(throws: StoreError.self) { try await open(other) }
        #expect(error?.description.contains(encoding) == true)
    }

    @Test("Upkeep that somebody's long transaction forbids neither stops a start nor holds up writers for long")
    func upkeepGivesWay() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try open(uri)).close()
        let reader = try PostgresConnection(uri: uri)
        try reader.execute("BEGIN; SELECT count(*) FROM events")
        let store = try await open(uri, day: { Sample.day + 200 })
        #expect(store.needsUpkeep)
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
        try reader.execute("ROLLBACK")
        try await store.performUpkeep()
        await store.close()
    }

    @Test(
        "A clock that jumps by decades makes a bounded number of partitions; one before 2024 makes none before",
        arguments: [-400, 0, 46_000, 2_000_000])
    func absurdClockIsBounded(day: Int32) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try open(uri)).close()
        await (try open(uri, day: { day })).close()
        let fresh = try await PostgresCluster.shared.makeDatabase()
        let store = try await open(fresh, day: { day })
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
        await store.close()
        for database in [uri, fresh] {
            let count = try await query("SELECT count(*) FROM event_partitions", database)[0][0]
            #expect(Int(count) ?? .max <= 7 + PostgresPartitions.maximumNewMonths)
        }
    }
}
