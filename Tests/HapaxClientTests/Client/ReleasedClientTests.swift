import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import Logging
import MetricsTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A client that its owner lets go without a shutdown (I1, I12)", .endsWhenItHangs)
struct ReleasedClientTests {
    @Test("what could not be stored is stored once the disk allows it, though nobody holds the client")
    func eventsAreStored() async throws {
        var test: TestClient? = try TestClient()
        let (directory, clock, queue) = try #require(test.map { ($0.directory, $0.clock, $0.client.file) })
        try test?.refuseCommits(true)
        test?.client.track("kept")
        await clock.scheduled(1)
        weak let client = test?.client
        test = nil
        #expect(client == nil)
        try await queue.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA query_only = 0") }
        clock.advance(by: .seconds(5))
        while queue.counters.waiting == 0 { await Task.yield() }
        #expect(queue.counters.waiting == 1 && clock.pending.isEmpty, "and nothing keeps the queue open then")
        withExtendedLifetime(directory) {}
    }

    @Test("a request that gets no answer is ended with it, and holds its queue no longer")
    func requestEnds() async throws {
        var test: TestClient? = try TestClient()
        let directory = test?.directory
        weak let queue = test?.client.file
        let transport = try #require(test?.transport)
        transport.script { [weak transport] _ in await transport?.hang() ?? .failure(.aborted) }
        try await test?.client.trackDurably("sent")
        if let delivery = test?.client.delivery { Task { [weak delivery] in await delivery?.drain() } }
        await transport.requests(1)
        test = nil
        while queue != nil { await Task.yield() }
        withExtendedLifetime(directory) {}
    }

    @Test("one whose directory somebody has deleted is gone with its file, what it held is free, and what is lost with it is told (I13)")
    func lostFileHoldsNothing() async throws {
        let (log, metrics) = (RecordedLog(), TestMetrics())
        var test: TestClient? = try TestClient {
            $0.logger = Logger(label: "test") { _ in log }
            $0.metricsFactory = metrics
        }
        let clock = try #require(test?.clock)
        weak let queue = test?.client.file
        try FileManager.default.removeItem(atPath: try #require(test).directory.path("queue"))
        for name in ["lost", "lost, too"] { test?.client.track(name) }
        await clock.scheduled(1)
        test = nil
        while queue != nil { await Task.yield() }
        #expect(log.lines.count { $0.hasPrefix("error") && $0.contains("\"hapax.events\": 2") && $0.contains("1032") } == 1)
        #expect(try metrics.expectCounter("hapax.client.dropped", [("reason", "lost")]).totalValue == 2)
    }

    @Test("who was told by a shutdown, or lost nothing, is not told again", arguments: [true, false])
    func lossIsToldOnce(isShutDown: Bool) async throws {
        let (log, directory) = (RecordedLog(), TemporaryDirectory())
        weak var queue: QueueFile?
        do {
            let test = try TestClient(directory: directory) { $0.logger = Logger(label: "test") { _ in log } }
            queue = test.client.file
            if isShutDown { try FileManager.default.removeItem(atPath: test.directory.path("queue")) }
            test.client.track("event")
            if isShutDown {
                async let report = test.client.shutdown(within: .zero)
                while !test.client.writer.hasGivenUp {
                    test.clock.advance(by: .seconds(1))
                    await Task.yield()
                }
                #expect(await report.lost == 1)
            }
        }
        while queue != nil { await Task.yield() }
        // Its file has kept its place.
        withExtendedLifetime(directory) {}
        #expect(!log.lines.contains { $0.hasPrefix("error") })
    }

    @Test("what it refused is counted on disk, at once")
    func refusalsAreCounted() async throws {
        var test: TestClient? = try TestClient()
        let (directory, queue) = try #require(test.map { ($0.directory, $0.client.file) })
        try test?.client.setConsent(.denied)
        for _ in 0..<3 { test?.client.track("refused") }
        test = nil
        while queue.counters.dropped.isEmpty { await Task.yield() }
        #expect(queue.counters.dropped == [DropReason.optedOut.rawValue: 3])
        withExtendedLifetime(directory) {}
    }
}
