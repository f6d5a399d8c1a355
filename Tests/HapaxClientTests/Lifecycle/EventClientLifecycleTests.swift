import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("EventClient in an app (R30–R52, D6–D10)", .endsWhenItHangs)
struct EventClientLifecycleTests {
    func properties(_ test: TestClient) -> [String] {
        test.transport.batches.flatMap(\.scanned.events).map { String(decoding: $0.properties, as: UTF8.self) }
    }

    @Test(
        "start and end are tracked in order, the end with the time in the foreground (R43, R44, R51), and flushed in the background (R30)")
    func sessionIsTracked() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication()
        test.client.attach(app)
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .milliseconds(12_500))
        test.client.handle(.willResignActive)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd"])
        #expect(properties(test) == ["{}", #"{"$event_duration":12.5}"#])
        #expect(app.given == 1 && app.ended == [1])
        test.client.handle(.backgroundTimeExpired)
        test.client.handle(.didBecomeActive)
        #expect(app.ended == [1], "once")
    }

    @Test("a session whose start was refused has no end either; the one that a grant begins has (R43, R44, D16)")
    func refusedStartHasNoEnd() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        try test.client.setConsent(.denied)
        test.client.handle(.didBecomeActive)
        test.client.handle(.didEnterBackground)
        test.client.handle(.didBecomeActive)
        try test.client.setConsent(.granted)
        test.client.handle(.didEnterBackground)
        test.client.handle(.didBecomeActive)
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd", "$AppStart"])
        await test.client.shutdown(within: .zero)
    }

    @Test("what is to be done once events are stored is not done when they are not (R43)")
    func failedCommitIsNotStored() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        test.client.track("stuck")
        let isDone = Locked(false)
        test.client.writer.whenStored { isDone.withLock { $0 = true } }
        await #expect(throws: TrackError.self) { try await test.client.writer.barrier(retrying: true) }
        #expect(!isDone.withLock { $0 })
    }

    @Test("the periodic timer stops in the background and starts with the app (R21, R36)")
    func periodicTimerStopsInTheBackground() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        let app = ScriptedApplication()
        test.client.attach(app)
        test.client.handle(.didBecomeActive)
        #expect(test.clock.pending == [.seconds(15)])
        test.client.handle(.didEnterBackground)
        #expect(test.clock.pending == [])
        test.client.handle(.didBecomeActive)
        #expect(test.clock.pending == [.seconds(15)])
    }

    @Test("launched passively: its own event, $app_state until the first activation, no periodic timer (R47–R49, D10)")
    func passiveLaunchIsMarked() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        test.client.attach(ScriptedApplication(isInBackground: true))
        #expect(test.clock.pending == [])
        test.client.track("push")
        test.client.handle(.willEnterForeground)
        test.client.handle(.didBecomeActive)
        test.client.track("seen")
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStartPassively", "push", "$AppStart", "seen"])
        let passive = #"{"$app_state":"background"}"#
        #expect(properties(test) == [passive, passive, "{}", "{}"])
    }

    @Test(
        "nothing hides that the app was launched in the background, enriched or not: no super property, no computed one, and not the event's own (R48)",
        arguments: [false, true])
    func propertiesHideNoState(isEnriched: Bool) async throws {
        let test = try TestClient {
            $0.enrichers.append(adding(["$app_state": "computed", "computed": true]))
            if isEnriched {
                $0.enrichers += [
                    { draft in
                        var draft = draft
                        if draft.name == "push" { draft.properties["$app_state"] = nil }
                        return draft
                    }
                ]
            }
        }
        test.client.updateCommonProperties { $0 = ["$app_state": "super"] }
        test.client.attach(ScriptedApplication(isInBackground: true))
        test.client.track("push", properties: ["$app_state": "own"])
        test.client.handle(.didBecomeActive)
        test.client.track("seen", properties: ["$app_state": "own"])
        _ = await test.client.flush()
        let passive = #"{"$app_state":"background","computed":true}"#
        let active = ["computed", "own"].map { #"{"$app_state":"\#($0)","computed":true}"# }
        #expect(properties(test) == [passive, passive] + active)
    }

    @Test("a signal that comes while another one's actions are performed waits for the last of them, and its caller does not (R52, D7)")
    func nestedSignalWaitsInLine() {
        let lifecycle = AppLifecycle()
        var performed: [LifecycleStateMachine.Action] = []
        func perform(_ action: LifecycleStateMachine.Action) -> Bool {
            performed.append(action)
            if performed.count == 1 { lifecycle.handle(.signal(.didEnterBackground), perform: perform) }
            return false
        }
        lifecycle.handle(.signal(.didBecomeActive), perform: perform)
        var machine = LifecycleStateMachine()
        let first = machine.handle(.didBecomeActive)
        let second = machine.handle(.didEnterBackground)
        #expect(first.count > 1 && Array(performed.prefix(first.count)) == first)
        #expect(performed.dropFirst(first.count).first == second.first)
    }

    @Test("what is left of a session is forgotten by the id of that one only (R43)")
    func sessionIsForgottenByItsID() throws {
        let test = try TestClient()
        let (old, new) = (EventID.derived(name: "session", key: "1"), EventID.derived(name: "session", key: "2"))
        try test.client.file.save(QueueFile.SessionRow(lastActivity: 7, start: new, distinctID: "u", base: "{}"))
        try test.client.file.removeSession(start: old)
        #expect(try test.client.file.openSession()?.start == new)
        try test.client.file.removeSession(start: new)
        #expect(try test.client.file.openSession() == nil)
    }

    @Test("the last activity is known to a second, and written no more often (R43)")
    func activityIsWrittenEachSecond() async throws {
        let test = try TestClient()
        let marker = SessionMarker(file: test.client.file, clock: test.clock) { EventContext(identity: Identity(anonymousID: "u")) }
        marker.began(.derived(name: "session", key: "1"), for: "u")
        var written: [Int64?] = []
        for _ in 0..<5 {
            marker.eventsStored()
            written.append(try test.client.file.openSession().map { $0.lastActivity - TestClock.start })
            test.clock.advance(by: .milliseconds(500))
        }
        #expect(written == [0, 0, 1_000, 1_000, 2_000])
    }

    @Test("timers stand still in the background and go on afterwards (R52, R54, D8)")
    func timersStandStill() async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        let read = test.client.startTimer("read")
        test.clock.advance(by: .seconds(2))
        test.client.handle(.didEnterBackground)
        test.clock.advance(by: .seconds(100))
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .seconds(3))
        read.end()
        _ = await test.client.flush()
        #expect(properties(test).last == #"{"$event_duration":5.0}"#)
    }

    @Test("a client that uploads only when it is asked has no timer, whatever the app does (R26)")
    func askedClientHasNoTimer() async throws {
        let test = try TestClient()
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        #expect(test.clock.pending.isEmpty)
        _ = await test.client.shutdown(within: .zero)
    }
}
