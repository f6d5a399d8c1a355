import HapaxModel
import Logging
import Synchronization
import TestSupport
import Testing

@testable import HapaxServer

/// Months that are made ahead of time, under writers that never stop, on real PostgreSQL.
@Suite("Partitions and their upkeep (I2, I15)", .serialized, .endsWhenItHangs)
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

    private static let home = "SELECT tableoid::regclass::text, count(*) FROM events GROUP BY 1 ORDER BY 1"

    /// Plants rows with version 7 ids of a day.
    private static func plant(_ count: Int, day: Int32, _ uri: String) async throws {
        _ = try await query(
            """
            INSERT INTO events (project_id, event_id, bucket, event, distinct_id, time, fingerprint, properties)
            SELECT 1, (lpad(to_hex(\(day) * 86400000::int8), 12, '0') || '70008' || lpad(to_hex(n + 1000000), 15, '0'))::uuid, \(day), 'planted', 'd', now(), 0,
              '{}'
            FROM generate_series(1, \(count)) n
            """, uri)
    }

    @Test("Upkeep makes months two years ahead; rows of clocks that run further ahead move into their month, each still once")
    func monthsAreMadeAhead() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        let ahead = (1...300).map { Sample.record(Self.id(Sample.day + 800, UInt64($0))) }
        let far = Sample.record(Self.id(47_000, 1))
        #expect(try await store.commit(Sample.group(ahead + [far]), writer: 0).isEmpty)
        try await Self.plant(10_001, day: Sample.day + 800, uri)
        let received = "SELECT min(received_at), max(received_at) FROM events"
        let before = try await Self.query(received, uri)
        #expect(try await Self.query(Self.home, uri) == [["events_default", "10302"]])
        clock.withLock { $0 += 90 }
        try await store.performUpkeep()
        #expect(try await Self.query(Self.home, uri) == [["events_2028_03", "10301"], ["events_default", "1"]])
        #expect(try await store.commit(Sample.group(ahead + [far]), writer: 0).count == 301)
        #expect(try await Self.query(received, uri) == before)
        await store.close()
    }

    @Test(
        "S4: whoever asks while a month is made finds every row of it: an id, a list, an export, a report, a refused event's first copy (I1, I2)"
    )
    func readersMissNothing() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        _ = try await store.projectID(named: "shop")
        // The only month that is due.
        let record = Sample.record(Self.id(Sample.day + 770, 1))
        _ = try await store.commit(Sample.group([record]), writer: 0)
        clock.withLock { $0 += 31 }
        let query = EventQuery(projectID: 1, received: 0..<Int64.max, limit: 10)
        let holder = try PostgresConnection(uri: uri)
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        var (isMade, control) = (false, "")
        // The month's maker gives up after two seconds. On a machine that is slow to start the others it begins anew.
        while !isMade, !Task.isCancelled {
            try holder.execute("BEGIN; LOCK TABLE events_default IN ACCESS SHARE MODE")
            let hasEnded = Atomic(false)
            async let upkeep = {
                defer { hasEnded.store(true, ordering: .releasing) }
                return (try? await store.performUpkeep()) != nil
            }()
            while try await Self.query(waiting, uri) == [["0"]], !hasEnded.load(ordering: .acquiring) {}
            async let unlocked = Self.query("SELECT count(*) FROM events", uri)
            async let found = store.reader.event(record.key)
            let later = ContinuousClock.now + .seconds(60)
            let turns = (QuestionTurn(deadline: later), QuestionTurn(connection: 1, deadline: later))
            async let counted = store.reader.countsByName(projectID: 1, received: 0..<Int64.max, limit: 10, in: turns.0)
            async let listed = store.reader.events(query, in: turns.1)
            async let reported = store.sql.ask("SELECT count(*) FROM events", as: .closing)
            async let known = store.commit(Sample.group([], lookups: [record.key]), writer: 0)
            while try await Self.query("\(waiting) HAVING count(*) >= 7", uri) == [], !hasEnded.load(ordering: .acquiring) {}
            try holder.execute("ROLLBACK")
            isMade = await upkeep
            control = try await unlocked[0][0]
            let (event, names, page, rows, keys) = try await (found, counted, listed, reported, known)
            #expect(event?.id == record.key.id && names.names.values.reduce(0, +) == 1 && page.events.count == 1)
            #expect(rows == [["1"]] && keys.count == 1)
        }
        #expect(control == "0", "a statement without the lock misses it, or nothing was shown here")
        #expect(try await Self.query(Self.home, uri) == [["events_2028_02", "1"]])
        await store.close()
    }

    @Test("A month for which too much was stored stays in DEFAULT and is named, by project; the others are made")
    func crowdedMonthStays() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        _ = try await store.projectID(named: "shop")
        try await Self.plant(PostgresPartitions.maximumMoved + 1, day: Sample.day + 770, uri)
        try await Self.plant(1, day: Sample.day + 800, uri)
        clock.withLock { $0 += 90 }
        for _ in 0..<2 { try await store.performUpkeep() }
        #expect(try await Self.query(Self.home, uri) == [["events_2028_03", "1"], ["events_default", "100001"]])
        #expect(store.crowdedMonths == [CrowdedMonth(month: "2028-02", project: "shop", rows: 100_001)])
        await store.close()
    }

    @Test("Nobody whose ids have a month waits for DEFAULT, whoever holds it: writers and health go on, and upkeep is tried again later")
    func upkeepGivesWay() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        clock.withLock { $0 += 31 }
        let holder = try PostgresConnection(uri: uri)
        try holder.execute("BEGIN; LOCK TABLE events_default IN ACCESS EXCLUSIVE MODE")
        async let upkeep = { (try? await store.performUpkeep()) != nil }()
        for number in 1...50 as ClosedRange<UInt64> {
            #expect(try await store.commit(Sample.group([Sample.record(Sample.id(number))]), writer: 0).isEmpty)
        }
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).count == 1)
        try await store.check()
        let isMade = await upkeep
        #expect(!isMade)
        try holder.execute("ROLLBACK")
        try await store.performUpkeep()
        #expect(try await Self.query("SELECT to_regclass('events_2028_02') IS NOT NULL", uri) == [["t"]])
        await store.close()
    }

    @Test("Half a million rows dated 2099 stop neither upkeep nor a writer: months are made, and events stored meanwhile")
    func farIDsDoNotStopUpkeep() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let clock = Locked(Sample.day)
        let store = try await Self.open(uri) { clock.withLock { $0 } }
        try await Self.plant(500_000, day: 47_000, uri)
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
        for number in 1..<20 {
            turn.store(number, ordering: .releasing)
            if (try? await store.performUpkeep()) != nil { break }
        }
        turn.store(-1, ordering: .releasing)
        #expect(try await writing > 0)
        #expect(try await Self.query("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass", uri) == [["40"]])
        await store.close()
    }

    @Test("Ten years of upkeep by two servers at once: each month is made ahead and holds its events")
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
            _ = try await stores[month % 2].commit(
                Sample.group([Sample.record(Self.id(day, UInt64(month + 1))), Sample.record(Self.id(day + 760, UInt64(month + 1)))]),
                writer: 0)
        }
        #expect(try await Self.query("SELECT count(*) FROM events", uri) == [["240"]])
        #expect(try await Self.query("SELECT count(*) FROM events_default WHERE bucket < \(Sample.day + 3_600)", uri) == [["0"]])
        for store in stores { await store.close() }
    }

    @Test(
        "A clock that jumps by decades makes a bounded number of partitions; a first start by one that was never set is refused",
        arguments: [-400, 0, 46_000, 2_000_000])
    func absurdClockIsBounded(day: Int32) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try Self.open(uri)).close()
        let fresh = try await PostgresCluster.shared.makeDatabase()
        for database in [uri, fresh] {
            guard database == uri || day >= Sample.day else {
                await #expect(throws: StoreError.self) { try await Self.open(database) { day } }
                continue
            }
            let store = try await Self.open(database) { day }
            try await store.performUpkeep()
            #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
            await store.close()
            let count = try await Self.query("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass", database)[0][0]
            #expect(Int(count) ?? .max <= 3 + 2 * (PostgresPartitions.monthsAhead + 1))
        }
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
        try connection.execute("ANALYZE events; SET enable_seqscan = off; SET plan_cache_mode = force_custom_plan")
        try connection.execute("PREPARE probe AS \(PostgresWriter.probeSQL)")
        let bucket = Sample.id(1).bucket
        let plan = try connection.query("EXPLAIN EXECUTE probe('{\(Sample.id(1)),\(Sample.id(2))}', \(bucket), \(bucket))")
            .compactMap { $0[0] }.joined(separator: "\n")
        #expect(plan.contains("events_2026_01_pkey") && !plan.contains("Seq Scan") && !plan.contains("events_2026_02"))
        // The month's own, of which the plan is kept.
        try connection.execute("SET plan_cache_mode = force_generic_plan; PREPARE own AS \(PostgresWriter.probeSQL(of: "events_2026_01"))")
        let kept = try connection.query("EXPLAIN EXECUTE own('{\(Sample.id(1)),\(Sample.id(2))}')").compactMap { $0[0] }.joined(
            separator: "\n")
        #expect(kept.contains("Index Scan using events_2026_01_pkey") && kept.contains("ANY ($1)"))
        await store.close()
    }

    @Test("A month's table that somebody has dropped is not asked again: its ids are stored in DEFAULT")
    func droppedMonthIsForgotten() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await Self.open(uri)
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        try PostgresConnection(uri: uri).execute("DROP TABLE events_2026_01")
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(2))]), writer: 0)
        let rows = try PostgresConnection(uri: uri).query("SELECT tableoid::regclass::text FROM events").compactMap { $0[0] }
        #expect(rows == ["events_default"])
        await store.close()
    }
}
