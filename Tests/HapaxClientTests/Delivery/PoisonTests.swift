import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// One event that only the server refuses, batch by batch, with our own 400.
@Suite("A poison event (I1, I12)", .endsWhenItHangs)
struct PoisonTests {
    @Test("among 10,000 queued events is found by halving: one dead letter with the server's reason, 9,999 stored")
    func poisonInTheQueue() async throws {
        let server = try IngestStandIn()
        server.change { $0.isPoison = { $0.time == 4_711 } }
        let directory = TemporaryDirectory()
        var configuration = EventClient.Configuration(server: server.url, writeKey: "key", queueDirectory: directory.path + "/queue")
        configuration.uploads.interval = nil
        let client = try EventClient.start(configuration, clock: SystemClock()) { CurlTransport() }
        var ids: [EventID] = []
        for start in stride(from: 1, through: 10_000, by: 500) {
            ids += try await withThrowingTaskGroup(of: EventID.self) { group in
                for time in start..<start + 500 {
                    group.addTask { try await client.trackDurably("e", time: Date(unixMilliseconds: Int64(time))) }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
        }
        // Each flush ends at a failed attempt; a refusal of ours is none.
        var report = await client.flush()
        for _ in 0..<50 where report.remaining > 0 { report = await client.flush() }
        #expect(report.remaining == 0)
        let deadLetters = try await client.deadLetters.list()
        #expect(deadLetters.map(\.reason) == ["malformed"])
        #expect(Set(server.stored.keys).union(deadLetters.compactMap(\.eventID)) == Set(ids))
        #expect(server.stored.count == 9_999)
        #expect(server.poisonedBatches > 1, "it was searched for")
        await client.shutdown(within: .zero)
    }

    @Test("in a file of 10,000 lines: one dead letter, 9,999 stored, exit 3")
    func poisonInAFile() async throws {
        let server = try IngestStandIn()
        server.change { $0.isPoison = { $0.time == 4_711 } }
        let hapax = CommandLine(server: server.url)
        let lines = (1...10_000).map {
            #"{"event_id":"\#(EventID.derived(name: "p", key: "\($0)"))","event":"e","time":\#($0),"distinct_id":"u"}"# + "\n"
        }
        let output = try await hapax.run("import", "-", "--json", input: lines.joined())
        #expect(output.status == 3)
        #expect(output.json["stored"] as? Int == 9_999)
        #expect(server.stored.count == 9_999)
        let list = try await hapax.run("dead-letters", "list", "--json")
        #expect(list.out.split(separator: "\n").count == 1)
        #expect(list.json["reason"] as? String == "malformed")
        #expect(list.json["event_id"] as? String == EventID.derived(name: "p", key: "4711").description)
    }

    @Test(
        "who ends a pass between the refusal of an event and the next request takes nothing back: the event is not tried again (D13, R28)")
    func suspicionOutlivesAStep() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { $0.sequences == [1] ? .success(.problem(.malformed)) : .success($0.receipt()) }
        try await test.track(0..<2)
        let requests = Locked(0)
        _ = await test.client.delivery.drain {
            requests.withLock { requests in
                requests += 1
                return requests > 1 ? .unwanted : .granted(timeout: nil)
            }
        }
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 1)
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], []], "the last one tells what became of the first")
    }

    @Test("two in a row are found by one request each, and the event behind them convicts both (D13)")
    func neighboursAreConvictedTogether() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { $0.sequences == [3] ? .success($0.receipt()) : .success(.problem(.malformed)) }
        try await test.track(0..<3)
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 2 && report.remaining == 0)
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [3], []])
        await test.client.shutdown(within: .zero)
    }

    @Test("a suspicion ends where the network does: what the server accepts once there is one again convicts nobody (D12, R23)")
    func suspicionEndsWithTheNetwork() async throws {
        let network = Locked<NetworkType?>(.wired)
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.batchSize = 1
            $0.network = { network.withLock { $0 } }
        }
        test.transport.script { _ in
            network.withLock { $0 = nil }
            return .success(.problem(.malformed))
        }
        try await test.track(0..<2)
        let delivery = test.client.delivery
        await delivery.uploadWanted()
        await delivery.restBegins()
        network.withLock { $0 = .wired }
        test.transport.script { .success($0.receipt()) }
        await delivery.uploadWanted()
        await delivery.restBegins()
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [1]])
        let status = await test.client.status()
        #expect(status.stored == 2 && status.deadLettered == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test("a suspicion ends with the time in the background, too: the app may come back when the server is well again (D12, R33)")
    func suspicionEndsWithTheBackgroundTime() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(3_600)
            $0.batchSize = 1
        }
        let app = ScriptedApplication()
        test.client.attach(app)
        try await test.track(0..<2)
        test.transport.script { _ in
            app.remainingBackgroundTime = .zero
            return .success(.problem(.malformed))
        }
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(test.transport.batches.map(\.sequences) == [[1]])
        test.transport.script { .success($0.receipt()) }
        await test.becomeActive()
        let report = await test.client.flush()
        #expect(report.remaining == 0)
        let status = await test.client.status()
        #expect(status.deadLettered == 0 && status.depth == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test("a suspicion ends with a backoff: an event that was refused once and then accepted is in nobody's way (D12, D13)")
    func suspicionEndsWithABackoff() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { $0.sequences == [1] ? .success(.problem(.malformed)) : .success(.problem(.overloaded)) }
        try await test.track(0..<4)
        #expect(await test.client.flush().stored == 0)
        test.transport.script { $0.sequences == [3] ? .success(.problem(.malformed)) : .success($0.receipt()) }
        let report = await test.client.flush()
        #expect(report.stored == 3 && report.deadLettered == 1 && report.failure == nil)
        #expect(try await test.client.deadLetters.list().map(\.reason) == ["malformed"])
    }

    @Test("so many poison events in a row that a pass gives up are behind those that follow in the end (D13, I15)")
    func manyPoisonEventsAreFound() async throws {
        let test = try TestClient { $0.batchSize = 4 }
        test.transport.script { $0.names.contains { $0 != "event 40" } ? .success(.problem(.malformed)) : .success($0.receipt()) }
        try await test.track(1...40)
        var report = await test.client.flush()
        #expect(report.failure == .status(400, code: "malformed") && report.deadLettered == 0)
        for _ in 0..<10 {
            test.client.track("event 40")
            for _ in 0..<3 { report = await test.client.flush() }
        }
        let status = await test.client.status()
        #expect(status.stored == 11 && status.deadLettered == 39 && status.depth == 0 && status.isBalanced, "\(status)")
    }

    @Test("a server that refuses everything costs no event, and each gets another try once it takes some (D12)")
    func brokenServerCostsNothing() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { _ in .success(.problem(.malformed)) }
        try await test.track(1...5)
        #expect(await test.client.flush().remaining == 5)
        #expect(await test.client.status().held == 5)
        test.clock.advance(by: .seconds(61))
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 5)
        #expect(await test.client.status().deadLettered == 0)
    }

    @Test("what a restart finds held is tried again, and the envelope of what goes on before it says so (D13, I12)")
    func heldEventsAreTold() async throws {
        let first = try TestClient { $0.batchSize = 1 }
        first.transport.script { $0.names == ["event 1"] ? .success(.problem(.malformed)) : .failure(.cut) }
        try await first.track(1...2)
        _ = await first.client.flush()
        await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: first.directory)
        #expect(await second.client.status().held == 1)
        #expect(await second.client.flush().stored == 2)
        #expect(second.transport.batches.map(\.sequences) == [[2], [1]])
        #expect(second.transport.batches[0].scanned.envelope.held == [1...1])
        await second.client.shutdown(within: .zero)
    }
}
