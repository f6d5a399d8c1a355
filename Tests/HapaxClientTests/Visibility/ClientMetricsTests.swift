import CoreMetrics
import HapaxModel
import HapaxTestKit
import MetricsTestKit
import Testing

@testable import HapaxClient

@Suite("Metrics of the client (I12, I13, I14)", .endsWhenItHangs)
struct ClientMetricsTests {
    private let metrics = TestMetrics()

    private func client(_ transport: ScriptedTransport = ScriptedTransport()) throws -> TestClient {
        try TestClient(transport: transport) { $0.metricsFactory = metrics }
    }

    /// What a counter has come to; 0 if nobody has made it.
    private func total(_ label: String, _ dimensions: [(String, String)] = []) -> Int64 {
        (try? metrics.expectCounter("hapax.client." + label, dimensions))?.totalValue ?? 0
    }

    @Test("tracked, stored, duplicates and dead letters by reason add up as the books do")
    func countersAreTheBooks() async throws {
        let test = try client()
        test.transport.script { batch in
            .success(
                batch.receipt { event in
                    switch event.sequence {
                    case 2: .duplicate
                    case 3: .expired
                    default: .stored
                    }
                })
        }
        try await test.track(0..<5)
        test.client.track(String(repeating: "n", count: 201))
        _ = await test.client.flush()
        let status = await test.client.status()
        #expect(total("tracked") == status.created && status.created == 6)
        #expect(total("stored") == status.stored && status.stored == 3)
        #expect(total("duplicates") == status.duplicates && status.duplicates == 1)
        #expect(total("dead_letters", [("reason", "expired")]) == 1)
        #expect(total("dead_letters", [("reason", "name_too_long")]) == 1)
    }

    /// Makes a counter for which another one is needed.
    private final class TrackingFactory: MetricsFactory {
        let client = Locked<ClientMetrics?>(nil)

        func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
            let client = client.withLock { client in
                defer { client = nil }
                return client
            }
            client?.dropped(1, reason: "another")
            return NOOPMetricsHandler.instance.makeCounter(label: label, dimensions: dimensions)
        }

        func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
            NOOPMetricsHandler.instance.makeRecorder(label: label, dimensions: dimensions, aggregate: aggregate)
        }

        func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
            NOOPMetricsHandler.instance.makeTimer(label: label, dimensions: dimensions)
        }

        func destroyCounter(_ handler: any CounterHandler) {}
        func destroyRecorder(_ handler: any RecorderHandler) {}
        func destroyTimer(_ handler: any TimerHandler) {}
    }

    @Test("the app's metrics factory is not called under a lock: it may ask for another counter (C14)")
    func factoryRunsUnderNoLock() {
        let factory = TrackingFactory()
        let metrics = ClientMetrics(factory: factory)
        factory.client.withLock { $0 = metrics }
        metrics.dropped(1, reason: "one")
        #expect(factory.client.withLock { $0 == nil })
    }

    @Test("refusals and removals are counted by reason, with the commit that records them")
    func dropsAreCounted() async throws {
        let test = try client()
        try await test.track(0..<2)
        try await test.client.purge()
        try test.client.setConsent(.denied)
        for _ in 0..<4 { test.client.track("late") }
        #expect(total("dropped", [("reason", "opted_out")]) == 0, "not on the caller's path")
        _ = await test.client.shutdown(within: .zero)
        #expect(total("dropped", [("reason", "opted_out")]) == 4)
        #expect(total("dropped", [("reason", "purged")]) == 2)
    }

    @Test("attempts, and failures by kind, for each request; the timer has one reading for each")
    func uploadsAreCounted() async throws {
        let test = try client()
        let answers = Locked<[Result<TransportAnswer, TransportFailure>]>([
            .failure(.timedOut), .failure(.cut), .failure(.other(987)), .success(TransportAnswer(status: 418)),
            .success(TransportAnswer(status: 200)), .success(.problem(.unknownKey)), .success(.problem(.overloaded)),
        ])
        test.transport.script { batch in answers.withLock { $0.isEmpty ? nil : $0.removeFirst() } ?? .success(batch.receipt()) }
        try await test.track(0..<1)
        for _ in 0..<8 { _ = await test.client.flush() }
        #expect(total("upload.attempts") == 8)
        for kind in ["timed_out", "cut", "transport", "status_4xx", "not_a_receipt", "unknown_key", "overloaded"] {
            #expect(total("upload.failures", [("kind", kind)]) == 1, "\(kind)")
        }
        #expect(try metrics.expectTimer("hapax.client.upload.duration").values.count == 8)
        #expect(total("stored") == 1)
    }

    @Test("the gauges follow the queue; commits are timed and their failures counted")
    func queueIsMeasured() async throws {
        let test = try client()
        try await test.track(0..<3)
        let status = await test.client.status()
        #expect(try metrics.expectGauge("hapax.client.queue.depth").lastValue == 3)
        #expect(try metrics.expectGauge("hapax.client.queue.bytes").lastValue == Double(status.bytes) && status.bytes > 0)
        let commits = try metrics.expectTimer("hapax.client.commit.duration").values.count
        #expect(commits > 0)
        try test.refuseCommits(true)
        await #expect(throws: TrackError.self) { try await test.client.trackDurably("refused") }
        #expect(total("commit.failures") == 1)
        #expect(try metrics.expectTimer("hapax.client.commit.duration").values.count == commits)
        try test.refuseCommits(false)
        test.clock.advance(by: .seconds(1))
        _ = await test.client.flush()
        #expect(try metrics.expectGauge("hapax.client.queue.depth").lastValue == 0)
        #expect(try metrics.expectGauge("hapax.client.queue.bytes").lastValue == 0)
    }

    @Test("a server that makes up reasons makes no dimensions (I13), and no label holds a payload, a key or an id (I14)")
    func dimensionsAreBounded() async throws {
        let test = try client()
        test.transport.script { batch in
            let results = batch.ids.enumerated().map { index, id in
                Receipt.Result(index: index, eventID: id, outcome: .rejected, reason: "made up \(id)")
            }
            return .success(
                TransportAnswer(
                    status: 200,
                    body: Receipt(batchID: batch.scanned.envelope.batchID, received: results.count, stored: 0, results: results).encoded()))
        }
        let ids = try await test.track(0..<40)
        _ = await test.client.flush()
        #expect(total("dead_letters", [("reason", "other")]) == 40)
        #expect(metrics.counters.count { $0.label == "hapax.client.dead_letters" } == 1)
        #expect(metrics.counters.allSatisfy { $0.label.hasPrefix("hapax.client.") })
        for counter in metrics.counters {
            let text = "\(counter.label) \(counter.dimensions)"
            #expect(!text.contains("event 1") && !text.contains("test-key") && !ids.contains { text.contains($0.description) })
        }
    }

    @Test("every failure has a kind from a fixed set, whatever status a proxy answers with")
    func kindsAreBounded() {
        let kinds = Set((-10...2_000).map { DeliveryFailure.status($0, code: nil).kind })
        #expect(kinds == ["status_1xx", "status_2xx", "status_3xx", "status_4xx", "status_5xx", "status_other"])
        #expect(Set((0..<100).map { DeliveryFailure.transport(.other($0)).kind }) == ["transport"])
    }
}
