import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What something between client and server refuses stops nothing else (C4, I5, I15, I16)", .endsWhenItHangs)
struct DetourTests {
    private static let page = Array("<html>blocked</html>".utf8)

    /// - Parameter blocks: Names of events that a firewall refuses with whatever is sent beside them.
    private func firewall(_ test: TestClient, _ status: Int, blocks names: Set<String>) {
        test.transport.script { batch in
            names.isDisjoint(with: batch.names) ? .success(batch.receipt()) : .success(TransportAnswer(status: status, body: Self.page))
        }
    }

    private func names(_ numbers: some Sequence<Int>) -> Set<String> { Set(numbers.map { "event \($0)" }) }

    @Test(
        "one event that a firewall refuses is left aside, and all others are delivered in one flush; it is asked again, one request a time, and nobody suspects it",
        arguments: [400, 403, 406, 413, 422, 451], [0, 16, 29])
    func oneEventStopsNothing(status: Int, place: Int) async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        firewall(test, status, blocks: names([place]))
        try await test.track(0..<30)
        let report = await test.client.flush()
        #expect(report.stored == 29 && report.remaining == 1 && report.failure == .status(status, code: nil))
        #expect(test.transport.batches.count <= (status == 413 ? 30 : 14), "\(test.transport.batches.map(\.sequences))")
        #expect(test.clock.pending.first == DeliveryStateMachine.probeInterval)
        let before = test.transport.batches.count
        #expect(await test.client.flush().failure == .status(status, code: nil))
        #expect(test.transport.batches.count == before + 1)
        try await test.track([100])
        await test.client.delivery.uploadWanted()
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.last?.names == ["event 100"], "others go on, without a rest")
        test.clock.advance(by: DeliveryStateMachine.probeInterval)
        await test.transport.requests(before + 3)
        #expect(test.transport.batches.last?.names == ["event \(place)"], "it has its turn with the pause")
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().remaining == 0)
        let status = await test.client.status()
        #expect(status.stored == 31 && status.deadLettered == 0 && status.held == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "where nothing passes halving takes log2 N + 1 requests (three at least), then it pauses; so does each later pause (I16)",
        arguments: [2, 30, 50, 200])
    func nothingPasses(events: Int) async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        test.transport.script { _ in .success(TransportAnswer(status: 403, body: Self.page)) }
        try await test.track(0..<events)
        let most = max(Int(log2(Double(min(events, 50)))) + 1, 3)
        for flush in 1...2 {
            let report = await test.client.flush()
            #expect(report.failure == .status(403, code: nil) && report.remaining == events)
            #expect(test.transport.batches.count <= flush * most && test.clock.pending.first == DeliveryStateMachine.probeInterval)
        }
        await test.client.delivery.uploadWanted()
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.count <= 2 * most, "nothing is asked within the pause")
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().remaining == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test("a firewall that begins to refuse everything while a queue is sent is left alone as well (I16)")
    func itBeginsMidway() async throws {
        let test = try TestClient()
        test.transport.script { batch in
            batch.sequences.contains { $0 > 100 } ? .success(TransportAnswer(status: 403, body: Self.page)) : .success(batch.receipt())
        }
        try await test.track(0..<1_000)
        #expect(await test.client.flush().stored == 100)
        #expect(test.transport.batches.count <= 2 + 11, "log2 1,000 + 1 at most")
        #expect(test.clock.pending == [DeliveryStateMachine.probeInterval])
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "some events that a firewall refuses, scattered or in a row, keep no other one back; in the command as well",
        arguments: [[3, 11, 25], [0, 1, 2]])
    func someEventsStopNothing(places: [Int]) async throws {
        let test = try TestClient()
        firewall(test, 403, blocks: names(places))
        try await test.track(0..<30)
        var stored = 0
        for _ in 0..<3 { stored += await test.client.flush().stored }
        #expect(stored == 27 && test.transport.batches.count < 60, "\(test.transport.batches.map(\.sequences))")
        await test.client.shutdown(within: .zero)
        let server = try IngestStandIn()
        let hapax = CommandLine(server: server.url)
        server.change { $0.isBlocked = { event in places.contains(Int(event.time)) } }
        for time in 0..<30 { #expect(try await hapax.run("track", "e", "--time", "\(time)", "--no-flush").status == 0) }
        var flush = try await hapax.run("flush", "--json")
        for _ in 0..<2 where server.stored.count < 27 { flush = try await hapax.run("flush", "--json") }
        #expect(server.stored.count == 27 && flush.status == 2 && flush.json["remaining"] as? Int == 3)
        #expect(flush.json["failure"] as? String == "status 403, not an answer of an ingest server")
        #expect(try await hapax.run("status").out.contains("status 403"))
        server.change { $0.isBlocked = { _ in false } }
        #expect(try await hapax.run("flush").status == 0 && server.stored.count == 30)
    }

    @Test("where batches hold one event each, the others pass as well")
    func singleEventsPass() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        firewall(test, 403, blocks: names([0]))
        try await test.track(0..<10)
        #expect(await test.client.flush().stored == 9)
        await test.client.shutdown(within: .zero)
    }
}
