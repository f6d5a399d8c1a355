import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Shutdown uses the time it has (R38, D6, D11, I15)", .endsWhenItHangs)
struct ShutdownTests {
    /// What is scheduled once all is stored and an attempt has failed: the limits for uploading and for leaving, and the backoff.
    private static let boundsAndBackoff = 3

    @Test("a shutdown goes on after a backoff over a network that uploads must not use by themselves (R13, R38)")
    func shutdownUsesAnyNetwork() async throws {
        let test = try TestClient {
            $0.uploads.networks = []
            $0.uploads.interval = .seconds(15)
        }
        let transport = test.transport
        transport.script { batch in transport.batches.count < 3 ? .success(.problem(.overloaded)) : .success(batch.receipt()) }
        try await test.client.trackDurably("event")
        async let report = test.client.shutdown(within: EventClient.Configuration.farAway)
        await test.clock.advance(by: .seconds(1)) { transport.batches.count >= 3 }
        #expect(await report.stored == 0)
    }

    @Test("a server that comes back within the time gets everything, backoff after backoff")
    func backoffsAreRetried() async throws {
        let test = try TestClient()
        test.transport.script(ScriptedTransport.receipts(after: Array(repeating: .failure(.cannotConnect), count: 3)))
        try await test.track(0..<60)
        async let report = test.client.shutdown(within: EventClient.Configuration.farAway)
        await test.clock.advance(by: .seconds(1)) { test.transport.batches.count >= 4 }
        #expect(await report == ShutdownReport(stored: 0, lost: 0))
        #expect(test.transport.batches.map(\.ids.count) == [50, 50, 50, 50, 10])
    }

    @Test("a process that is suspended as it sets a backoff's timer tries again when that fires (I15)")
    func suspensionStretchesNoBackoff() async throws {
        let test = try TestClient()
        test.transport.script(ScriptedTransport.receipts(after: Array(repeating: .failure(.cannotConnect), count: 3)))
        try await test.track(0..<1)
        let before = test.clock.everScheduled
        test.clock.isPastWhatIsScheduled = true
        #expect(await test.client.delivery.deliverAll().next == .drained)
        #expect(test.clock.everScheduled - before == 3, "one timer each")
    }

    @Test("in the background nothing is sent, and so nothing is waited for (R31, R38)")
    func backgroundShutdownSendsNothing() async throws {
        let test = try TestClient()
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didEnterBackground)
        try await test.track(0..<1)
        #expect(await test.client.shutdown(within: .seconds(60)).stored == 1)
        #expect(test.transport.batches.isEmpty)
    }

    @Test("a delivery that is stopped leaves nothing scheduled, begins nothing, and says why it had failed before (D7)")
    func stoppedDeliveryIsOver() async throws {
        let test = try TestClient()
        let delivery = test.client.delivery
        try await test.track(0..<1)
        test.transport.script { _ in .failure(.cut) }
        _ = await test.client.flush()
        #expect(test.clock.pending.count == 1)
        await delivery.stop()
        #expect(test.clock.pending.isEmpty)
        #expect(await delivery.drain().state.failure == .shutDown)
        let state = await delivery.state
        #expect(state.failure == .transport(.cut) && state.nextAttempt == nil)
        #expect(await delivery.deliverAll().next == .stopped)
        #expect(test.transport.batches.count == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("who stops a delivery waits for the request under way (D7)")
    func stoppingWaits() async throws {
        let test = try TestClient()
        let delivery = test.client.delivery
        let mayAnswer = AwaitedCount()
        let order = Locked<[String]>([])
        test.transport.script { batch in
            await mayAnswer.reaches(1)
            order.withLock { $0.append("answered") }
            return .success(batch.receipt())
        }
        try await test.track(0..<1)
        Task { await delivery.drain() }
        await test.transport.requests(1)
        let stopping = Task {
            await delivery.stop()
            order.withLock { $0.append("stopped") }
        }
        // Time for who would not wait.
        for _ in 0..<50 { await Task.yield() }
        mayAnswer.set(1)
        await stopping.value
        #expect(order.withLock { $0 } == ["answered", "stopped"])
        await test.client.shutdown(within: .zero)
    }

    @Test("failures of the past do not stretch the last backoffs")
    func backoffsBeginAnew() async throws {
        let test = try TestClient()
        test.transport.script { _ in .failure(.cannotConnect) }
        try await test.track(0..<1)
        for _ in 0..<12 { _ = await test.client.flush() }
        // The timer of the last of these is there as well.
        let before = await test.client.delivery.state.nextAttempt
        async let report = test.client.shutdown(within: .seconds(10))
        await test.transport.requests(13)
        await test.clock.advance(by: .zero) { await test.client.delivery.state.nextAttempt != before }
        let wait = try #require(await test.client.delivery.state.nextAttempt) - test.clock.unixMilliseconds
        #expect(wait <= 1_000)
        test.clock.advance(by: .seconds(1))
        await test.transport.requests(14)
        test.clock.advance(by: .seconds(9))
        #expect(await report == ShutdownReport(stored: 1, lost: 0, failure: .transport(.cannotConnect)))
    }

    @Test("at the limit a backoff is not waited for; the report says what is left and why")
    func limitEndsABackoff() async throws {
        let test = try TestClient()
        test.transport.script { _ in .success(.problem(.overloaded, headers: ["retry-after": "120"])) }
        try await test.track(0..<2)
        async let report = test.client.shutdown(within: .seconds(10))
        await test.transport.requests(1)
        await test.clock.scheduled(Self.boundsAndBackoff)
        test.clock.advance(by: .seconds(10))
        #expect(await report == ShutdownReport(stored: 2, lost: 0, failure: .status(503, code: "overloaded")))
        #expect(test.transport.batches.count == 1, "Retry-After is obeyed (I16)")
    }

    @Test("a refusal that time does not change ends it at once, after one request (I16)")
    func pauseEndsIt() async throws {
        let test = try TestClient()
        test.transport.script { _ in .success(.problem(.unknownKey)) }
        try await test.track(0..<2)
        #expect(
            await test.client.shutdown(within: .seconds(600))
                == ShutdownReport(stored: 2, lost: 0, failure: .status(401, code: "unknown_key")))
        #expect(test.transport.batches.count == 1 && test.clock.pending.isEmpty, "nor is anything left to be tried")
    }

    @Test("no network policy and no background budget holds the last upload back (R23, R32)")
    func nobodyHoldsItBack() async throws {
        let test = try TestClient { $0.uploads.networks = [] }
        let sent = Gate()
        test.transport.script { [client = test.client] batch in
            if batch.sequences == [1] {
                // A pass with a permission of its own is under way, and has none for a second request, when the shutdown comes.
                sent.open()
                while await client.delivery.waiters.isEmpty { await Task.yield() }
            }
            return .success(batch.receipt())
        }
        test.client.track("first")
        async let step = test.client.flushNextBatch()
        try await blocking { sent.blockUntilOpen() }
        try await test.track(0..<3)
        async let report = test.client.shutdown(within: .seconds(30))
        #expect(await report == ShutdownReport(stored: 0, lost: 0))
        _ = await step
        #expect(test.transport.batches.flatMap(\.sequences) == [1, 2, 3, 4])
    }

    @Test("a wish of a policy during a backoff does not end the wait for the rest")
    func policyDoesNotEndIt() async throws {
        let test = try TestClient { $0.uploads.networks = [] }
        let isUp = Locked(false)
        test.transport.script { batch in isUp.withLock { $0 } ? .success(batch.receipt()) : .failure(.cut) }
        try await test.track(0..<1)
        async let ending = test.client.delivery.deliverAll()
        await test.transport.requests(1)
        await test.clock.scheduled(1)
        await test.client.delivery.uploadWanted()
        isUp.withLock { $0 = true }
        test.clock.advance(by: .seconds(1))
        #expect(await ending.next == .drained)
    }

    @Test("who delivers everything once more waits for what came meanwhile")
    func everyCallDelivers() async throws {
        let test = try TestClient()
        for count in 1...2 {
            try await test.track(0..<1)
            #expect(await test.client.delivery.deliverAll().next == .drained)
            #expect(test.transport.batches.count == count)
        }
    }

    @Test("storing has half a second however little time there is, and closing a tenth more; nothing stays scheduled (R38)")
    func storingHasItsTime() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(60)
        }
        #expect(test.clock.pending.count == 1, "control: the timer of the uploads")
        let mayStore = Gate()
        test.client.writer.whenStored { mayStore.blockUntilOpen() }
        await mayStore.waitForArrivals(1)
        test.client.track("late")
        async let report = test.client.shutdown(within: .milliseconds(1))
        await test.clock.scheduled(3)
        #expect(test.clock.pending == [.milliseconds(1), .milliseconds(500), .milliseconds(600)])
        test.clock.advance(by: .milliseconds(499))
        mayStore.open()
        #expect(await report == ShutdownReport(stored: 1, lost: 0))
        #expect(test.clock.pending.isEmpty)
    }

    @Test("what is refused during a shutdown is counted on disk, too (I12)")
    func lateRefusalsAreCounted() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        try await test.track(0..<1)
        async let report = test.client.shutdown(within: .seconds(2))
        await test.transport.requests(1)
        for _ in 0..<3 { #expect(test.client.track("late") == nil) }
        test.clock.advance(by: .seconds(2))
        #expect(await report.stored == 1)
        let file = try #require(try QueueContents(test.directory.path("queue")).files.first)
        #expect(file.counters.dropped == [DropReason.shutDown.rawValue: 3])
    }
}
