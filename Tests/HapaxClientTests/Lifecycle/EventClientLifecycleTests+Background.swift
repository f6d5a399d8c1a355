import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// What is sent while the app is in the background.
extension EventClientLifecycleTests {
    @Test("each time the app enters the background what waits is sent (R30)")
    func everyBackgroundFlushes() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication()
        test.client.attach(app)
        for round in 1...3 {
            test.client.handle(.didBecomeActive)
            test.client.handle(.didEnterBackground)
            await app.assertionEnded(round)
            #expect(test.transport.batches.count == round && test.client.file.counters.waiting == 0)
        }
    }

    @Test("what was tracked before the app enters the background is sent there, also if its commit is still under way (R30)")
    func backgroundFlushWaitsForCommits() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication()
        test.client.attach(app)
        try await test.track(0..<1)
        let mayGoOn = try await test.holdWriter()
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
            $0.uploads.waitsInBackground = true
        }
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didBecomeActive)
        try await blocking { [client = test.client] in client.handle(.didEnterBackground) }
        try await test.client.writer.barrier()
        #expect(test.client.file.counters.waiting == 2 && test.transport.batches.isEmpty)
    }

    @Test("without an assertion nothing is sent and everything stays (R31)")
    func refusedAssertionSendsNothing() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let app = ScriptedApplication(grants: false)
        test.client.attach(app)
        test.client.handle(.didBecomeActive)
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        #expect(test.client.file.counters.waiting == 2 && test.transport.batches.isEmpty && app.ended.isEmpty)
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
        #expect(test.client.file.counters.waiting == 2, "−2 s left: the rest stays")
        await test.becomeActive()
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
        #expect(test.client.file.counters.waiting == 3)
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

    @Test("entering the background waits for its uploads if told to (R35)")
    func enteringBackgroundMayWait() async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.uploads.waitsInBackground = true
        }
        try await test.track(0..<3)
        test.client.attach(ScriptedApplication())
        try await blocking { [client = test.client] in client.handle(.didEnterBackground) }
        #expect(test.client.file.counters.waiting == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "and neither longer than granted nor longer than the app may be held up; what goes on then goes on under the assertion (R34, R35)",
        arguments: [(5, 3), (30, 4)])
    func waitingInTheBackgroundIsBounded(remaining: Int, bound: Int) async throws {
        let test = try TestClient {
            $0.uploadOnlyInBackground()
            $0.uploads.waitsInBackground = true
        }
        let app = ScriptedApplication(remaining: .seconds(remaining))
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        try await test.track(0..<3)
        test.client.attach(app)
        async let returned: Void = blocking { [client = test.client] in client.handle(.didEnterBackground) }
        await test.transport.requests(1)
        while test.clock.pending.contains(EventClient.Configuration.farAway) { await Task.yield() }
        await test.clock.scheduled(1)
        #expect(test.clock.pending == [.seconds(bound)])
        test.clock.advance(by: .seconds(bound))
        try await returned
        #expect(test.client.file.counters.waiting == 3 && app.given == 1 && app.ended == [])
        await test.client.shutdown(within: .zero)
    }
}
