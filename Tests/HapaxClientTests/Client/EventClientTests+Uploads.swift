import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// When a client uploads, and that storing does not wait for it.
extension EventClientTests {
    @Test("three policies upload without being asked: by count, by interval, on entering the background (R18)")
    func threePoliciesUpload() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 2
            $0.uploads.immediateEvents = []
        }
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        try await test.track(0..<1)
        await test.transport.requests(1)
        await test.client.delivery.restBegins()
        try await test.track(1..<2)
        test.clock.advance(by: .seconds(15))
        await test.transport.requests(2)
        await test.client.delivery.restBegins()
        test.client.handle(.didEnterBackground)
        await test.transport.requests(3)
        #expect(test.transport.batches.map(\.names) == [["$AppStart", "event 0"], ["event 1"], ["$AppEnd"]])
    }

    @Test("nothing is uploaded until asked, or a policy says so (R17)")
    func storingAloneSendsNothing() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        try await test.track(0..<99)
        #expect(test.transport.batches.isEmpty)
        try await test.track(99..<100)
        await test.transport.requests(2)
        #expect(test.transport.batches.map(\.ids.count) == [50, 50])
    }

    @Test("the count is checked after the commit: an upload finds all of it (R19, D4)")
    func countTriggersAfterStoring() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 1
        }
        test.client.track("only")
        await test.transport.requests(1)
        #expect(test.transport.batches[0].names == ["only"])
    }

    @Test("what an earlier run left is uploaded at the start if it reaches the count, with the timer if not (R14, R19)", arguments: [2, 3])
    func earlierRunsEventsCount(bulkSize: Int) async throws {
        let first = try TestClient()
        try await first.track(0..<2)
        await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: first.directory) {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = bulkSize
        }
        if bulkSize > 2 {
            #expect(second.transport.batches.isEmpty)
            second.clock.advance(by: .seconds(15))
        }
        await second.transport.requests(1)
        #expect(second.transport.batches[0].names == ["event 0", "event 1"])
    }

    @Test("the periodic timer starts with the client and uploads, and there is one (R21)")
    func timerUploads() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        #expect(test.clock.pending == [.seconds(15)])
        try await test.track(0..<1)
        test.client.scheduler.startTimer()
        #expect(test.clock.pending == [.seconds(15)])
        test.clock.advance(by: .seconds(15))
        await test.transport.requests(1)
        #expect(test.clock.pending == [.seconds(15)])
    }

    @Test("setting a different interval uploads now and restarts the timer (R22)")
    func newIntervalUploads() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        try await test.track(0..<1)
        test.client.updateUploads { $0.interval = .seconds(15) }
        #expect(test.transport.batches.isEmpty)
        test.client.updateUploads { $0.interval = .seconds(60) }
        await test.transport.requests(1)
        #expect(test.clock.pending == [.seconds(60)])
        #expect(test.client.uploads.interval == .seconds(60))
    }

    @Test("whatever ids and times events were given, they leave in the order of their calls, oldest first (R9)")
    func orderIsThatOfTheCalls() async throws {
        let test = try TestClient { $0.batchSize = 2 }
        let ids = (0..<5).map { EventID.derived(name: "order", key: "\($0)") }.sorted(by: >)
        for (index, id) in ids.enumerated() { test.client.track("event \(index)", id: id, time: Date(unixMilliseconds: Int64(5 - index))) }
        #expect(await test.client.flush().stored == 5)
        #expect(test.transport.batches.map(\.ids) == [Array(ids[0..<2]), Array(ids[2..<4]), Array(ids[4..<5])])
    }

    @Test(
        "a flush sends batch after batch, each one JSON, removes what was acknowledged and nothing else, and ends at a failure (R11, D1–D3)"
    )
    func flushRemovesWhatWasAcknowledged() async throws {
        let test = try TestClient { $0.batchSize = 3 }
        test.transport.script { [transport = test.transport] batch in
            if transport.batches.count == 3 { return .failure(.cut) }
            return .success(batch.receipt { $0.sequence == 2 ? .retry : .stored })
        }
        try await test.track(1...8)
        let report = await test.client.flush()
        #expect(report.stored == 5 && report.remaining == 3 && report.failure == .transport(.cut))
        for batch in test.transport.batches {
            let body = try #require(try JSONSerialization.jsonObject(with: Data(batch.body)) as? [String: Any])
            #expect((body["events"] as? [[String: Any]])?.count == batch.ids.count)
        }
        test.transport.script { .success($0.receipt()) }
        _ = await test.client.flush()
        #expect(Set(test.transport.batches.dropFirst(3).flatMap(\.names)) == ["event 2", "event 7", "event 8"])
        await test.client.shutdown(within: .zero)
    }

    @Test("an immediate event uploads at once (R25)")
    func immediateEventUploads() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        test.client.track("$AppStart")
        await test.transport.requests(1)
        #expect(test.transport.batches[0].names == ["$AppStart"])
    }

    @Test("an upload that hangs never delays storing (R15, R16)")
    func hangingUploadDoesNotDelayStoring() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.track("first")
        async let report = test.client.flush()
        await test.transport.requests(1)
        for index in 0..<100 { try await test.client.trackDurably("event \(index)") }
        #expect(await test.client.status().depth == 101)
        _ = await test.client.shutdown(within: .zero)
        #expect(await report.failure != nil)
    }
}
