import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// Erasures, retention and admin changes where something else goes wrong.
@Suite("Keeping what is kept beside trouble", .serialized, .endsWhenItHangs)
struct KeepingTests {
    @Test("An erasure that fails for good holds up none that were asked for later (S23)", arguments: StoreUnderTest.Kind.allCases)
    func failingErasureStopsNoOther(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        let users = ["stuck", "free"].enumerated().map { Sample.event(Sample.id(UInt64($0 + 1)), distinctID: $1) }
        let records = users.enumerated().map { number, bytes in
            EventRecord(
                EventScanner.scan(bytes[...]), id: Sample.id(UInt64(number + 1)), projectID: 1, envelope: EventBatch.Envelope())
        }
        _ = try await store.commit(Sample.group(records), writer: 0)
        try await fixture.execute(
            kind == .sqlite
                ? "CREATE TRIGGER keep BEFORE UPDATE ON events WHEN OLD.distinct_id = 'stuck' BEGIN SELECT RAISE(ABORT, 'no'); END"
                : """
                CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
                CREATE TRIGGER keep BEFORE UPDATE ON events FOR EACH ROW WHEN (OLD.distinct_id = 'stuck') EXECUTE FUNCTION keep()
                """)
        try await RunningServer.run(on: store) { server in
            let erasures = Erasures(database: store.sql)
            for user in ["stuck", "free"] { _ = try await erasures.add(project: "shop", user: user) }
            while try await erasures.open().map(\.id) != [1] { await Task.yield() }
        }
    }

    @Test(
        "Erasures are told by the thousand; what is open is found without those that are done (S15)",
        arguments: StoreUnderTest.Kind.allCases)
    func erasuresArePaged(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        let (instant, numbers) =
            kind == .postgres
            ? ("now()", "generate_series(1, 1001)")
            : ("0", "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001) SELECT i FROM n)")
        try await fixture.execute(
            "INSERT INTO erasures (project_id, asked_at, done_at) SELECT 1, \(instant), \(instant) FROM \(numbers) AS n")
        #expect(try await Erasures(database: store.sql).open().isEmpty)
        try await RunningServer.run(on: store) { server in
            func page(_ query: String) async throws -> (count: Int, text: Substring) {
                let answer = try await server.get("/v1/admin/erasures\(query)", key: RunningServer.adminKey)
                let text = String(decoding: answer.body, as: UTF8.self)
                return (text.split(separator: #""erasure":"#).count - 1, text.suffix(20))
            }
            let (first, second) = (try await page(""), try await page("?after=1000"))
            #expect(first.count == 1_000 && first.text.hasSuffix(#"],"next":1000}"#), "\(first)")
            #expect(second.count == 1 && !second.text.contains("next"), "\(second)")
            #expect(try await server.get("/v1/admin/erasures?after=x", key: RunningServer.adminKey).status == 400)
        }
    }

    @Test(
        "What HTTP asks of an admin's connection ends after its time; the command line's does not (S12)",
        arguments: StoreUnderTest.Kind.allCases)
    func dryRunHasATime(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        _ = try await store.commit(Sample.group((1...2_000).map { Sample.record(Sample.id($0)) }), writer: 0)
        let short = Erasures(database: store.sql, patience: .zero)
        await #expect(throws: StoreError.tooHeavy) { _ = try await short.preview(project: "shop", user: "customer-1") }
        await #expect(throws: StoreError.tooHeavy) { _ = try await Retention(database: store.sql, patience: .zero).preview(months: 2) }
        #expect(try await Erasures(database: store.sql).preview(project: "shop", user: "customer-1").rows == 2_000)
        await store.close()
    }

    @Test("A statement that waits holds up those of its own purpose alone: no search a day that closes, no list a look at keys (S3, S12)")
    func purposesWaitForThemselves() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await PostgresEventStore(uri: uri, logger: RecordedLog().logger)
        let later = ContinuousClock.now + .seconds(600)
        let purposes: [Purpose] = [.question(QuestionTurn(deadline: later)), .own, .search(within: .seconds(600)), .closing, .owner]
        let holder = try PostgresConnection(uri: uri)
        // A statement of its own is ended after eight seconds.
        for (number, held) in purposes.enumerated() where number != 1 {
            try holder.execute("SELECT pg_advisory_lock(4711)")
            async let waits = store.sql.ask("SELECT pg_advisory_xact_lock(4711)", as: held)
            while try holder.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").isEmpty {}
            for (other, purpose) in purposes.enumerated() where other != number {
                #expect(try await store.sql.ask("SELECT 1", as: purpose) == [["1"]])
            }
            try await store.sql.change(["UPDATE clock SET accepted = NULL"], as: .owner)
            try await store.check()
            try holder.execute("SELECT pg_advisory_unlock(4711)")
            _ = try await waits
        }
        await store.close()
    }

    @Test("The first change after all connections were cut is made, of whatever kind (S21)")
    func firstChangeAfterARestart() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.openWithMovingClock()
        let (registry, retention, erasures) = (Registry(database: store.sql), Retention(database: store.sql), Erasures(database: store.sql))
        _ = try await store.projectID(named: "shop")
        let changes: [(String, () async throws -> Void)] = [
            ("project", { _ = try await registry.addProject("app") }),
            ("key", { _ = try await registry.addKey(.write, project: "shop", now: Sample.now) }),
            ("limit", { _ = try await registry.set("shop", eventsPerSecond: 9, now: Sample.now) }),
            ("zone", { _ = try await registry.set("shop", timeZone: "Japan", now: Sample.now) }),
            ("retention", { _ = try await retention.set(months: 0) }),
            ("preview", { _ = try await retention.preview(months: 0) }),
            ("erasure", { _ = try await erasures.add(project: "shop", user: "u") }),
            ("upkeep", { try await store.performUpkeep() }),
            ("days", { _ = try await DayClosing(database: store.sql, zones: [:]).perform() }),
        ]
        for (name, change) in changes {
            // Once before, so that each connection is there.
            _ = try await DayClosing(database: store.sql, zones: [:]).perform()
            _ = try await registry.set("shop", eventsPerSecond: 0, now: Sample.now)
            try await store.performUpkeep()
            try await fixture.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            do { try await change() } catch { Issue.record("\(name): \(error)") }
        }
        await store.close()
    }

    @Test("Beside a dump an attempt of retention touches no table that refuses the old ids already (S14)")
    func tablesThatRefuseAreSkipped() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        let retention = Retention(database: store.sql)
        _ = try await retention.set(months: 2)
        let dump = try PostgresConnection(uri: fixture.place)
        try dump.execute("BEGIN; LOCK TABLE events_default IN ACCESS SHARE MODE")
        let constraints = "SELECT oid::text FROM pg_constraint WHERE conname = 'hapax_horizon' ORDER BY 1"
        await #expect(throws: StoreError.self) { _ = try await retention.perform() }
        let first = try await fixture.rows(constraints)
        await #expect(throws: StoreError.self) { _ = try await retention.perform() }
        #expect(!first.isEmpty)
        #expect(try await fixture.rows(constraints) == first)
        try dump.execute("COMMIT")
        let done = try await retention.perform()
        #expect(done.map { $0.cleared == $0.horizon } == true)
        await store.close()
    }

    @Test("The embedded store gives no event an instant before one up to which a day has been counted, whatever the clock says (S23)")
    func startHeedsClosedDays() async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        await (try await fixture.open()).close()
        let closed = Sample.now + 3_600_000
        try await fixture.execute("INSERT INTO report_progress VALUES (1, '2026-01-02', \(closed))")
        let store = try await fixture.open()
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        #expect(try await fixture.rows("SELECT received_at FROM events") == [["\(closed)"]])
        await store.close()
    }
}
