import HapaxModel
import Logging
import Synchronization
import TestSupport
import Testing

@testable import HapaxServer

/// What only PostgreSQL has: settings, schema, partitions.
@Suite("The store in PostgreSQL", .serialized, .endsWhenItHangs)
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
        let group = Sample.group([record])
        try other.copyIn(PostgresCopy.statement(), PostgresCopy.bytes(group.records, in: group.batches))
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
            #expect(try await query("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass", uri) == [["28"]])
            for store in stores { await store.close() }
        }
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

    @Test("A session that was cut while it rested is replaced without a reportVersion: nothing had been asked of it (I15)")
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

}
