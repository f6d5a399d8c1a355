import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Settings that change while the client runs (R20–R26, R35)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct RunTimeSettingsTests {
    @Test("another preset begins with its interval, and with its rule for short ones; the same one changes nothing (R20, R26)")
    func presetChanges() {
        var policy = FlushPolicy(bulkSize: 9, interval: .seconds(30), immediateEvents: [], now: .zero)
        #expect(policy.setPreset(.standard, now: .zero) == [] && policy.interval == .seconds(30))
        #expect(policy.setPreset(.dispatch, now: .zero) == [.upload, .restartTimer(every: .seconds(120))])
        #expect(policy.preset == .dispatch && policy.interval == .seconds(120))
        #expect(policy.setInterval(.zero, now: .zero) == [.stopTimer] && !policy.uploadsByItself)
        #expect(policy.setPreset(.standard, now: .zero) == [.upload, .restartTimer(every: .seconds(15))] && policy.uploadsByItself)
        #expect(policy.setInterval(.zero, now: .zero) == [.upload, .restartTimer(every: .seconds(5))])
    }

    @Test("a running client goes from the standard preset to manual dispatch and back (R24, R26)")
    func clientChangesItsPreset() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        test.client.preset = .dispatch
        #expect(test.client.preset == .dispatch && test.client.flushInterval == .seconds(120))
        test.client.flushInterval = .zero
        test.client.immediateEvents = ["now"]
        try await test.client.trackDurably("now")
        test.clock.advance(by: .seconds(1_000))
        #expect(test.transport.batches.isEmpty)
        test.client.preset = .standard
        await test.transport.requests(1)
        #expect(test.transport.batches.first?.names == ["now"] && test.client.flushInterval == .seconds(15))
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "an interval below the floor is read back as it was set, and the timer runs with 5 s; so with none at all (R20)",
        arguments: [.seconds(1), .zero, .seconds(-1)] as [Duration])
    func shortIntervalIsReadBack(interval: Duration) async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        test.client.flushInterval = interval
        #expect(test.client.flushInterval == interval)
        #expect(test.clock.pending == [.seconds(5)])
        await test.client.shutdown(within: .zero)
    }

    @Test("uploads that nobody asked for can be switched off and on: what waits then is sent, in the foreground (R24)")
    func automaticUploadsChange() async throws {
        let test = try TestClient {
            $0.uploadsAutomatically = true
            $0.flushBulkSize = 1
        }
        test.client.uploadsAutomatically = false
        #expect(!test.client.uploadsAutomatically && test.clock.pending == [])
        try await test.track(0..<2)
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        await test.client.delivery.uploadWanted()
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.isEmpty && test.clock.pending == [])
        test.client.uploadsAutomatically = true
        await test.transport.requests(1)
        #expect(test.transport.batches.flatMap(\.names) == ["event 0", "event 1", "$AppStart"])
        #expect(test.clock.pending == [.seconds(15)])
        await test.client.shutdown(within: .zero)
    }

    @Test("a bulk size that is set while the client runs holds from the next stored event on (R24)")
    func bulkSizeChanges() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        try await test.track(0..<2)
        #expect(test.transport.batches.isEmpty)
        test.client.flushBulkSize = 3
        #expect(test.client.flushBulkSize == 3)
        try await test.track(2..<3)
        await test.transport.requests(1)
        #expect(test.transport.batches.map(\.names) == [["event 0", "event 1", "event 2"]])
    }

    @Test("entering the background waits for its uploads from when that is set (R35)")
    func waitingForUploadsCanBeSet() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        #expect(!test.client.flushBeforeEnterBackground)
        test.client.flushBeforeEnterBackground = true
        test.client.attach(ScriptedApplication(grants: true))
        test.client.handle(.didBecomeActive)
        try await blocking { [client = test.client] in client.handle(.didEnterBackground) }
        #expect(test.client.flushBeforeEnterBackground && test.transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd"])
        await test.client.shutdown(within: .zero)
    }
}
