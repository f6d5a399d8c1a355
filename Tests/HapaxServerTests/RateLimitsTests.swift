import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Limits per project", .endsWhenItHangs)
struct RateLimitsTests {
    @Test(
        "Over any time a project gets its limit, its burst and one request at most, of a second's worth; whoever waits as told is let in",
        arguments: [1, 2, 3])
    func averageHolds(seed: UInt64) throws {
        var (random, limits, now) = (SeededRandom(seed: seed), RateLimits(), ContinuousClock.now)
        let (limit, start) = (100, now)
        var taken = 0
        for _ in 0..<20_000 {
            now += .milliseconds(Int64.random(in: 0..<40, using: &random))
            if let wait = limits.wait(1, limit: limit, now) {
                #expect(wait > .zero)
                // Told how long, and not longer than it takes.
                if Bool.random(using: &random) { now += wait }
                if limits.wait(1, limit: limit, now) != nil { continue }
            }
            let events = Int.random(in: 1...limit, using: &random)
            taken += events
            limits.charge(1, events, limit: limit, now)
            let most = Double(limit) * ((now - start) / .seconds(1) + ServerLimits.rateBurst / .seconds(1))
            #expect(Double(taken - events) <= most)
        }
        // A sender that asks all the time gets all of it.
        #expect(Double(taken) >= Double(limit) * ((now - start) / .seconds(1)) * 0.9)
        #expect(limits.wait(2, limit: 1, now) == nil)
    }

    @Test("However much comes at once, a project is locked out for about a second (S4)")
    func burstIsForgiven() throws {
        var (limits, now) = (RateLimits(), ContinuousClock.now)
        for limit in [1, 10, 1_000] {
            for _ in 0..<100 { limits.charge(Int32(limit), 1_000, limit: limit, now) }
            let told = limits.wait(Int32(limit), limit: limit, now)
            let wait = try #require(told)
            #expect(wait <= .seconds(2))
            now += wait
            #expect(limits.wait(Int32(limit), limit: limit, now) == nil)
        }
    }

    @Test("Beyond its limit a project is answered 429 with the time to wait, others are not, and nothing is lost to it")
    func limitIsAnsweredAndChanged() async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        let store = try await fixture.open()
        let registry = Registry(database: store.sql)
        for project in ["shop", "app"] { _ = try await registry.addProject(project) }
        _ = try await registry.set("shop", eventsPerSecond: 10, now: Sample.now)
        try await RunningServer.run(on: store) { server in
            @Sendable func post(_ first: UInt64, key: String = RunningServer.key) async throws -> HTTPMessage {
                let events = (first..<first + 1_000).map { Sample.event(Sample.id($0)) }
                return try await server.post(
                    EventBatch(envelope: .init(), events: events).encoded(), headers: ["Authorization": "Bearer \(key)"])
            }
            // The burst is 100 events; a request that is let in is stored whole. Of those that come at once one is let in each second.
            #expect(try await post(0).receipt().stored == 1_000)
            var refused: HTTPMessage?
            repeat {
                refused = try await withThrowingTaskGroup(of: HTTPMessage.self) { group in
                    for _ in 0..<10 { group.addTask { try await post(0) } }
                    return try await group.reduce(into: nil) { if $1.status != 200 { $0 = $1 } }
                }
            } while refused == nil
            #expect(refused?.status == 429 && refused?.problemCode == .rateLimited)
            #expect((1...2).contains(try #require(Int(refused?["Retry-After"] ?? ""))))
            // What a device says of itself is no event (A19).
            for word in 1...3 as ClosedRange<Int64> {
                let report = EventBatch(envelope: .init(installID: Sample.id(9_000), reportVersion: word, created: 3), events: [])
                #expect(try await server.post(report.encoded()).status == 200)
            }
            #expect(try await post(1_000, key: RunningServer.otherKey).receipt().stored == 1_000)
            let admin = ["Authorization": "Bearer \(RunningServer.adminKey)", "Content-Type": "application/json"]
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(
                RawHTTP.request("PATCH", "/v1/admin/projects/shop", headers: admin, body: Array(#"{"events_per_second":0}"#.utf8)))
            #expect(try await connection.answer(to: "PATCH").status == 200)
            #expect(try await post(1_000).receipt().stored == 1_000)
        }
    }
}
