import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("EventClient in an app (R30–R52, D6–D10)", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct EventClientLifecycleTests {
    private func properties(_ test: TestClient) -> [String] {
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

    @Test("a session whose start was refused has no end either (R43, R44, D16)")
    func refusedStartHasNoEnd() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        try test.client.optOut()
        test.client.handle(.didBecomeActive)
        try test.client.optIn()
        test.client.handle(.didEnterBackground)
        test.client.handle(.didBecomeActive)
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStart"])
        await test.client.shutdown(within: .zero)
    }

    @Test("each time the app enters the background what waits is sent (R30)")
    func everyBackgroundFlushes() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication()
        test.client.attach(app)
        for round in 1...3 {
            test.client.handle(.didBecomeActive)
            test.client.handle(.didEnterBackground)
            await app.assertionEnded(round)
            #expect(test.transport.batches.count == round && test.client.queue.books.depth == 0)
        }
    }

    @Test("what was tracked before the app enters the background is sent there, also if its commit is still under way (R30)")
    func backgroundFlushWaitsForCommits() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication()
        test.client.attach(app)
        try await test.track(0..<1)
        let (isHeld, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        test.client.writer.whenStored {
            isHeld.signal()
            mayGoOn.wait()
        }
        try await blocking { isHeld.wait() }
        test.client.track("late")
        test.client.handle(.didEnterBackground)
        // Until the flush waits for the event, or does not and is over.
        while test.client.writer.intake.withLock({ $0.mailbox.count }) < 2, app.ended.isEmpty { await Task.yield() }
        mayGoOn.signal()
        await app.assertionEnded()
        #expect(test.transport.batches.flatMap(\.names) == ["event 0", "late"])
        await test.client.shutdown(within: .zero)
    }

    @Test("if the app enters the background again while its last flush there finds no time, there is another one (R30, I15)")
    func flushIsMadeUpFor() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        try await test.track(0..<1)
        let app = ScriptedApplication(remaining: .zero)
        app.whenAsked { [client = test.client] in
            app.remainingBackgroundTime = .seconds(30)
            client.handle(.didBecomeActive)
            client.handle(.didEnterBackground)
        }
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(test.transport.batches.flatMap(\.names) == ["event 0", "$AppStart", "$AppEnd"])
        #expect(app.given == 1 && app.ended == [1], "one assertion covers both")
    }

    @Test("who asks for an upload gets an assertion in the background only, and it is given back once (R30, R31)")
    func requestedAssertionEndsOnce() async throws {
        let test = try TestClient()
        let app = ScriptedApplication()
        test.client.attach(app)
        test.client.handle(.didBecomeActive)
        #expect(await test.client.flush().stored == 1 && app.given == 0)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(await test.client.flush().stored == 1 && app.given == 2)
        test.client.handle(.backgroundTimeExpired)
        #expect(app.ended == [1, 2])
    }

    @Test("if no flush begins, entering the background waits for none (R31, R35)")
    func refusedFlushIsNotWaitedFor() async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.flushBeforeEnterBackground = true
        }
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didBecomeActive)
        try await blocking { [client = test.client] in client.handle(.didEnterBackground) }
        try await test.client.writer.barrier()
        #expect(test.client.queue.books.depth == 2 && test.transport.batches.isEmpty)
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

    @Test("without an assertion nothing is sent and everything stays (R31)")
    func refusedAssertionSendsNothing() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication(grants: false)
        test.client.attach(app)
        test.client.handle(.didBecomeActive)
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        #expect(test.client.queue.books.depth == 2 && test.transport.batches.isEmpty && app.ended.isEmpty)
    }

    @Test("batch after batch while each still fits into what is left (R32, R33)")
    func backgroundFlushKeepsItsBudget() async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.batchSize = 1
        }
        let app = ScriptedApplication(remaining: .seconds(13))
        test.transport.script { batch in
            app.remainingBackgroundTime -= .seconds(5)
            return .success(batch.receipt())
        }
        try await test.track(0..<5)
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(test.transport.batches.map(\.request.timeout) == [.seconds(10), .seconds(6), .seconds(3)])
        #expect(test.client.queue.books.depth == 2, "−2 s left: the rest stays")
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        #expect(await test.client.flush().stored == 3)
        #expect(test.transport.batches.last?.request.timeout == .seconds(30), "the usual one again")
    }

    @Test(
        "a failure ends a background flush: one request, and the assertion is given back (R30, R32, D11, I16)",
        arguments: [.failure(.cut), .success(TransportAnswer(status: 503)), .success(TransportAnswer(status: 401))]
            as [Result<TransportAnswer, TransportFailure>])
    func failureEndsTheBackgroundFlush(answer: Result<TransportAnswer, TransportFailure>) async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.batchSize = 1
        }
        let app = ScriptedApplication()
        test.transport.script { _ in answer }
        try await test.track(0..<3)
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(test.transport.batches.map(\.names) == [["event 0"]] && app.ended == [1])
        #expect(test.client.queue.books.depth == 3)
        await test.client.shutdown(within: .zero)
    }

    @Test("a budget that is too small sends nothing, and does not cut a backoff short (R33, D11)")
    func smallBudgetSendsNothing() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        test.transport.script { _ in .failure(.cut) }
        try await test.track(0..<1)
        #expect(await test.client.flush().failure == .transport(.cut))
        let waits = test.clock.pending.filter { $0 != EventClient.Configuration.farAway }
        #expect(waits.count == 1)
        let app = ScriptedApplication(remaining: .milliseconds(2_900))
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        #expect(test.transport.batches.count == 1 && test.clock.pending == waits)
    }

    @Test("when the time is over the assertion is given back at once, though a request hangs (R30, D6)")
    func expiryEndsTheAssertion() async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.batchSize = 1
        }
        let app = ScriptedApplication()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        try await test.track(0..<2)
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await test.transport.requests(1)
        test.client.handle(.backgroundTimeExpired)
        #expect(app.ended == [1])
        _ = await test.client.shutdown(within: .zero)
        #expect(test.transport.batches.count == 1 && app.ended == [1])
    }

    @Test("a flush whose time in the background is over begins no further batch, though the app is back by then (R32)")
    func expiredFlushDoesNotGoOn() async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.batchSize = 1
        }
        let app = ScriptedApplication()
        let mayAnswer = AwaitedCount()
        test.transport.script { batch in
            await mayAnswer.reaches(1)
            return .success(batch.receipt())
        }
        try await test.track(0..<3)
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await test.transport.requests(1)
        test.client.handle(.backgroundTimeExpired)
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        mayAnswer.set(1)
        while test.client.lifecycle.withRecord({ $0.isFlushing }) { await Task.yield() }
        #expect(test.transport.batches.flatMap(\.names) == ["event 0"] && app.ended == [1])
        #expect(await test.client.flush().stored == 3, "what is left, and the start")
        await test.client.shutdown(within: .zero)
    }

    @Test("the periodic timer stops in the background and starts with the app (R21, R36)")
    func periodicTimerStopsInTheBackground() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
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
        let test = try TestClient { $0.uploadsAutomatically = true }
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
            $0.computedProperties = { ["$app_state": "computed", "computed": true] }
            if isEnriched { $0.enrichers = [{ $0 }] }
        }
        test.client.superProperties = ["$app_state": "super"]
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
        let session = EventQueue.OpenSession(start: new, lastActivity: 7)
        try test.client.queue.save(session)
        try test.client.queue.removeSession(start: old)
        #expect(try test.client.queue.openSession() == session)
        try test.client.queue.removeSession(start: new)
        #expect(try test.client.queue.openSession() == nil)
    }

    @Test("the last activity is known to a second, and written no more often (R43)")
    func activityIsWrittenEachSecond() async throws {
        let test = try TestClient()
        let marker = SessionMarker(queue: test.client.queue, clock: test.clock)
        marker.began(.derived(name: "session", key: "1"))
        var written: [Int64?] = []
        for _ in 0..<5 {
            marker.eventsStored()
            written.append(try test.client.queue.openSession().map { $0.lastActivity - ManualClock.start })
            test.clock.advance(by: .milliseconds(500))
        }
        #expect(written == [0, 0, 1_000, 1_000, 2_000])
    }

    @Test("timers stand still in the background and go on afterwards (R52, R54, D8)")
    func timersStandStill() async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        test.client.startTimer("read")
        test.clock.advance(by: .seconds(2))
        test.client.handle(.didEnterBackground)
        test.clock.advance(by: .seconds(100))
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .seconds(3))
        test.client.endTimer("read")
        _ = await test.client.flush()
        #expect(properties(test).last == #"{"$event_duration":5.0}"#)
    }

    @Test("entering the background waits for the uploads only if told to, and not longer than granted (R35)", arguments: [true, false])
    func enteringBackgroundMayWait(hangs: Bool) async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.flushBeforeEnterBackground = true
        }
        let app = ScriptedApplication(remaining: .seconds(30))
        if hangs { test.transport.script { [transport = test.transport] _ in await transport.hang() } }
        try await test.track(0..<3)
        test.client.attach(app)
        let client = test.client
        async let returned: Void = blocking { client.handle(.didEnterBackground) }
        if hangs {
            await test.transport.requests(1)
            while test.clock.pending.contains(EventClient.Configuration.farAway) { await Task.yield() }
            await test.clock.scheduled(1)
            test.clock.advance(by: .seconds(28))
        }
        try await returned
        #expect(client.queue.books.depth == (hangs ? 3 : 0))
        _ = await client.shutdown(within: .zero)
    }

    // MARK: - Termination

    @Test("when willTerminate returns all is stored, the end too, though the network hangs (R37–R39, D7)")
    func terminationStores() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.handle(.didBecomeActive)
        async let report = test.client.flush()
        await test.transport.requests(1)
        for index in 0..<500 { test.client.track("event \(index)") }
        test.client.handle(.willTerminate)
        #expect(test.client.queue.books.depth == 502)
        _ = await test.client.shutdown(within: .zero)
        #expect(await report.failure != nil)
    }

    @Test("a termination that follows the background waits for what was tracked there, as one that comes from the foreground (R37)")
    func terminationInTheBackgroundStores() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didBecomeActive)
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        let (isHeld, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        test.client.writer.whenStored {
            isHeld.signal()
            mayGoOn.wait()
        }
        try await blocking { isHeld.wait() }
        test.client.track("in the background")
        async let returned: Int64 = blocking { [client = test.client] in
            client.handle(.willTerminate)
            return client.queue.books.depth
        }
        // The bound, which this clock never reaches.
        await test.clock.scheduled(1)
        mayGoOn.signal()
        #expect(try await returned == 3)
        await test.client.shutdown(within: .zero)
    }

    @Test("a store that hangs holds a terminating app for 500 ms, not longer (R38)")
    func terminationIsBounded() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        let client = test.client
        client.track("stuck")
        async let returned: Void = blocking { client.handle(.willTerminate) }
        // The commit's next attempt, and the bound.
        await test.clock.scheduled(2)
        #expect(test.clock.pending.contains(.milliseconds(500)), "nor shorter")
        test.clock.advance(by: .milliseconds(500))
        try await returned
        #expect(client.queue.books.depth == 0)
    }

    @Test("whoever is told to terminate waits, also if another thread was told before (R38)")
    func everyTerminationWaits() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        let client = test.client
        client.track("stuck")
        async let first: Void = blocking { client.handle(.willTerminate) }
        await test.clock.scheduled(2)
        let returned = Locked(0)
        let ready = Gate()
        async let others: [Void] = onThreads(20) { _ in
            ready.blockUntilOpen()
            client.handle(.willTerminate)
            returned.withLock { $0 += 1 }
        }
        await ready.waitForArrivals(20)
        ready.open()
        // Time for those who would not wait.
        for _ in 0..<50 { await Task.yield() }
        #expect(returned.withLock { $0 } == 0)
        test.clock.advance(by: .milliseconds(500))
        try await first
        _ = await others
        #expect(returned.withLock { $0 } == 20)
    }

    @Test("a second willTerminate after the first has nothing to wait for (R38, D7)")
    func secondTerminationReturns() async throws {
        let test = try TestClient()
        let client = test.client
        client.track("last")
        try await blocking {
            client.handle(.willTerminate)
            client.handle(.willTerminate)
        }
        #expect(client.queue.books.depth == 1 && test.clock.pending.isEmpty)
    }

    // MARK: - Crashes

    private func copyOfFiles(_ test: TestClient) throws -> TemporaryDirectory {
        let copy = TemporaryDirectory()
        try FileManager.default.copyItem(atPath: test.directory.path + "/queue", toPath: copy.path + "/queue")
        return copy
    }

    @Test("a session that a crash ended gets its end at the next start, with the last known activity, once (R43)")
    func endIsRecovered() async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        test.clock.advance(by: .seconds(20))
        try await test.track(0..<1)
        // The marker is written after the commit that the first barrier saw, and before the second.
        try await test.client.writer.barrier()
        let files = try copyOfFiles(test)
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        let told = try #require(try test.client.queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 2).events.first)

        let next = try TestClient(directory: files)
        #expect(await next.client.flush().stored == 3)
        let end = try #require(next.transport.batches.last?.scanned.events.last)
        #expect(next.transport.batches.flatMap(\.names) == ["$AppStart", "event 0", "$AppEnd"])
        #expect(properties(next).last == #"{"$recovered":true}"#)
        #expect(end.time == ManualClock.start + 20_000)
        #expect(end.id == told.id, "the end that was told and the recovered one are one event")
        try await next.client.writer.barrier()
        _ = await next.client.shutdown(within: .zero)
        let third = try TestClient(directory: files)
        #expect(await third.client.flush().stored == 0)
    }

    @Test("a session that ended is not ended again, be its end delivered or not", arguments: [false, true])
    func endedSessionIsNotRecovered(isDelivered: Bool) async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        test.client.handle(.willTerminate)
        if isDelivered { #expect(await test.client.flush().stored == 2) }
        _ = await test.client.shutdown(within: .zero)
        let next = try TestClient(directory: directory)
        #expect(await next.client.flush().stored == (isDelivered ? 0 : 2))
        #expect((isDelivered ? test : next).transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd"])
    }

    @Test("what is stored behind a session's end begins no session again")
    func endedSessionStaysEnded() async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        test.clock.advance(by: .seconds(2))
        try await test.client.trackDurably("in the background")
        // The marker is written behind the commit.
        try await test.client.writer.barrier()
        #expect(try test.client.queue.openSession() == nil)
        _ = await test.client.shutdown(within: .zero)
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
