import HapaxModel
import Logging
import Synchronization
import TestSupport
import Testing

@testable import HapaxServer

/// Months that are made ahead of time, under writers that never stop, on real PostgreSQL.
@Suite("Partitions and their upkeep (I2, I15)", .serialized, .timeLimit(.minutes(3)), .endsWhenItHangs)
struct PartitionTests {
    private static func open(_ uri: String, day: @escaping @Sendable () -> Int32 = { Sample.day }) async throws -> PostgresEventStore {
        try await PostgresEventStore(
            uri: uri, today: day, logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    }

    private static func query(_ sql: String, _ uri: String) async throws -> [[String]] {
        try await PostgresCluster.shared.query(sql, database: uri)
    }

    /// A version 7 id of a day.
    private static func id(_ day: Int32, _ number: UInt64) -> EventID { Sample.id(number, day: day) }

    /// Bounds that meet nothing or are met twice; none if the partitions hold every integer once.
    private static func gaps(_ uri: String) async throws -> [[String]] {
        try await query(
            """
            WITH bounds AS (
              SELECT regexp_match(pg_get_expr(relpartbound, oid), 'FROM \\((.*)\\) TO \\((.*)\\)') AS b
              FROM pg_class WHERE relispartition AND relkind = 'r'
            )
            SELECT l.b[2] FROM bounds l WHERE l.b[2] <> 'MAXVALUE' AND (SELECT count(*) FROM bounds u WHERE u.b[1] = l.b[2]) <> 1
            UNION ALL SELECT 'first' WHERE (SELECT count(*) FROM bounds WHERE b[1] = 'MINVALUE') <> 1
            UNION ALL SELECT 'last' WHERE (SELECT count(*) FROM bounds WHERE b[2] = 'MAXVALUE') <> 1
            """, uri)
    }

    private static let home = "SELECT tableoid::regclass::text FROM events"

    @Test("Upkeep splits the open partition; rows of clocks that run ahead move into their month, each still once")
    func openPartitionIsSplit() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        let ahead = (1...300).map { Sample.record(Self.id(Sample.day + 525, UInt64($0))) }
        let far = Sample.record(Self.id(47_000, 1))
        #expect(try await store.commit(Sample.group(ahead + [far]), writer: 0).isEmpty)
        let received = "SELECT min(received_at), max(received_at) FROM events"
        let before = try await Self.query(received, uri)
        #expect(try await Self.query(Self.home + " GROUP BY 1", uri) == [["events_future"]])
        clock.withLock { $0 += 540 }
        try await store.performUpkeep()
        #expect(try await Self.query(Self.home + " GROUP BY 1 ORDER BY 1", uri) == [["events_2027_06"], ["events_future"]])
        #expect(try await store.commit(Sample.group(ahead + [far]), writer: 0).count == 301)
        #expect(try await Self.query(received, uri) == before)
        #expect(try await Self.gaps(uri) == [] && store.moving == nil)
        await store.close()
    }

    @Test(
        "While rows move their ids are answered retry, also at a server that does not know yet; what was cut off goes on, nothing is there twice (I2)"
    )
    func movingRowsAreNeverDoubled() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        let month = try #require(PostgresPartitions.months(from: Sample.day, count: 5).last)
        let events = (0..<200).map { Sample.event(Self.id(month.buckets.lowerBound + Int32($0 % 28), UInt64($0))) }
        func send(_ events: [[UInt8]], to store: PostgresEventStore) async throws -> [Receipt.Outcome: Int] {
            let writer = GroupCommitWriter(
                store: store, metrics: ServerMetrics(), logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
            async let running: Void = writer.run()
            let outcomes = try await writer.submit(try Sample.request(events)).map(\.outcome)
            writer.stop()
            await running
            return Dictionary(outcomes.map { ($0, 1) }, uniquingKeysWith: +)
        }
        #expect(try await send(Array(events[..<150]), to: store) == [.stored: 150])
        let other = try await Self.open(uri) { clock.withLock { $0 } }
        // A server that dies behind the first step, with a third of the rows moved.
        let dying = try PostgresConnection(uri: uri)
        try dying.execute(
            """
            ALTER TABLE events_future ADD CONSTRAINT \(month.constraint) CHECK (bucket >= \(month.buckets.upperBound)) NOT VALID;
            CREATE TABLE \(month.name) (LIKE events INCLUDING DEFAULTS INCLUDING INDEXES, CONSTRAINT hapax_month CHECK
              (bucket >= \(month.buckets.lowerBound) AND bucket < \(month.buckets.upperBound)));
            WITH moved AS (DELETE FROM events_future WHERE ctid IN (SELECT ctid FROM events_future LIMIT 50) RETURNING *)
              INSERT INTO \(month.name) SELECT * FROM moved
            """)
        // Neither server has heard of it. All is sent again, and 50 for the first time.
        for store in [store, other] {
            #expect(try await send(events + [Sample.event(Sample.id(1))], to: store)[.retry] ?? 0 >= 100)
            #expect(store.moving == month.buckets)
            #expect(try await send(events, to: store) == [.retry: 200])
        }
        // A refused event whose first copy is on its way is no refusal, at a server that has heard of nothing (I1).
        let third = try await Self.open(uri) { clock.withLock { $0 } }
        _ = try await Self.query("ALTER TABLE events_future RENAME CONSTRAINT \(month.constraint) TO unheard_of", uri)
        try await third.refresh()
        _ = try await Self.query("ALTER TABLE events_future RENAME CONSTRAINT unheard_of TO \(month.constraint)", uri)
        let long = (0..<50).map {
            Sample.event(Self.id(month.buckets.lowerBound + Int32($0 % 28), UInt64($0)), name: String(repeating: "x", count: 201))
        }
        #expect(third.moving == nil)
        #expect(try await send(long, to: third) == [.retry: 50])
        await third.close()
        clock.withLock { $0 += 31 }
        try await other.performUpkeep()
        try await store.refresh()
        #expect(store.moving == nil)
        #expect(try await send(long, to: store) == [.duplicate: 50])
        #expect(try await send(events, to: store) == [.duplicate: 150, .stored: 50])
        #expect(try await Self.query("SELECT count(*), count(DISTINCT event_id) FROM events", uri) == [["201", "201"]])
        #expect(try await Self.gaps(uri) == [])
        await store.close()
        await other.close()
    }

    @Test("Control: without the CHECK the same rows get in twice")
    func withoutTheCheckRowsAreDoubled() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await Self.open(uri)
        let month = try #require(PostgresPartitions.months(from: Sample.day, count: 5).last)
        let record = Sample.record(Self.id(month.buckets.lowerBound, 1))
        _ = try await store.commit(Sample.group([record]), writer: 0)
        _ = try await Self.query("CREATE TABLE aside AS SELECT * FROM events; DELETE FROM events", uri)
        #expect(try await store.commit(Sample.group([record]), writer: 0).isEmpty)
        #expect(try await Self.query("SELECT count(*) FROM (TABLE events UNION ALL TABLE aside) a", uri) == [["2"]])
        await store.close()
    }

    @Test("Half a million rows dated 2099 stop neither upkeep nor a writer: months are made, and events stored meanwhile")
    func farIDsDoNotStopUpkeep() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        _ = try await Self.query(
            """
            INSERT INTO events (project_id, event_id, bucket, event, distinct_id, time, fingerprint, properties)
            SELECT 1, gen_random_uuid(), 47000 + n % 400, 'e', 'd', now(), 0, '{}' FROM generate_series(1, 500000) n
            """, uri)
        clock.withLock { $0 += 365 }
        let turn = Atomic(0)
        async let writing = {
            var (stored, number) = (0, UInt64(1))
            while true {
                let began = turn.load(ordering: .acquiring)
                if began < 0 || Task.isCancelled { return stored }
                _ = try await store.commit(Sample.group([Sample.record(Sample.id(number))]), writer: 0)
                // Begun and ended within one turn of upkeep.
                if began > 0, turn.load(ordering: .acquiring) == began { stored += 1 }
                number += 1
            }
        }()
        // On a busy machine it gives way to the writer, and goes on with its next turn; what it comes to is looked at below.
        for number in 1..<20 {
            turn.store(number, ordering: .releasing)
            if (try? await store.performUpkeep()) != nil { break }
        }
        turn.store(-1, ordering: .releasing)
        #expect(try await writing > 0)
        #expect(try await Self.gaps(uri) == [])
        #expect(try await Self.query("SELECT count(*) FROM event_partitions", uri) == [["19"]])
        await store.close()
    }

    @Test("Upkeep that somebody's long transaction forbids neither stops a start nor holds up writers, health or itself later")
    func upkeepGivesWay() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try Self.open(uri)).close()
        let reader = try PostgresConnection(uri: uri)
        try reader.execute("BEGIN; SELECT count(*) FROM events")
        let store = try await Self.open(uri) { Sample.day + 200 }
        await #expect(throws: StoreError.self) { try await store.performUpkeep() }
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
        try reader.execute("ROLLBACK")
        try await store.performUpkeep()
        #expect(try await Self.gaps(uri) == [])
        await store.close()
    }

    @Test("Readiness is answered while upkeep works")
    func readinessDoesNotWaitForUpkeep() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        // Upkeep waits, for as long as it takes, for whoever looks at the table that it validates.
        let blocker = try PostgresConnection(uri: uri)
        let month = try #require(PostgresPartitions.months(from: Sample.day, count: 5).last)
        try blocker.execute("CREATE TABLE \(month.name) (a int); BEGIN; LOCK TABLE \(month.name) IN ACCESS EXCLUSIVE MODE")
        clock.withLock { $0 += 31 }
        async let upkeep: Void = store.performUpkeep()
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        while try await Self.query(waiting, uri) == [["0"]] {}
        try await store.check()
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
        try blocker.execute("DROP TABLE \(month.name); COMMIT")
        _ = try? await upkeep
        try await store.performUpkeep()
        #expect(try await Self.gaps(uri) == [])
        await store.close()
    }

    @Test("Ten years of upkeep by two servers at once: each month is made ahead, holds its events, and there is no gap")
    func tenYearsOfUpkeep() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let stores = [try await Self.open(uri) { clock.withLock { $0 } }, try await Self.open(uri) { clock.withLock { $0 } }]
        for month in 0..<120 {
            let day = Sample.day + Int32(month) * 30
            clock.withLock { $0 = day }
            let failures = await withTaskGroup(of: Bool.self) { group in
                for store in stores { group.addTask { (try? await store.performUpkeep()) == nil } }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(failures < 2)
            _ = try await stores[month % 2].commit(Sample.group([Sample.record(Self.id(day, UInt64(month + 1)))]), writer: 0)
        }
        #expect(try await Self.query("SELECT count(*) FROM events", uri) == [["120"]])
        #expect(try await Self.query(Self.home + " WHERE tableoid = 'events_future'::regclass", uri) == [])
        #expect(try await Self.gaps(uri) == [])
        for store in stores { await store.close() }
    }

    @Test(
        "A clock that jumps by decades makes a bounded number of partitions; one before 2024 makes none before",
        arguments: [-400, 0, 46_000, 2_000_000])
    func absurdClockIsBounded(day: Int32) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try Self.open(uri)).close()
        let fresh = try await PostgresCluster.shared.makeDatabase()
        for database in [uri, fresh] {
            let store = try await Self.open(database) { day }
            try await store.performUpkeep()
            #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
            await store.close()
            let count = try await Self.query("SELECT count(*) FROM event_partitions", database)[0][0]
            #expect(Int(count) ?? .max <= 7 + PostgresPartitions.maximumNewMonths)
            #expect(try await Self.gaps(database) == [])
        }
    }

    @Test("A server that starts while another still makes the first partitions, however slowly, waits for them")
    func firstPartitionsAreWaitedFor() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try Self.open(uri)).close()
        let parts = try await Self.query("SELECT name FROM event_partitions", uri).map { $0[0] }
        _ = try await Self.query("DROP TABLE \(parts.joined(separator: ", ")); DELETE FROM event_partitions", uri)
        let slow = try PostgresConnection(uri: uri)
        try slow.execute("BEGIN; LOCK TABLE event_partitions IN EXCLUSIVE MODE")
        let hasStarted = Atomic(false)
        async let opened = {
            defer { hasStarted.store(true, ordering: .releasing) }
            return try await Self.open(uri)
        }()
        // Held for longer than a lock on `events` may be waited for.
        let waiting = """
            SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
                AND clock_timestamp() - query_start > 2 * interval '\(PostgresPartitions.lockTimeout)'
            """
        while try await Self.query(waiting, uri) == [["0"]], !hasStarted.load(ordering: .acquiring) {}
        try slow.execute("ROLLBACK")
        let store = try await opened
        #expect(try await Self.query("SELECT count(*) FROM event_partitions WHERE is_open", uri) == [["1"]])
        await store.close()
    }

    // MARK: - Looking up

    @Test("A look-up is split by months, so that one old id costs its own month; beyond sixteen it is one over all")
    func lookupIsSplitByMonths() {
        func keys(_ days: [Int32]) -> [EventKey] { days.map { EventKey(id: Self.id($0, 1), projectID: 1) } }
        let undated = EventKey(id: .derived(name: "a", key: "b"), projectID: 1)
        let parts = ProbeParts(keys([20_454, 20_454, 20_484, 19_723]) + [undated]).parts
        #expect(parts.map(\.keys.count) == [1, 1, 3])
        #expect(parts.dropFirst().map(\.buckets) == [19_723...19_723, 20_454...20_484])
        let sixteen = ProbeParts(keys((0..<16).map { 20_000 + $0 * 31 })).parts
        #expect(sixteen.count == 16)
        let many = ProbeParts(keys((0..<17).map { 20_000 + $0 * 31 }) + [undated]).parts
        #expect(many.map(\.keys.count) == [1, 17] && many[1].buckets == 20_000...20_496)
    }

    @Test("A look-up walks the index of the one partition in question, whatever the statistics say")
    func lookupUsesTheIndex() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await Self.open(uri)
        _ = try await store.commit(Sample.group((1...2_000).map { Sample.record(Sample.id($0)) }), writer: 0)
        let connection = try PostgresConnection(uri: uri)
        try connection.execute("ANALYZE events; SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        try connection.execute("PREPARE probe AS \(PostgresWriter.probeSQL)")
        let bucket = Sample.id(1).bucket
        let plan = try connection.query("EXPLAIN EXECUTE probe('{\(Sample.id(1)),\(Sample.id(2))}', \(bucket), \(bucket))")
            .compactMap { $0[0] }.joined(separator: "\n")
        #expect(plan.contains("events_2026_01_pkey") && !plan.contains("Seq Scan") && !plan.contains("events_2026_02"))
        await store.close()
    }
}
