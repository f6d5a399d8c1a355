import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// One event that only the server refuses, batch by batch, with our own 400.
@Suite("A poison event (I1, I12)", .timeLimit(.minutes(20)))
struct PoisonTests {
    @Test("among 10,000 queued events is found by halving: one dead letter with the server's reason, 9,999 stored")
    func poisonInTheQueue() async throws {
        let server = try IngestStandIn()
        server.change { $0.isPoison = { $0.time == 4_711 } }
        let directory = TemporaryDirectory()
        var configuration = EventClient.Configuration(server: server.url, writeKey: "key", queueDirectory: directory.path + "/queue")
        configuration.uploadsAutomatically = false
        let client = try EventClient.start(configuration, clock: SystemClock()) { CurlTransport() }
        var ids: [EventID] = []
        for start in stride(from: 1, through: 10_000, by: 500) {
            ids += try await withThrowingTaskGroup(of: EventID.self) { group in
                for time in start..<start + 500 { group.addTask { try await client.trackDurably("e", time: Int64(time)) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
        }
        // Each flush ends at a failed attempt; a refusal of ours is none.
        var report = await client.flush()
        for _ in 0..<50 where report.remaining > 0 { report = await client.flush() }
        #expect(report.remaining == 0)
        let letters = try client.deadLetters.list()
        #expect(letters.map(\.reason) == ["malformed"])
        #expect(Set(server.stored.keys).union(letters.compactMap(\.eventID)) == Set(ids))
        #expect(server.stored.count == 9_999)
        #expect(server.poisonedBatches > 1, "it was searched for")
        await client.shutdown(within: .zero)
    }

    @Test("in a file of 10,000 lines: one dead letter with its line number, 9,999 stored, exit 3")
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
        #expect((list.json["detail"] as? String)?.hasPrefix("line 4711") == true)
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
        #expect(test.transport.batches.map(\.sequences) == [[1], [2]])
    }

    @Test("two in a row are found by one request each, and the event behind them convicts both (D13)")
    func neighboursAreConvictedTogether() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { $0.sequences == [3] ? .success($0.receipt()) : .success(.problem(.malformed)) }
        try await test.track(0..<3)
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 2 && report.remaining == 0)
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [3]])
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
        await delivery.uploadWanted(manual: false)
        await delivery.restBegins()
        network.withLock { $0 = .wired }
        test.transport.script { .success($0.receipt()) }
        await delivery.uploadWanted(manual: false)
        await delivery.restBegins()
        #expect(test.transport.batches.map(\.sequences) == [[1], [1], [2]])
        let status = await test.client.status()
        #expect(status.stored == 2 && status.deadLettered == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test("in a queue with events of two installs those of one convict none of the other, which the server may refuse as such (D12, D13)")
    func installIsNotTheEvent() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let other = EventID.derived(name: "install", key: "salvaged")
        try await test.track(0..<5)
        try await test.client.queue.database.write {
            try $0.execute(sql: "UPDATE queue SET install_id = ? WHERE row < 4", arguments: [Data(other.bytes)])
        }
        let refusesInstall = Locked(true)
        test.transport.script { batch in
            let isRefused = refusesInstall.withLock { $0 } && batch.scanned.envelope.installID == other || batch.names == ["event 3"]
            return .success(isRefused ? .problem(.malformed) : batch.receipt())
        }
        for _ in 0..<2 { #expect(await test.client.flush().failure == .status(400, code: "malformed")) }
        let refused = await test.client.status()
        #expect(refused.failure != nil && refused.stored == 1 && refused.deadLettered == 0 && refused.depth == 4)
        refusesInstall.withLock { $0 = false }
        let report = await test.client.flush()
        #expect(report.stored == 3 && report.deadLettered == 1 && report.remaining == 0)
    }

    @Test("behind many events of an install that the server refuses, those of another are found at once, pass after pass (D13, I15)")
    func refusedInstallIsSkipped() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let other = EventID.derived(name: "install", key: "salvaged")
        test.transport.script { .success($0.scanned.envelope.installID == other ? .problem(.malformed) : $0.receipt()) }
        try await test.track(0..<24)
        try await test.client.queue.database.write {
            try $0.execute(sql: "UPDATE queue SET install_id = ? WHERE row <= 20", arguments: [Data(other.bytes)])
        }
        var requests: [Int] = []
        for _ in 0..<5 {
            let before = test.transport.batches.count
            _ = await test.client.delivery.drain()
            requests.append(test.transport.batches.count - before)
        }
        // So many as a pass may try; the first, those it has not tried, the one behind them and the witness; then the first and the next.
        #expect(requests == [16, 7, 3, 3, 3])
        let status = await test.client.status()
        #expect(status.stored == 4 && status.depth == 20 && status.deadLettered == 0)
    }

    @Test("an event that is poison beside those of another install is found by a witness in its own envelope (D13)")
    func witnessGoesInTheOthersEnvelope() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let other = EventID.derived(name: "install", key: "salvaged")
        test.transport.script { .success($0.names == ["event 0"] ? .problem(.malformed) : $0.receipt()) }
        try await test.track(0..<2)
        try await test.client.queue.database.write {
            try $0.execute(sql: "UPDATE queue SET install_id = ? WHERE row = 1", arguments: [Data(other.bytes)])
        }
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 1 && report.remaining == 0)
        #expect(test.transport.batches.map(\.names) == [["event 0"], ["event 1"], ["event 1"]])
        #expect(test.transport.batches.last?.scanned.envelope.installID == other)
    }

    @Test("a suspicion ends with the time in the background, too: the app may come back when the server is well again (D12, R33)")
    func suspicionEndsWithTheBackgroundTime() async throws {
        let test = try TestClient {
            $0.uploadsAutomatically = true
            $0.flushInterval = .seconds(3_600)
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
        test.client.handle(.didBecomeActive)
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
        #expect(try test.client.deadLetters.list().map(\.reason) == ["malformed"])
    }
}
