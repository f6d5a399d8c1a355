import AppleStubs
import Foundation
import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

/// The real adapter over real notifications, with a stub in UIKit's place.
@MainActor
@Suite("UIKitApplication (R30–R34, R43–R50, D7, D9)", .endsWhenItHangs)
struct UIKitApplicationTests {
    private let application = UIApplication()
    private let test: TestClient

    init() throws {
        test = try TestClient { $0.uploadOnlyInBackground() }
    }

    private func post(_ names: NSNotification.Name...) {
        for name in names { NotificationCenter.default.post(name: name, object: application) }
    }

    private func enterBackground() {
        application.background.remaining = 20
        post(UIApplication.willResignActiveNotification, UIApplication.didEnterBackgroundNotification)
    }

    /// What was tracked, delivered or not.
    private func names() async throws -> [String] {
        try await test.client.writer.barrier()
        let waiting = try test.client.file.nextBatch(.oldest(limit: 1_000), maximumBytes: .max, now: 0).events
        let bodies = waiting.map { String(decoding: $0.bytes, as: UTF8.self) }
        let known = ["$AppStartPassively", "$AppStart", "$AppEnd", "push", "seen"]
        let stored = bodies.map { body in known.first { body.contains(#""event":"\#($0)""#) } ?? body }
        return test.transport.batches.flatMap(\.names) + stored
    }

    @Test("cold start, background, back: start, end, start (R43, R44, R46)")
    func sessionsAlternate() async throws {
        test.client.attach(application)
        post(UIApplication.didBecomeActiveNotification)
        enterBackground()
        await application.background.ended(1)
        post(UIApplication.willEnterForegroundNotification, UIApplication.didBecomeActiveNotification)
        #expect(try await names() == ["$AppStart", "$AppEnd", "$AppStart"])
    }

    @Test("attached before there is an application, it follows the one that launches, once; a client that is gone follows none")
    func attachesWhatLaunches() async throws {
        test.client.attach()
        try TestClient().client.attach()
        for _ in 0..<2 { post(UIApplication.didFinishLaunchingNotification) }
        post(UIApplication.didBecomeActiveNotification)
        #expect(try await names() == ["$AppStart"])
    }

    @Test("a permission alert before the first activation does not lose the start (D9)")
    func alertKeepsTheStart() async throws {
        test.client.attach(application)
        post(UIApplication.willResignActiveNotification, UIApplication.didBecomeActiveNotification)
        #expect(try await names() == ["$AppStart"])
    }

    @Test("control centre and back is the same session (R45)")
    func controlCentreIsSilent() async throws {
        test.client.attach(application)
        post(UIApplication.didBecomeActiveNotification)
        post(UIApplication.willResignActiveNotification, UIApplication.didBecomeActiveNotification)
        #expect(try await names() == ["$AppStart"])
    }

    @Test("an app that is active already when it is attached has started (R44)")
    func lateAttachmentStarts() async throws {
        application.applicationState = .active
        test.client.attach(application)
        #expect(try await names() == ["$AppStart"])
    }

    @Test("in the background what is left is flushed under one background task, within its time (R30, R32–R34)")
    func backgroundIsFlushed() async throws {
        test.client.attach(application)
        post(UIApplication.didBecomeActiveNotification)
        enterBackground()
        #expect(application.background.begun == 1, "begun before the notification returns")
        await application.background.ended(1)
        #expect(test.transport.batches.map(\.names) == [["$AppStart", "$AppEnd"]])
        #expect(test.transport.batches.first?.request.timeout == .seconds(10))
        #expect(application.background.begun == 1 && application.background.ended == [1])
    }

    @Test("the endless time that UIKit reports in the foreground is no trap (R34)")
    func endlessTimeIsBounded() {
        let adapter = UIKitApplication(application, isInBackground: false, client: test.client)
        #expect(adapter.remainingBackgroundTime == .seconds(3_600))
        application.background.remaining = -1
        #expect(adapter.remainingBackgroundTime == .zero)
    }

    @Test("when the time is over the task is ended at once, though a request hangs (R30, D6, D7)")
    func expiryEndsTheTask() async throws {
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.attach(application)
        post(UIApplication.didBecomeActiveNotification)
        enterBackground()
        await test.transport.requests(1)
        application.background.expire()
        #expect(application.background.ended == [1])
        _ = await test.client.shutdown(within: .zero)
        #expect(application.background.ended == [1])
    }

    @Test("without a background task nothing is sent, and everything stays (R31)")
    func refusedTaskSendsNothing() async throws {
        application.background.isGranting = false
        test.client.attach(application)
        post(UIApplication.didBecomeActiveNotification)
        enterBackground()
        #expect(try await names() == ["$AppStart", "$AppEnd"])
        #expect(await test.client.flush().failure == .noBackgroundTime)
        #expect(test.transport.batches.isEmpty && application.background.ended == [])
    }

    @Test("launched into the background: its own event, and $app_state until it is shown (R47–R49)", arguments: [nil, true])
    func passiveLaunch(told: Bool?) async throws {
        application.applicationState = told == nil ? .background : .inactive
        test.client.attach(application, launchedInBackground: told)
        test.client.track("push")
        application.applicationState = .inactive
        post(UIApplication.willEnterForegroundNotification, UIApplication.didBecomeActiveNotification)
        test.client.track("seen")
        #expect(try await names() == ["$AppStartPassively", "push", "$AppStart", "seen"])
        _ = await test.client.flush()
        let states = test.transport.batches.flatMap(\.scanned.events).map {
            String(decoding: $0.properties, as: UTF8.self).contains(#""$app_state":"background""#)
        }
        #expect(states == [true, true, false, false])
    }

    @Test(
        "an app with scenes is in the background while it launches: one that is shown then was not launched passively (R47, R49)",
        arguments: [nil, false])
    func launchWithScenes(told: Bool?) async throws {
        application.applicationState = .background
        test.client.attach(application, launchedInBackground: told, hasScenes: true)
        application.applicationState = .inactive
        post(UIApplication.willEnterForegroundNotification, UIApplication.didBecomeActiveNotification)
        test.clock.advance(by: UIKitApplication.sceneTime)
        #expect(try await names() == ["$AppStart"])
    }

    @Test("an app with scenes of which none is shown two seconds later was launched passively (R47–R49)")
    func passiveLaunchWithScenes() async throws {
        application.applicationState = .background
        test.client.attach(application, launchedInBackground: nil, hasScenes: true)
        test.clock.advance(by: UIKitApplication.sceneTime)
        while test.client.lifecycle.machine.state != .background { await Task.yield() }
        test.client.track("push")
        #expect(try await names() == ["$AppStartPassively", "push"])
    }

    @Test("when willTerminate has been posted all is stored, on the main thread and with a network that hangs (R37–R39, D7)")
    func terminationStores() async throws {
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.attach(application)
        post(UIApplication.didBecomeActiveNotification)
        async let report = test.client.flush()
        await test.transport.requests(1)
        for index in 0..<100 { test.client.track("event \(index)") }
        post(UIApplication.willTerminateNotification)
        #expect(test.client.file.counters.waiting == 102)
        _ = await test.client.shutdown(within: .zero)
        #expect(await report.failure != nil)
    }

    @Test("after shutdown no notification reaches the client (R50)")
    func shutdownEndsSubscriptions() async throws {
        test.client.attach(application)
        _ = await test.client.shutdown(within: .zero)
        post(UIApplication.didBecomeActiveNotification)
        #expect(test.client.lifecycle.machine.state == .inactive)
        #expect(await test.client.status().dropped == [:], "nothing was even refused")
    }

    @Test("another application's notifications are not ours")
    func otherApplicationsAreIgnored() async throws {
        test.client.attach(application)
        NotificationCenter.default.post(name: UIApplication.didBecomeActiveNotification, object: UIApplication())
        #expect(try await names() == [])
    }

    @Test("a client that nobody keeps ends its subscriptions, and the task of a flush that outlives it (R30, R50)")
    func forgottenClientEnds() async throws {
        weak var adapter: UIKitApplication?
        do {
            let test = try TestClient()
            test.client.attach(application)
            let attached = test.client.lifecycle.withRecord { $0.adapter } as? UIKitApplication
            adapter = attached
            _ = attached?.beginAssertion()
        }
        #expect(adapter == nil)
        post(UIApplication.didBecomeActiveNotification)
        application.background.expire()
        #expect(application.background.ended == [1])
    }
}
