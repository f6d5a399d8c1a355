import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Uploads that only somebody's wish begins (R13, R18, R26)", .endsWhenItHangs)
struct ManualUploadsTests {
    @Test("entering the background sends nothing, a step still does (R18, R26)")
    func backgroundSendsNothing() async throws {
        let test = try TestClient()
        let application = ScriptedApplication()
        test.client.attach(application)
        test.client.handle(.didBecomeActive)
        try await test.track(0..<3)
        test.client.handle(.didEnterBackground)
        await application.assertionEnded()
        #expect(test.transport.batches.count == 0)
        await test.becomeActive()
        #expect(await test.client.flushNextBatch() == .good(more: false))
    }

    @Test("a policy's wish during somebody's upload takes nothing from it, and behind it gets nothing from it (R18, R23)")
    func wishesAreToldApart() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let delivery = test.client.delivery
        try await test.track(0..<2)
        test.transport.script { batch in
            await delivery.uploadWanted()
            return .success(batch.receipt())
        }
        #expect(await test.client.flush().stored == 2)
        try await test.track(2..<3)
        await delivery.uploadWanted()
        await delivery.restBegins()
        #expect(test.transport.batches.count == 2)
        #expect(await delivery.state.failure == nil, "nobody who asked has to learn of it")
    }

    @Test("of calls that wait for one upload one reports it; what nobody waited for is reported by none (R13)")
    func deliveredIsReportedOnce() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        let delivery = test.client.delivery
        try await test.track(0..<1)
        await delivery.uploadWanted()
        await delivery.restBegins()
        try await test.track(1..<2)
        let second = Locked<Task<DeliveryState, Never>?>(nil)
        test.transport.script { batch in
            second.withLock { $0 = Task { await delivery.drain().state } }
            while await delivery.waiters.isEmpty { await Task.yield() }
            return .success(batch.receipt())
        }
        let first = await delivery.drain().state
        let other = try #require(await second.withLock { $0 }?.value)
        #expect(first.counts.stored + other.counts.stored == 1 && test.transport.batches.count == 2)
    }

    @Test("a failed flush is not repeated by itself (R26)")
    func failedFlushIsNotRepeated() async throws {
        let test = try TestClient()
        test.transport.script { _ in .failure(.cut) }
        try await test.track(0..<1)
        #expect(await test.client.flush().failure == .transport(.cut))
        test.clock.advance(by: .seconds(600))
        while await test.client.delivery.state.nextAttempt != nil { await Task.yield() }
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.count == 1)
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 1)
    }

    @Test("what others have left waits for a wish, too (R26)")
    func leftoversWait() async throws {
        let first = try TestClient()
        let second = try TestClient(directory: first.directory)
        try await second.track(0..<1)
        await second.client.shutdown(within: .zero)
        await first.client.shutdown(within: .zero)
        let third = try TestClient(directory: first.directory)
        await third.client.leftovers.sendIfDue()
        #expect(third.transport.batches.count == 0)
        #expect(await third.client.leftovers.send(isManual: true).counts.stored == 1)
    }

    @Test("a step during a flush does not end the flush (R13, R28)")
    func stepDoesNotEndAFlush() async throws {
        let mayAnswer = AwaitedCount()
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { batch in
            if batch.sequences == [1] { await mayAnswer.reaches(1) }
            return .success(batch.receipt())
        }
        try await test.track(0..<6)
        async let flushed = test.client.flush()
        await test.transport.requests(1)
        async let stepped = test.client.flushNextBatch()
        while await test.client.delivery.waiters.isEmpty { await Task.yield() }
        mayAnswer.set(1)
        let step = await stepped
        let report = await flushed
        #expect(report.remaining == 0 && report.failure == nil)
        #expect(step == .good(more: true))
        #expect(test.client.file.counters.waiting == 0)
        try await test.track(6..<7)
        #expect(await test.client.flushNextBatch() == .good(more: false), "nobody waits for the end of this one")
    }

    @Test("a step that may make no request leaves a backoff as it is (R28, D11)")
    func deniedStepLeavesTheBackoff() async throws {
        let test = try TestClient()
        test.transport.script { _ in .failure(.cut) }
        try await test.track(0..<1)
        _ = await test.client.flush()
        let pending = test.clock.pending
        let (state, next) = await test.client.delivery.drain { .denied }
        #expect(next == .denied && state.nextAttempt != nil)
        #expect(pending.count == 1 && test.clock.pending == pending && test.transport.batches.count == 1)
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 1 && test.clock.pending.isEmpty, "a flush ends it")
    }
}
