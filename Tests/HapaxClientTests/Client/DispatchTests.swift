import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Network policy, the dispatch interval and single batches (R20–R29)", .endsWhenItHangs)
struct DispatchTests {
    private let interval = Duration.seconds(120)

    private func policy(interval: Duration?) -> FlushPolicy {
        FlushPolicy(UploadSettings(interval: interval, bulkSize: 2, immediateEvents: ["$AppStart"]), now: .zero)
    }

    @Test("without an interval nothing is uploaded by itself (R26); one uploads again, with 5 s at least (R20)")
    func noIntervalDisables() {
        var policy = policy(interval: interval)
        #expect(policy.effectiveInterval == .seconds(120))
        #expect(policy.change({ $0.interval = nil }, now: .zero) == [.stopTimer] && policy.effectiveInterval == nil)
        let silent = policy.eventsStored(depth: 9, immediate: true, now: .seconds(999)) + policy.timerFired(depth: 9, now: .seconds(999))
        #expect(silent == [])
        #expect(policy.change({ $0.interval = .zero }, now: .seconds(999)) == [.upload, .restartTimer(every: .seconds(5))])
    }

    @Test(
        "nothing begins by itself over a network that is not in the set, or over none (R23, R24)", arguments: [nil, NetworkType.cellular2G])
    func networkGates(network: NetworkType?) {
        var policy = policy(interval: .seconds(15))
        let gated =
            policy.eventsStored(depth: 9, immediate: true, network: network, now: .seconds(999))
            + policy.timerFired(depth: 9, network: network, now: .seconds(999))
        #expect(gated == [])
        let open = policy.timerFired(depth: 1, network: .cellular3G, now: .seconds(999))
        #expect(open == [.upload], "what was due stays due")
    }

    @Test("networks can be allowed while the client runs (R24); a manual flush goes over any (R27)")
    func networkPolicyChanges() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 1
            $0.network = { .cellular2G }
        }
        try await test.track(0..<2)
        #expect(test.transport.batches.isEmpty)
        #expect(await test.client.flush().stored == 2)
        test.client.updateUploads { $0.networks = [.cellular2G] }
        try await test.track(2..<3)
        await test.transport.requests(2)
    }

    @Test("the next attempt after a failure waits for a network that may be used (R23)")
    func retryIsGated() async throws {
        let network = Locked<NetworkType?>(.wifi)
        let test = try TestClient {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 1
            $0.network = { network.withLock { $0 } }
        }
        test.transport.script { _ in .failure(.cut) }
        try await test.track(0..<1)
        // The periodic timer and the backoff.
        await test.clock.scheduled(2)
        network.withLock { $0 = nil }
        test.clock.advance(by: .seconds(14))
        // The end of the wait reaches the delivery as a task.
        while await test.client.delivery.state.nextAttempt != nil, test.transport.batches.count == 1 { await Task.yield() }
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.count == 1)
        network.withLock { $0 = .wifi }
        test.clock.advance(by: .seconds(1))
        await test.transport.requests(2)
    }

    @Test("switching automatic uploads off stops the timer, switching on starts it (R26)")
    func timerFollowsTheInterval() throws {
        let test = try TestClient {
            $0.uploads.interval = interval
        }
        #expect(test.clock.pending == [.seconds(120)])
        test.client.updateUploads { $0.interval = nil }
        #expect(test.clock.pending == [] && test.client.uploads.interval == nil)
        test.client.updateUploads { $0.interval = .seconds(60) }
        #expect(test.clock.pending == [.seconds(60)])
    }

    // MARK: - Steps

    @Test("each step sends one request and says what it came to (R28)")
    func stepSendsOneRequest() async throws {
        let network = Locked<NetworkType?>(.wired)
        let test = try TestClient {
            $0.batchSize = 2
            $0.network = { network.withLock { $0 } }
        }
        #expect(await test.client.flushNextBatch() == .noData)
        for index in 0..<3 { test.client.track("event \(index)") }
        network.withLock { $0 = nil }
        #expect(await test.client.flushNextBatch() == .noData)
        #expect(test.client.file.counters.waiting == 3, "without a network everything stays")
        network.withLock { $0 = .cellular2G }
        #expect(await test.client.flushNextBatch() == .good(more: true))
        #expect(test.transport.batches.map(\.sequences) == [[1, 2]])
        #expect(await test.client.flushNextBatch() == .good(more: false))
        #expect(await test.client.flushNextBatch() == .noData)
        test.client.track("last")
        test.transport.script { _ in .success(TransportAnswer(status: 503)) }
        #expect(await test.client.flushNextBatch() == .failed(.status(503, code: nil)))
        #expect(test.transport.batches.count == 3 && test.client.file.counters.waiting == 1)
    }

    @Test("with nothing to send a step says so, also where it would have no time to send (R28)")
    func stepWithoutDataNeedsNoTime() async throws {
        let test = try TestClient()
        let app = ScriptedApplication(isInBackground: true)
        test.client.attach(app)
        #expect(await test.client.flush().remaining == 0)
        app.remainingBackgroundTime = .zero
        #expect(await test.client.flushNextBatch() == .noData)
        test.client.track("event")
        #expect(await test.client.flushNextBatch() == .failed(.noBackgroundTime))
    }

    @Test("a step that finds the queue emptied by a flush has sent nothing: one of the two reports it (R28)")
    func stepBehindAFlushHasNoData() async throws {
        let mayAnswer = AwaitedCount()
        let test = try TestClient()
        test.transport.script { batch in
            await mayAnswer.reaches(1)
            return .success(batch.receipt())
        }
        try await test.track(0..<1)
        async let flushed = test.client.flush()
        await test.transport.requests(1)
        async let stepped = test.client.flushNextBatch()
        while await test.client.delivery.waiters.isEmpty { await Task.yield() }
        mayAnswer.set(1)
        let step = await stepped
        let report = await flushed
        #expect((step == .noData) == (report.stored == 1))
        #expect(test.transport.batches.count == 1 && test.client.file.counters.waiting == 0)
    }

    @Test("a poison event does not stop a loop of steps for ever (R28, D13)")
    func stepsGetPastPoison() async throws {
        let test = try TestClient { $0.batchSize = 4 }
        test.transport.script { batch in
            batch.names.contains("event 1") ? .success(.problem(.malformed)) : .success(batch.receipt())
        }
        try await test.track(0..<4)
        for _ in 0..<20 where test.client.file.counters.waiting > 0 { _ = await test.client.flushNextBatch() }
        let status = await test.client.status()
        #expect(status.stored == 3 && status.deadLettered == 1 && status.depth == 0)
    }

    @Test(
        "an interval that is set in the background starts no timer; becoming active starts one with it (R22, R29, D10)",
        arguments: [true, false])
    func intervalSetInTheBackgroundWaits(isPassive: Bool) async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        test.client.attach(ScriptedApplication(isInBackground: isPassive, grants: false))
        if !isPassive {
            test.client.handle(.didBecomeActive)
            test.client.handle(.didEnterBackground)
        }
        test.client.updateUploads { $0.interval = .seconds(60) }
        #expect(test.clock.pending == [])
        test.client.handle(.didBecomeActive)
        #expect(test.clock.pending == [.seconds(60)])
    }

    @Test("in the background steps send and the periodic uploads rest; becoming active restores them (R29)")
    func stepsSuspendPeriodicUploads() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        test.client.attach(ScriptedApplication(isInBackground: true))
        try await test.client.writer.barrier()
        #expect(await test.client.flushNextBatch() == .good(more: false))
        #expect(test.clock.pending == [])
        test.client.handle(.didBecomeActive)
        #expect(test.clock.pending == [.seconds(15)])
    }
}
