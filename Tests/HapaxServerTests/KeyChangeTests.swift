import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Changes of keys and projects that meet (S3, S18, S22, S25)", .endsWhenItHangs)
struct KeyChangeTests {
    private static func open(_ kind: StoreUnderTest.Kind) async throws -> (StoreUnderTest, any EventStore, Registry) {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let registry = Registry(database: store.sql)
        _ = try await registry.addProject("shop")
        return (fixture, store, registry)
    }

    @Test(
        "Of a project's day two hundred names of derived ids are counted by themselves, the others in one row",
        arguments: StoreUnderTest.Kind.allCases)
    func namesOfDerivedIDsAreBounded(kind: StoreUnderTest.Kind) async throws {
        let (fixture, store, registry) = try await Self.open(kind)
        let project = try await registry.contents().project(named: "shop")
        for part in 0..<5 {
            var counts = DerivedIDCounts()
            let names = (0..<150).map { (Array("name \(part * 100 + $0)".utf8), 1) }
            counts.add(Dictionary(uniqueKeysWithValues: names), project.id, keyID: 7)
            try await registry.note(counts.take(), on: try #require(CalendarDay("2026-01-01")))
        }
        #expect(try await fixture.rows("SELECT count(*), sum(count) FROM derived_ids") == [["201", "750"]])
        // One that is known is counted on.
        #expect(try await fixture.rows("SELECT count FROM derived_ids WHERE event = 'name 120'") == [["2"]])
        let events = try await registry.derivedEvents(of: project, now: Sample.now)
        #expect(events.count == 200 && events.first?.name == "" && events.first?.keyID == 7)
        // As a version without the limit has left them.
        try await fixture.execute(
            """
            WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 30000)
            INSERT INTO derived_ids (project_id, day, key_id, event, count) SELECT \(project.id), '2026-01-01', 8, 'n' || i, 1 FROM s
            """)
        #expect(try await registry.derivedEvents(of: project, now: Sample.now).count == 200)
        await store.close()
    }

    @Test("What could not be noted is noted with the next refresh")
    func countsSurviveAFailure() async throws {
        let (fixture, store, registry) = try await Self.open(.sqlite)
        let keys = Keys(StaticKeys(), registry: registry) { Sample.now }
        let (_, secret) = try await registry.addKey(.write, project: "shop", now: Sample.now)
        try await keys.refresh()
        keys.note([Array("paid".utf8): 3], try keys.sender("Bearer \(secret)"))
        try await fixture.execute("ALTER TABLE derived_ids RENAME TO hidden")
        try await keys.refresh()
        try await fixture.execute("ALTER TABLE hidden RENAME TO derived_ids")
        try await keys.refresh()
        #expect(try await fixture.rows("SELECT event, count FROM derived_ids") == [["paid", "3"]])
        await store.close()
    }

    @Test(
        "Of two who rotate one key at once one has done it, and the other is told; nothing of the second stays",
        arguments: StoreUnderTest.Kind.allCases)
    func oneRotationOfTwoSucceeds(kind: StoreUnderTest.Kind) async throws {
        let (fixture, store, registry) = try await Self.open(kind)
        defer { withExtendedLifetime(fixture) {} }
        let (key, _) = try await registry.addKey(.read, project: "shop", now: Sample.now)
        let gate = Gate()
        // Both have looked before either changes anything.
        let held = Registry(database: SteppedStore(base: store.sql, beforeChange: { try? await blocking { gate.blockUntilOpen() } }))
        let results = await withTaskGroup(of: (any Error)?.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    do { _ = try await held.rotateKey(key.id, grace: .seconds(60), now: Sample.now) } catch { return error }
                    return nil
                }
            }
            await gate.waitForArrivals(2)
            gate.open()
            return await group.reduce(into: []) { $0.append($1) }
        }
        let errors = results.compactMap { $0 }
        guard errors.count == 1, case Registry.Problem.exists? = errors[0] as? Registry.Problem else {
            Issue.record("\(errors)")
            return
        }
        #expect(try await registry.contents().keys.count == 2)
        await store.close()
    }

    @Test(
        "A rotated key that was to end is followed by one that lasts as long, unless it is said when that ends",
        arguments: StoreUnderTest.Kind.allCases)
    func rotationKeepsTheTerm(kind: StoreUnderTest.Kind) async throws {
        let (fixture, store, registry) = try await Self.open(kind)
        defer { withExtendedLifetime(fixture) {} }
        let (now, day) = (Sample.now / 1_000 * 1_000, Int64(86_400_000))
        let (key, _) = try await registry.addKey(.read, project: "shop", expiresAt: now + 90 * day, now: now)
        for (expiresAt, end) in [(nil, now + 150 * day), (now + 61 * day, now + 61 * day)] as [(Int64?, Int64)] {
            let new = try await registry.rotateKey(key.id, grace: .seconds(86_400), expiresAt: expiresAt, now: now + 60 * day).key
            #expect(new.expiresAt == end)
        }
        let (other, _) = try await registry.addKey(.read, project: "shop", now: now)
        #expect(try await registry.rotateKey(other.id, grace: .seconds(60), now: now).key.expiresAt == nil)
        // The end that it has now is its grace's.
        await #expect(throws: Registry.Problem.self) { try await registry.rotateKey(other.id, grace: .seconds(60), now: now) }
        await store.close()
    }

    @Test("A refresh that was overtaken by a later one changes nothing: a key that was revoked meanwhile stays so")
    func lateRefreshIsDropped() async throws {
        let (fixture, store, registry) = try await Self.open(.sqlite)
        defer { withExtendedLifetime(fixture) {} }
        let (key, secret) = try await registry.addKey(.read, project: "shop", now: Sample.now)
        let (gate, looks) = (Gate(), Locked(0))
        let held = SteppedStore(
            base: store.sql,
            after: { _ in
                // The first refresh has read the keys, and is held until the second one has.
                let look = looks.withLock { looks in
                    looks += 1
                    return looks
                }
                if look == 2 { try? await blocking { gate.blockUntilOpen() } }
            })
        let keys = Keys(StaticKeys(), registry: Registry(database: held)) { Sample.now }
        async let first: Void = keys.refresh()
        await gate.waitForArrivals(1)
        _ = try await registry.revokeKey(key.id, now: Sample.now)
        try await keys.refresh()
        gate.open()
        try await first
        #expect(throws: RequestProblem.self) { try keys.reader("Bearer \(secret)") }
        await store.close()
    }

    @Test("Over HTTP: a repeated member is refused, and a change is made whole or not at all")
    func changesAreWhole() async throws {
        let (fixture, store, registry) = try await Self.open(.sqlite)
        defer { withExtendedLifetime(fixture) {} }
        try await RunningServer.run(on: store) { server in
            for (method, path, body, parameter) in [
                ("PATCH", "retention", #"{"yes":false,"months":3,"yes":true}"#, "yes"),
                ("PATCH", "retention", #"{"months":3,"yes":true,"y\u0065s":false}"#, "yes"),
                ("POST", "projects/shop/remove", #"{"yes":true,"yes":false}"#, "yes"),
                (
                    "PATCH", "projects/shop", #"{"derived_ids":"server","time_zone":"Asia/Tokyo","events_per_second":-1}"#,
                    "events_per_second"
                ),
                ("PATCH", "projects/shop", #"{"derived_ids":"server","events_per_second":5,"time_zone":"Nowhere"}"#, "time_zone"),
                ("PATCH", "projects/shop", #"{"events_per_second":5,"derived_ids":"some"}"#, "derived_ids"),
            ] {
                let connection = try await RawHTTP(port: server.port)
                let headers = ["Authorization": "Bearer \(RunningServer.adminKey)", "Content-Type": "application/json"]
                try await connection.send(RawHTTP.request(method, "/v1/admin/\(path)", headers: headers, body: Array(body.utf8)))
                let answer = try await connection.answer(to: method)
                #expect(
                    answer.status == 400 && String(decoding: answer.body, as: UTF8.self).contains(#""parameter":"\#(parameter)""#),
                    "\(body)")
            }
            let project = try await registry.contents().project(named: "shop")
            #expect(project.derivedIDs == .any && project.eventsPerSecond == nil && project.timeZone ?? "UTC" == "UTC")
            #expect(try await Retention(database: store.sql).state().months == nil)
        }
    }

    @Test("A key of the settings that is a key of the store of another kind keeps the server from starting; as a name it is refused")
    func settingsDoNotContradictTheStore() async throws {
        let (fixture, store, registry) = try await Self.open(.sqlite)
        defer { withExtendedLifetime(fixture) {} }
        let (key, secret) = try await registry.addKey(.write, project: "shop", now: Sample.now)
        let contradiction = StaticKeys(readers: [secret: 1], projects: ["shop": 1]).contradiction(to: try await registry.contents())
        #expect(contradiction?.contains("key \(key.id) of the store, a write key") == true && contradiction?.contains(secret) == false)
        #expect(StaticKeys(writers: [secret: 1], projects: ["shop": 1]).contradiction(to: try await registry.contents()) == nil)
        await #expect(throws: ServerConfiguration.Problem.self) {
            try await RunningServer.run(on: store, keys: StaticKeys(admin: secret)) { _ in }
        }
    }
}
