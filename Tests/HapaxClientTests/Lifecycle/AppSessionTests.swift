import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Sessions of an app, and what its events say in later runs (R43, R57)", .endsWhenItHangs)
struct AppSessionTests {
    private static let minute: Int64 = 60_000

    /// The value of a property in each event that was sent, by the event's name.
    private func sent(_ property: String, _ test: TestClient) async throws -> [String: PropertyValue] {
        _ = await test.client.flush()
        return test.transport.batches.flatMap(\.scanned.events).reduce(into: [:]) { all, event in
            let properties = Properties(json: String(decoding: event.properties, as: UTF8.self))
            all[String(decoding: event.name, as: UTF8.self)] = properties?[property]
        }
    }

    private func app(_ directory: TemporaryDirectory, _ clock: TestClock, isApp: Bool = true) throws -> TestClient {
        try TestClient(directory: directory, clock: clock) { $0.isApp = isApp }
    }

    @Test(
        "a pause of 30 minutes ends a session, a day does, a clock that goes back does not unless by a day",
        arguments: [
            (pauses: [29, 29], sessions: 1), (pauses: [30], sessions: 2), (pauses: [29, -600, 29], sessions: 1),
            (pauses: [29, -1_500], sessions: 2),
            (pauses: Array(repeating: 20, count: 71), sessions: 1), (pauses: Array(repeating: 20, count: 73), sessions: 2),
        ])
    func pausesEndSessions(pauses: [Int64], sessions: Int) throws {
        var intake = Intake(capacity: 1_000)
        var now: Int64 = 1_000_000_000_000
        intake.context.session = AppSession(id: .derived(name: "none", key: ""), began: 0, lastActivity: 0)
        var seen: [EventID] = []
        for pause in [0] + pauses {
            now += pause * Self.minute
            _ = intake.admit(name: "event", properties: [:], id: .made, time: nil, distinctID: nil, now: now)
            if let id = intake.context.session?.id, seen.last != id { seen.append(id) }
        }
        #expect(seen.count == sessions && Set(seen).count == sessions)
    }

    @Test("the next run goes on with the session for half an hour, and begins another afterwards; a service has none")
    func sessionsSurviveRuns() async throws {
        let (directory, clock) = (TemporaryDirectory(), TestClock())
        var ids: [EventID?] = []
        for pause in [0, 10, 20, 31] {
            clock.advance(by: .seconds(60 * pause))
            let run = try app(directory, clock)
            run.client.track("event")
            ids.append(run.client.sessionID)
            #expect(try await sent("$session_id", run) == ["event": .string(try #require(run.client.sessionID).description)])
            await run.client.shutdown(within: .zero)
        }
        #expect(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3])
        let service = try app(directory, clock, isApp: false)
        service.client.track("event")
        #expect(try await sent("$session_id", service) == [:])
        #expect(service.client.sessionID == nil)
    }

    @Test("the recovered end of a session that crashed says what that run's events said, not this one's")
    func recoveredEndSaysWhatItsRunSaid() async throws {
        let (directory, clock) = (TemporaryDirectory(), TestClock())
        let copy = TemporaryDirectory()
        let crashed = try app(directory, clock)
        crashed.client.updateCommonProperties { $0 = ["plan": "free"] }
        crashed.client.handle(.didBecomeActive)
        try await crashed.client.waitUntilStored()
        let session = try #require(crashed.client.sessionID)
        // As it is found after a crash.
        try FileManager.default.copyItem(atPath: directory.path("queue"), toPath: copy.path("queue"))
        clock.advance(by: .seconds(3_600))
        _ = try IdentityFile(QueueDirectory(path: copy.path("queue"))).change { $0.common = ["plan": "pro"] }
        let next = try app(copy, clock)
        next.client.track("event")
        #expect(try await sent("plan", next) == ["$AppStart": "free", "$AppEnd": "free", "event": "pro"])
        let sessions = try await sent("$session_id", next)
        #expect(sessions["$AppEnd"] == .string(session.description) && sessions["event"] != sessions["$AppEnd"])
        await crashed.client.shutdown(within: .zero)
    }

    @Test("an app's common properties hold in later runs, name by name, until a reset; a service's do not", arguments: [true, false])
    func commonPropertiesAreKept(isApp: Bool) async throws {
        let (directory, clock) = (TemporaryDirectory(), TestClock())
        let first = try app(directory, clock, isApp: isApp)
        // It reads what is there at its start.
        let beside = try app(directory, clock, isApp: isApp)
        first.client.updateCommonProperties { $0 = ["plan": "pro", "seats": 9_007_199_254_740_993, "gone": 1] }
        beside.client.updateCommonProperties { $0["beside"] = 1.5 }
        first.client.updateCommonProperties { $0["gone"] = nil }
        for run in [first, beside] {
            run.client.track("event")
            await run.client.shutdown(within: .zero)
        }
        let second = try app(directory, clock, isApp: isApp)
        #expect(second.client.commonProperties == (isApp ? ["plan": "pro", "seats": 9_007_199_254_740_993, "beside": 1.5] : [:]))
        second.client.reset()
        second.client.track("event")
        await second.client.shutdown(within: .zero)
        #expect(try app(directory, clock, isApp: isApp).client.commonProperties == [:])
    }

    @Test(
        "a queue that the first version wrote is opened and delivered: its events, its session's end, whom they concern; an opt-out holds")
    func firstVersionsQueueIsDelivered() async throws {
        for isOptedOut in [false, true] {
            let directory = TemporaryDirectory()
            let golden = try #require(Bundle.module.url(forResource: "queue-1", withExtension: nil, subdirectory: "Golden"))
            try FileManager.default.copyItem(atPath: golden.path, toPath: directory.path("queue"))
            if isOptedOut { #expect(FileManager.default.createFile(atPath: directory.path("queue/opt-out"), contents: nil)) }
            let test = try TestClient(directory: directory) {
                ($0.server, $0.writeKey, $0.distinctID) = (EventClient.Configuration.url("http://127.0.0.1:9"), "k", nil)
            }
            #expect(test.client.identity.loginID == "anna" && (test.client.consent == .denied) == isOptedOut)
            #expect((test.client.track("new") == nil) == isOptedOut)
            let report = await test.client.flush()
            let names = ["event 1", "event 2", "event 3"] + (isOptedOut ? [] : ["$AppEnd", "new"])
            #expect(report.stored == names.count && report.remaining == 0 && test.transport.batches.flatMap(\.names) == names)
            #expect(try await test.client.deadLetters.list().count == 1)
            await test.client.shutdown(within: .zero)
        }
    }
}
