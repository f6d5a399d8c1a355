import AppleStubs
import Foundation
import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@MainActor
@Suite("AppKitApplication (R37–R39, R43–R45, R50)", .endsWhenItHangs)
struct AppKitApplicationTests {
    private let application = NSApplication()

    private func post(_ names: NSNotification.Name...) {
        for name in names { NotificationCenter.default.post(name: name, object: application) }
    }

    @Test("a session lasts from the first activation to the termination, whose end is stored when it has been posted (R38, R45)")
    func sessionLastsUntilTermination() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.attach(application)
        post(NSApplication.didBecomeActiveNotification, NSApplication.willResignActiveNotification)
        post(NSApplication.didBecomeActiveNotification)
        test.clock.advance(by: .seconds(3))
        async let report = test.client.flush()
        await test.transport.requests(1)
        post(NSApplication.willTerminateNotification)
        let stored = try test.client.file.nextBatch(.oldest(limit: 1_000), maximumBytes: .max, now: 0).events
        let texts = stored.map { String(decoding: $0.bytes, as: UTF8.self) }
        #expect(texts.count == 2)
        #expect(texts.first?.contains(#""event":"$AppStart""#) == true)
        #expect(texts.last?.contains(#""event":"$AppEnd""#) == true && texts.last?.contains(#""$event_duration":3.0"#) == true)
        _ = await test.client.shutdown(within: .zero)
        _ = await report
    }

    @Test("attached before there is an application, it follows the one that launches")
    func attachesWhatLaunches() async throws {
        let test = try TestClient()
        test.client.attach()
        post(NSApplication.didFinishLaunchingNotification, NSApplication.didBecomeActiveNotification)
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStart"])
    }

    @Test("behind other apps it uploads as before: a Mac app has no background")
    func inactiveAppUploads() async throws {
        let test = try TestClient()
        application.isActive = true
        test.client.attach(application)
        post(NSApplication.willResignActiveNotification)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.first?.request.timeout == .seconds(30))
    }

    @Test("after shutdown no notification reaches the client (R50)")
    func shutdownEndsSubscriptions() async throws {
        let test = try TestClient()
        test.client.attach(application)
        _ = await test.client.shutdown(within: .zero)
        post(NSApplication.didBecomeActiveNotification)
        #expect(test.client.lifecycle.machine.state == .inactive)
    }
}
