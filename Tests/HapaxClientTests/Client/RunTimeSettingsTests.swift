import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Settings that change while the client runs (R20–R26, R35)", .endsWhenItHangs)
struct RunTimeSettingsTests {
    @Test(
        "an interval below the floor is read back as it was set, and the timer runs with 5 s; so with none at all (R20)",
        arguments: [.seconds(1), .zero, .seconds(-1)] as [Duration])
    func shortIntervalIsReadBack(interval: Duration) async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        test.client.updateUploads { $0.interval = interval }
        #expect(test.client.uploads.interval == interval)
        #expect(test.clock.pending == [.seconds(5)])
        await test.client.shutdown(within: .zero)
    }

    @Test("uploads that nobody asked for can be switched off and on: what waits then is sent, in the foreground (R24)")
    func automaticUploadsChange() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 1
        }
        test.client.updateUploads { $0.interval = nil }
        #expect(test.client.uploads.interval == nil && test.clock.pending == [])
        try await test.track(0..<2)
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        await test.client.delivery.uploadWanted()
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.isEmpty && test.clock.pending == [])
        test.client.updateUploads { $0.interval = .seconds(15) }
        await test.transport.requests(1)
        #expect(test.transport.batches.flatMap(\.names) == ["event 0", "event 1", "$AppStart"])
        #expect(test.clock.pending == [.seconds(15)])
        await test.client.shutdown(within: .zero)
    }

    @Test("a bulk size that is set while the client runs holds from the next stored event on (R24)")
    func bulkSizeChanges() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        try await test.track(0..<2)
        #expect(test.transport.batches.isEmpty)
        test.client.updateUploads { $0.bulkSize = 3 }
        #expect(test.client.uploads.bulkSize == 3)
        try await test.track(2..<3)
        await test.transport.requests(1)
        #expect(test.transport.batches.map(\.names) == [["event 0", "event 1", "event 2"]])
    }

    @Test("entering the background waits for its uploads from when that is set (R35)")
    func waitingForUploadsCanBeSet() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        #expect(!test.client.uploads.waitsInBackground)
        test.client.updateUploads { $0.waitsInBackground = true }
        test.client.attach(ScriptedApplication(grants: true))
        test.client.handle(.didBecomeActive)
        try await blocking { [client = test.client] in client.handle(.didEnterBackground) }
        #expect(test.client.uploads.waitsInBackground && test.transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd"])
        await test.client.shutdown(within: .zero)
    }
}
