import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Where a session ends and another begins while the app is shown (R42–R51)", .endsWhenItHangs)
struct SessionChangeTests {
    private struct Sent: CustomStringConvertible {
        var name: String
        var user: String
        var properties: Properties
        var description: String { "\(name) of \(user): \(properties.byName)" }
    }

    private func app(_ directory: TemporaryDirectory = TemporaryDirectory()) throws -> TestClient {
        try TestClient(directory: directory) { ($0.isApp, $0.distinctID) = (true, nil) }
    }

    private func sent(_ test: TestClient) async -> [Sent] {
        _ = await test.client.flush()
        return test.transport.batches.flatMap(\.scanned.events).map { event in
            Sent(
                name: String(decoding: event.name, as: UTF8.self), user: String(decoding: event.distinctID, as: UTF8.self),
                properties: Properties(json: String(decoding: event.properties, as: UTF8.self)) ?? [:])
        }
    }

    @Test(
        "C12: reset while the app is shown ends the first person's session and begins the second's, with the screen; they share nothing (R44, R51)"
    )
    func resetBeginsASession() async throws {
        let test = try app()
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        test.client.trackScreen("cart", properties: ["items": 2])
        let first = test.client.identity.distinctID
        test.clock.advance(by: .seconds(60))
        test.client.reset()
        let second = test.client.identity.distinctID
        test.clock.advance(by: .seconds(5))
        test.client.handle(.didEnterBackground)
        let all = await sent(test)
        #expect(
            all.map(\.name) == ["$AppStart", "$AppViewScreen", "$AppEnd", "$AppStart", "$AppViewScreen", "$AppEnd"], "\(all)")
        #expect(all.map(\.user) == Array(repeating: first, count: 3) + Array(repeating: second, count: 3) && first != second)
        let sessions = all.map { $0.properties["$session_id"] }
        #expect(Set(sessions[..<3]).count == 1 && Set(sessions[3...]).count == 1 && sessions[0] != sessions[3])
        #expect(all.map { $0.properties["$event_duration"] } == [nil, nil, 60.0, nil, nil, 5.0])
        #expect(all.map { $0.properties["$screen_duration"] } == [nil, nil, 60.0, nil, nil, 5.0])
        #expect(all[4].properties["$previous_screen"] == nil && all[4].properties["items"] == 2)
    }

    @Test("C12: reset in the background tracks nothing; the next activation begins the session, which has another id already (R44)")
    func resetInTheBackground() async throws {
        let (directory, test) = (TemporaryDirectory(), try app())
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        test.client.trackScreen("cart")
        test.client.handle(.didEnterBackground)
        let first = test.client.sessionID
        test.client.reset()
        try await test.client.waitUntilStored()
        let second = test.client.sessionID
        // As it is found when the app is killed there.
        try FileManager.default.copyItem(atPath: test.directory.path("queue"), toPath: directory.path("queue"))
        #expect(try app(directory).client.sessionID == second && first != second)
        test.client.handle(.didBecomeActive)
        let all = await sent(test)
        #expect(all.map(\.name) == ["$AppStart", "$AppViewScreen", "$AppEnd", "$AppStart", "$AppViewScreen"], "\(all)")
        #expect(all.last?.properties["$previous_screen"] == nil && all.last?.user == test.client.identity.distinctID)
    }

    @Test(
        "C11: consent that is given back while the app is shown, here or by another process, tracks the start and the screen that is shown (R44)",
        arguments: [true, false], [Consent.granted, .pending])
    func consentGivenBack(isOwn: Bool, consent: Consent) async throws {
        let test = try app()
        test.client.attach(ScriptedApplication())
        try test.client.setConsent(.denied)
        test.client.handle(.didBecomeActive)
        test.client.trackScreen("list")
        test.client.trackScreen("cart", properties: ["items": 2])
        test.clock.advance(by: .seconds(60))
        if isOwn {
            try test.client.setConsent(consent)
        } else {
            try QueueDirectory(path: test.directory.path("queue")).setConsent(consent)
            // The commit of what was refused learns of it.
            try await test.client.waitUntilStored()
        }
        #expect(test.client.consent == consent)
        test.clock.advance(by: .seconds(5))
        test.client.trackScreen("cart")
        test.client.handle(.didEnterBackground)
        try test.client.setConsent(.granted)
        let all = await sent(test)
        #expect(all.map(\.name) == ["$AppStart", "$AppViewScreen", "$AppEnd"], "\(all)")
        #expect(all.map { $0.properties["$event_duration"] } == [nil, nil, 5.0])
        #expect(all.map { $0.properties["$screen_name"] } == [nil, "cart", "cart"] && all[1].properties["$previous_screen"] == nil)
    }

    @Test("C11: after a grant of what was pending nothing begins again: its start has waited; nor in the background")
    func pendingStartIsNotTwice() async throws {
        let test = try app()
        test.client.attach(ScriptedApplication())
        try test.client.setConsent(.pending)
        test.client.handle(.didBecomeActive)
        try test.client.setConsent(.granted)
        test.client.handle(.didEnterBackground)
        try test.client.setConsent(.denied)
        try test.client.setConsent(.granted)
        let names = await sent(test).map(\.name)
        #expect(names == ["$AppStart", "$AppEnd"])
    }

    @Test("C11: a screen whose event was refused is told when it is named again, and no event is on it before")
    func refusedScreenIsNotNoted() async throws {
        let test = try TestClient { $0.queue.mailboxCapacity = 2 }
        test.client.trackScreen("list")
        let mayGoOn = try await test.holdWriter()
        test.client.track("event")
        test.client.track("event")
        test.client.trackScreen("cart")
        mayGoOn.signal()
        try await test.client.waitUntilStored()
        test.client.track("event")
        try await test.client.waitUntilStored()
        test.client.trackScreen("cart")
        let screens = await sent(test).map { $0.properties["$screen_name"] }
        #expect(screens == ["list", "list", "list", "list", "cart"])
    }

    @Test(
        "A9: a screen that appears in the background is no event; the one that is shown is told when the app becomes active (R48)",
        arguments: [true, false])
    func screensOfTheBackground(isKnown: Bool) async throws {
        let test = try app()
        if isKnown {
            test.client.attach(ScriptedApplication(isInBackground: true))
        } else {
            // An app with scenes, of which it is known two seconds later.
            test.client.parts.attach(ScriptedApplication(), decidingAfter: .seconds(2)) { true }
        }
        test.client.trackScreen("list")
        test.client.trackScreen("cart")
        test.client.handle(.didBecomeActive)
        test.client.trackScreen("cart")
        test.client.handle(.didEnterBackground)
        test.client.trackScreen("list")
        test.client.trackScreen("cart")
        test.client.handle(.didBecomeActive)
        let all = await sent(test).filter { $0.name != "$AppStartPassively" }
        #expect(all.map(\.name) == ["$AppStart", "$AppViewScreen", "$AppEnd", "$AppStart"], "\(all)")
        #expect(all.allSatisfy { $0.properties["$app_state"] == nil } && all[1].properties["$screen_name"] == "cart")
    }

    @Test("C14: killed between the end of a session and the commit of its $AppEnd, it has an end all the same, and one (R43)")
    func endIsNotLostBeforeItsCommit() async throws {
        let (directory, copy, commits) = (TemporaryDirectory(), TemporaryDirectory(), Locked(0))
        let test = try TestClient(directory: directory) {
            $0.isApp = true
            $0.onStored = { event in
                // Three groups: here the first one is stored and noted, and the end is in the third.
                guard String(decoding: event, as: UTF8.self).contains(#""number":1500"#) else { return }
                commits.withLock { $0 += 1 }
                try? FileManager.default.copyItem(atPath: directory.path("queue"), toPath: copy.path("queue"))
            }
        }
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        try await test.client.waitUntilStored()
        let mayGoOn = try await test.holdWriter()
        for number in 0..<2_000 { test.client.track("event", properties: ["number": number]) }
        test.client.handle(.didEnterBackground)
        mayGoOn.signal()
        try await test.client.waitUntilStored()
        #expect(commits.withLock { $0 } == 1)
        for (client, recovered) in [(test, 0), (try app(copy), 1)] {
            let ends = await sent(client).filter { $0.name == "$AppEnd" }
            #expect(ends.count == 1 && ends.count { $0.properties["$recovered"] == true } == recovered, "\(recovered): \(ends)")
        }
    }

    /// Returns when a policy's upload has ended, or found that it may make no request.
    private func upload(_ test: TestClient) async {
        await test.client.delivery.uploadWanted()
        await test.client.delivery.restBegins()
    }

    @Test("C16: of an app nothing is uploaded by itself before it is heard of, and then only as R31 says", arguments: [true, false])
    func awaitedAppUploadsNothing(isInBackground: Bool) async throws {
        let test = try TestClient { ($0.isApp, $0.uploads.interval, $0.uploads.bulkSize) = (true, .seconds(5), 1) }
        try await test.track(0..<3)
        test.clock.advance(by: .seconds(6))
        await upload(test)
        #expect(test.transport.batches.isEmpty)
        test.client.attach(ScriptedApplication(isInBackground: isInBackground, grants: false))
        if isInBackground {
            try await test.track(3..<6)
            await upload(test)
            #expect(test.transport.batches.isEmpty)
            test.client.handle(.didBecomeActive)
        }
        await test.transport.requests(1)
        await test.client.shutdown(within: .zero)
    }

    @Test("C16: of an app that nobody attaches uploads begin ten seconds after the opening, with one warning; a service's begin at once")
    func unattachedAppUploadsLater() async throws {
        for isApp in [true, false] {
            let log = RecordedLog()
            let test = try TestClient {
                ($0.isApp, $0.uploads.interval, $0.uploads.bulkSize) = (isApp, .seconds(1_000), 1)
                $0.logger = Logger(label: "test") { _ in log }
            }
            try await test.track(0..<3)
            if isApp {
                await upload(test)
                #expect(test.transport.batches.isEmpty)
            }
            for _ in 0..<2 { test.clock.advance(by: .seconds(10)) }
            await test.transport.requests(1)
            #expect(log.lines.count { $0.hasPrefix("warning") && $0.contains("attach()") } == (isApp ? 1 : 0))
            await test.client.shutdown(within: .zero)
        }
    }
}
