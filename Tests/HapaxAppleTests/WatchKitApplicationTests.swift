import AppleStubs
import Foundation
import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@MainActor
@Suite("WatchKitApplication (C24, R30, R31, R43–R47)", .serialized, .endsWhenItHangs)
struct WatchKitApplicationTests {
    private func post(_ names: NSNotification.Name...) {
        for name in names { NotificationCenter.default.post(name: name, object: WKApplication.shared()) }
    }

    @Test("a session lasts from the activation to the background, where nothing is sent; what waits is sent when the app is shown again")
    func sessionLastsUntilTheBackground() async throws {
        let test = try TestClient()
        test.client.followWatch()
        post(WKApplication.willEnterForegroundNotification, WKApplication.didBecomeActiveNotification)
        test.clock.advance(by: .seconds(3))
        #expect(await test.client.flush().stored == 1)
        post(WKApplication.willResignActiveNotification, WKApplication.didEnterBackgroundNotification)
        test.client.track("event")
        #expect(await test.client.flush().failure == .noBackgroundTime)
        post(WKApplication.willEnterForegroundNotification, WKApplication.didBecomeActiveNotification)
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd", "event", "$AppStart"])
        _ = await test.client.shutdown(within: .zero)
        post(WKApplication.didEnterBackgroundNotification)
        #expect(test.client.lifecycle.machine.state == .active, "after its end no notification reaches it (R50)")
    }

    @Test("launched and not shown, it is taken for launched in the background two seconds later (R47, R49)")
    func passiveLaunchIsSeen() async throws {
        let test = try TestClient()
        test.client.followWatch()
        test.clock.advance(by: WatchKitApplication.launchTime)
        while test.client.lifecycle.machine.state != .background { await Task.yield() }
        try await test.client.writer.barrier()
        let stored = try test.client.file.nextBatch(.oldest(limit: 10), maximumBytes: .max, now: 0).events
        #expect(stored.contains { String(decoding: $0.bytes, as: UTF8.self).contains(#""event":"$AppStartPassively""#) })
    }
}
