import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// Each way to a request, once the app is in the background: what the system may cut off is not begun.
@Suite("Requests in the background (R30, R31, R33)", .endsWhenItHangs)
struct BackgroundRequestTests {
    private func client(
        directory: TemporaryDirectory = TemporaryDirectory(), _ configure: (inout EventClient.Configuration) -> Void = { _ in }
    ) throws -> TestClient {
        try TestClient(directory: directory) {
            $0.uploads.interval = .seconds(3_600)
            configure(&$0)
        }
    }

    @Test("a count that is reached without an assertion sends nothing, and the next activation sends it (R31)")
    func countSendsNothing() async throws {
        let test = try client { $0.uploads.bulkSize = 2 }
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didEnterBackground)
        try await test.track(0..<5)
        #expect(await test.client.delivery.drainByPolicy() == 0)
        #expect(test.transport.batches.isEmpty)
        test.client.handle(.didBecomeActive)
        await test.transport.requests(1)
        #expect(test.transport.batches[0].request.timeout == .seconds(30))
    }

    @Test("a retry that comes due in the background sends nothing (R31)", arguments: [503, 401])
    func retrySendsNothing(status: Int) async throws {
        let test = try client()
        test.client.attach(ScriptedApplication(grants: false))
        test.transport.script { _ in .success(TransportAnswer(status: status)) }
        try await test.track(0..<1)
        _ = await test.client.flush()
        test.client.handle(.didEnterBackground)
        test.clock.advance(by: .seconds(600))
        await test.client.delivery.restBegins()
        #expect(await test.client.delivery.drainByPolicy() == 0)
        #expect(test.transport.batches.count == 1)
    }

    @Test(
        "of an app that goes on in the background a policy that is due uploads under an assertion of its own, given back when it is done or the time is over, once (C17, R30, R33)",
        arguments: [true, false])
    func duePolicyTakesAnAssertion(isInTime: Bool) async throws {
        let test = try client { $0.uploads.bulkSize = 2 }
        let app = ScriptedApplication(remaining: .seconds(20))
        test.client.attach(app)
        test.client.handle(.didEnterBackground)
        await app.assertionEnded()
        if !isInTime { test.transport.script { [transport = test.transport] _ in await transport.hang() } }
        try await test.track(0..<1)
        #expect(app.given == 1, "nothing is due")
        try await test.track(1..<2)
        await test.transport.requests(1)
        #expect(test.transport.batches[0].request.timeout == .seconds(10) && app.given == 2)
        if isInTime {
            await app.assertionEnded(2)
            #expect(test.client.file.counters.stored == 2)
        } else {
            test.client.handle(.backgroundTimeExpired)
            #expect(test.client.gate.permission(isManual: false) == .denied)
        }
        await test.client.shutdown(within: .zero)
        await test.client.delivery.restBegins()
        #expect(app.ended == [1, 2])
    }

    @Test("a timer that fires in the background sends nothing, nor what others have left (R31)")
    func timerSendsNothing() async throws {
        let directory = TemporaryDirectory()
        let test = try client(directory: directory)
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didEnterBackground)
        let other = try TestClient(directory: directory)
        try await other.client.trackDurably("left behind")
        _ = await other.client.shutdown(within: .zero)
        try await test.track(0..<1)
        test.client.scheduler.startTimer()
        test.clock.advance(by: .seconds(3_600))
        #expect(await test.client.delivery.drainByPolicy() == 0)
        await test.client.leftovers.sendIfDue()
        #expect(test.transport.batches.isEmpty)
    }

    @Test("of what others have left no other request is begun without an assertion (R31)")
    func leftoversEnd() async throws {
        let directory = TemporaryDirectory()
        let test = try client(directory: directory) { $0.batchSize = 1 }
        _ = await test.client.leftovers.send(isManual: true)
        let other = try TestClient(directory: directory)
        for _ in 0..<3 { try await other.client.trackDurably("left behind") }
        _ = await other.client.shutdown(within: .zero)
        let client = test.client
        test.transport.script { batch in
            client.handle(.didEnterBackground)
            return .success(batch.receipt())
        }
        test.client.attach(ScriptedApplication(grants: false))
        await test.client.leftovers.sendIfDue()
        #expect(test.transport.batches.count == 1)
    }

    @Test("under the assertion a policy's request has the time that the adapter says is left, and no more (R33, R34)")
    func policyKeepsTheBudget() async throws {
        let test = try client { $0.batchSize = 1 }
        let app = ScriptedApplication(remaining: .seconds(9))
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.attach(app)
        test.client.handle(.didBecomeActive)
        await test.transport.requests(1)
        #expect(test.transport.batches[0].request.timeout == .seconds(30))
        test.client.handle(.didEnterBackground)
        #expect(test.client.gate.permission(isManual: false) == .granted(timeout: .seconds(7)))
        #expect(app.ended == [], "the assertion covers the request that was under way")
        app.remainingBackgroundTime = .seconds(2)
        #expect(test.client.gate.permission(isManual: false) == .denied)
        _ = await test.client.shutdown(within: .zero)
    }

    @Test("a foreground pass goes on under the assertion, within its budget; its request in flight is answered (R32, R33)")
    func passGoesOnUnderTheAssertion() async throws {
        let test = try client { $0.batchSize = 1 }
        let app = ScriptedApplication(remaining: .seconds(9))
        let client = test.client
        try await test.track(0..<3)
        test.transport.script { batch in
            if batch.sequences == [1] { client.handle(.didEnterBackground) }
            return .success(batch.receipt())
        }
        test.client.attach(app)
        #expect(await test.client.flush().stored == 3)
        await app.assertionEnded()
        #expect(test.transport.batches.map(\.request.timeout) == [.seconds(30), .seconds(7), .seconds(7)])
        #expect(app.ended == [1])
    }

    @Test("a foreground pass begins no other request without an assertion; the one in flight is answered and settled (R31)")
    func passEndsWithoutAnAssertion() async throws {
        let test = try client { $0.batchSize = 1 }
        let client = test.client
        try await test.track(0..<3)
        test.transport.script { batch in
            if batch.sequences == [1] { client.handle(.didEnterBackground) }
            return .success(batch.receipt())
        }
        test.client.attach(ScriptedApplication(grants: false))
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.remaining == 2 && report.failure == .noBackgroundTime)
        #expect(test.transport.batches.count == 1)
    }

    @Test("what the app asks for in the background has its own assertion, given back once, and the budget (R27, R30, R33)")
    func manualUploadIsAsserted() async throws {
        let test = try client()
        let app = ScriptedApplication(isInBackground: true, remaining: .seconds(20))
        test.client.attach(app)
        test.client.track("push")
        #expect(await test.client.flush().stored == 2)
        #expect(app.given == 1 && app.ended == [1])
        test.client.track("push")
        #expect(await test.client.flushNextBatch() == .good(more: false))
        #expect(app.given == 2 && app.ended == [1, 2])
        #expect(test.transport.batches.map(\.request.timeout) == [.seconds(10), .seconds(10)])
    }

    @Test("an upload that somebody asked for does not let policies use its assertion (R27, R31)")
    func requestedAssertionIsForTheRequest() async throws {
        let test = try client()
        let app = ScriptedApplication(isInBackground: true)
        app.grants = false
        test.client.attach(app)
        app.grants = true
        let (client, permissions) = (test.client, Locked<[RequestPermission]>([]))
        test.transport.script { batch in
            permissions.withLock { $0 += [true, false].map { client.gate.permission(isManual: $0) } }
            return .success(batch.receipt())
        }
        test.client.track("push")
        #expect(await test.client.flush().failure == nil)
        let (asked, unasked) = try permissions.withLock { try (#require($0.first), #require($0.last)) }
        #expect(asked != .denied && unasked == .denied)
    }

    @Test("what was refused before there was no time left convicts nobody afterwards (R33, D12)")
    func suspicionEndsWithTheTime() async throws {
        let test = try client { $0.batchSize = 1 }
        let app = ScriptedApplication(isInBackground: true)
        test.client.attach(app)
        #expect(await test.client.flush().remaining == 0)
        try await test.track(1...3)
        test.transport.script { _ in
            app.remainingBackgroundTime = .seconds(1)
            return .success(.problem(.malformed))
        }
        #expect(await test.client.flush().failure != nil)
        app.remainingBackgroundTime = .seconds(30)
        test.transport.script { .success($0.names == ["event 2"] ? .problem(.malformed) : $0.receipt()) }
        #expect(await test.client.flush() == FlushReport(stored: 2, duplicates: 0, deadLettered: 1, remaining: 0))
        #expect(try await test.client.deadLetters.list().map(\.reason) == ["malformed"])
    }

    @Test("a policy's wish during a pass that somebody asked for leaves it that one's (R13, R17)")
    func policysWishChangesNoPass() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        try await test.track(1...3)
        let delivery = test.client.delivery
        test.transport.script { batch in
            await delivery.uploadWanted()
            return .success(batch.receipt())
        }
        #expect(await test.client.flush().stored == 3)
    }

    @Test("without an assertion it says so, keeps everything and ends no backoff (R31, D11)")
    func refusedManualUploadSaysSo() async throws {
        let test = try client()
        test.transport.script { _ in .failure(.cut) }
        test.client.attach(ScriptedApplication(grants: false))
        try await test.track(0..<1)
        _ = await test.client.flush()
        test.client.handle(.didEnterBackground)
        let waits = test.clock.pending
        #expect(waits.count == 1)
        #expect(
            await test.client.flush() == FlushReport(stored: 0, duplicates: 0, deadLettered: 0, remaining: 1, failure: .noBackgroundTime))
        #expect(await test.client.flushNextBatch() == .failed(.noBackgroundTime))
        #expect(test.clock.pending == waits && test.transport.batches.count == 1)
    }

    @Test("when the time is over the assertion of an upload that was asked for is given back at once, and once (R30)")
    func expiryEndsTheManualAssertion() async throws {
        let test = try client()
        let app = ScriptedApplication(isInBackground: true)
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.attach(app)
        async let report = test.client.flush()
        await test.transport.requests(1)
        for signal in [LifecycleSignal.willEnterForeground, .willResignActive] { test.client.handle(signal) }
        #expect(app.ended == [], "no other signal ends it")
        test.client.handle(.backgroundTimeExpired)
        #expect(app.ended == [1])
        _ = await test.client.shutdown(within: .zero)
        #expect(await report.failure != nil)
        #expect(app.ended == [1])
    }

    @Test("a witness is sent again only if there is time for it, too (R33)")
    func witnessIsGated() async throws {
        let test = try client { $0.batchSize = 1 }
        let app = ScriptedApplication(isInBackground: true)
        test.client.attach(app)
        try await test.track(0..<1)
        #expect(await test.client.flush().stored == 2, "a witness")
        // So many that the witness is asked for without looking behind the last one, which would ask for time, too.
        let poison = DeliveryStateMachine.maximumSuspects
        for _ in 0..<poison { test.client.track("poison") }
        test.transport.script { [transport = test.transport] batch in
            guard batch.names == ["poison"] else { return .success(batch.receipt()) }
            if transport.batches.count == 2 + poison { app.remainingBackgroundTime = .seconds(1) }
            return .success(.problem(.malformed))
        }
        #expect(await test.client.flush().remaining == poison)
        #expect(test.transport.batches.count == 2 + poison)
        #expect(test.client.deadLetters.count == 0)
    }

    @Test("a process without an adapter is never in the background")
    func servicesAreNotHeldUp() async throws {
        let test = try client { $0.uploads.bulkSize = 1 }
        try await test.track(0..<1)
        await test.transport.requests(1)
        #expect(test.transport.batches[0].request.timeout == .seconds(30))
        #expect(test.client.gate.permission(isManual: false) == .granted(timeout: nil))
    }

    @Test("a flush reports what it saw delivered, also if the app enters the background meanwhile, whose upload nobody reads (R13)")
    func backgroundTakesNoReport() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        _ = await test.client.flush()
        try await test.track(0..<5)
        let mayAnswer = AwaitedCount()
        let requests = test.transport.batches.count
        test.transport.script { batch in
            if batch.names == ["event 2"] { await mayAnswer.reaches(1) }
            return .success(batch.receipt())
        }
        async let flushed = test.client.flush()
        await test.transport.requests(requests + 3)
        let before = await test.client.status().stored - 2
        test.client.handle(.didEnterBackground)
        while await test.client.delivery.waiters.isEmpty { await Task.yield() }
        mayAnswer.set(1)
        let report = await flushed
        let stored = await test.client.status().stored - before
        #expect(report.stored >= 3 && report.stored <= Int(stored))
    }

    @Test("the end of a background flush behind which another has begun gives back no assertion: that one has it (R30, R52)")
    func laterFlushKeepsTheAssertion() {
        let lifecycle = AppLifecycle()
        let performed = Locked<[LifecycleStateMachine.Action]>([])
        func handle(_ input: AppLifecycle.Input) {
            lifecycle.handle(input) { action in
                performed.withLock { $0.append(action) }
                if action == .flush { lifecycle.withRecord { $0.isFlushing = true } }
                return action == .beginAssertion
            }
        }
        for signal in [LifecycleSignal.didBecomeActive, .didEnterBackground, .didBecomeActive] { handle(.signal(signal)) }
        // The first flush is over, and has not said so yet.
        lifecycle.withRecord { $0.isFlushing = false }
        handle(.signal(.didEnterBackground))
        handle(.flushEnded)
        #expect(lifecycle.machine.state == .background && lifecycle.machine.holdsAssertion)
        #expect(performed.withLock { $0.filter { $0 == .flush }.count } == 2 && !performed.withLock { $0.contains(.endAssertion) })
        lifecycle.withRecord { $0.isFlushing = false }
        handle(.flushEnded)
        #expect(lifecycle.machine.state == .suspended && performed.withLock { $0.last } == .endAssertion)
    }

    @Test("once the app terminates no policy begins another request (R39)")
    func terminationBeginsNothing() async throws {
        let test = try client()
        test.client.handle(.didBecomeActive)
        await test.transport.requests(1)
        test.client.handle(.willTerminate)
        #expect(test.client.gate.permission(isManual: false) == .denied)
        #expect(test.client.gate.permission(isManual: true) == .granted(timeout: nil))
    }
}

extension Delivery {
    /// A policy's wish, to its end.
    ///
    /// - Returns: How many requests it came to.
    fileprivate func drainByPolicy() async -> Int {
        let before = state.counts.attempts
        uploadWanted()
        await restBegins()
        return state.counts.attempts - before
    }
}
