import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What happens to a queue, and what time passes, between an event's refusal and the verdict on it.
@Suite("A suspicion and what goes on meanwhile (R9, D12, D13)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct SuspicionTests {
    /// Four events wait, of which the server refuses the first one's batch; there is room for no more.
    private func client(_ configure: (inout EventClient.Configuration) -> Void = { _ in }) async throws -> TestClient {
        let test = try TestClient {
            $0.batchSize = 1
            $0.quota.maximumEvents = 4
            $0.quota.policy = .dropOldest
            configure(&$0)
        }
        test.transport.script { .success($0.sequences == [1] ? .problem(.malformed) : $0.receipt()) }
        try await test.track(0..<4)
        return test
    }

    @Test("a suspect that the quota has removed shifts no other: they go in their order, and none fails (R9)")
    func removedSuspectShiftsNobody() async throws {
        let test = try await client()
        #expect(await test.client.dispatchStep() != .noData)
        try await test.track(4..<5)
        for _ in 0..<4 { #expect(await test.client.dispatchStep() != .noData) }
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [3], [4], [5]])
        let status = await test.client.status()
        #expect(status.stored == 4 && status.failure == nil && status.dropped == ["quota_oldest": 1] && status.isBalanced)
    }

    @Test("nor one that is removed while the event behind it is under way, which then convicts nobody")
    func suspectIsRemovedInAPass() async throws {
        let test = try await client()
        let mayAnswer = AwaitedCount()
        test.transport.script { batch in
            if batch.sequences == [2] { await mayAnswer.reaches(1) }
            return .success(batch.sequences == [1] ? .problem(.malformed) : batch.receipt())
        }
        async let flushed = test.client.flush()
        await test.transport.requests(2)
        try await test.track(4..<5)
        mayAnswer.set(1)
        let report = await flushed
        #expect(report.failure == nil && report.remaining == 0)
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [3], [4], [5]])
        #expect(try test.client.deadLetters.count() == 0)
        #expect(await test.client.status().isBalanced)
    }

    @Test("nor one that has become too old meanwhile")
    func suspectGrowsOld() async throws {
        let test = try await client {
            $0.quota.maximumEvents = 10
            $0.quota.maximumAge = .seconds(100)
        }
        _ = await test.client.dispatchStep()
        test.clock.moveWallClock(by: .seconds(60))
        try await test.track(4..<6)
        test.clock.moveWallClock(by: .seconds(60))
        // The first four are too old now, and one of them was a suspect.
        for _ in 0..<2 { _ = await test.client.dispatchStep() }
        #expect(test.transport.batches.map(\.sequences) == [[1], [5], [6]])
        let status = await test.client.status()
        #expect(status.stored == 2 && status.depth == 0 && status.failure == nil && status.isBalanced)
    }

    @Test("it ends a minute after its pass: the server that accepts something hours later may be another (D12)")
    func oldSuspicionConvictsNobody() async throws {
        let test = try await client()
        test.transport.script { _ in .success(.problem(.malformed)) }
        _ = await test.client.dispatchStep()
        test.clock.advance(by: DeliveryStateMachine.suspicionTime + .seconds(1))
        test.transport.script { .success($0.receipt()) }
        for _ in 0..<4 { _ = await test.client.dispatchStep() }
        #expect(test.transport.batches.map(\.sequences) == [[1], [1], [2], [3], [4]])
        let status = await test.client.status()
        #expect(status.stored == 4 && status.deadLettered == 0)
    }

    @Test("and is forgotten then: the next one refused is the one that goes to the dead letters (D13)")
    func oldSuspectIsForgotten() async throws {
        let test = try await client()
        _ = await test.client.dispatchStep()
        test.clock.advance(by: DeliveryStateMachine.suspicionTime + .seconds(1))
        test.transport.script { .success($0.sequences == [2] ? .problem(.malformed) : $0.receipt()) }
        for _ in 0..<4 { _ = await test.client.dispatchStep() }
        #expect(test.transport.batches.map(\.sequences) == [[1], [1], [2], [3], [4]])
        let status = await test.client.status()
        #expect(status.stored == 3 && status.deadLettered == 1 && status.depth == 0 && status.isBalanced)
    }

    @Test("and not before: steps of which each makes one request come to a verdict, too, if less than that is between two (D13)")
    func suspicionOutlastsAStep() async throws {
        let test = try await client()
        test.transport.script { .success($0.sequences == [1] ? .problem(.malformed) : $0.receipt()) }
        test.clock.advance(by: .seconds(1_000))
        for _ in 0..<4 {
            _ = await test.client.dispatchStep()
            test.clock.advance(by: DeliveryStateMachine.suspicionTime - .seconds(1))
        }
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [3], [4]])
        let status = await test.client.status()
        #expect(status.stored == 3 && status.deadLettered == 1 && status.isBalanced)
    }

    @Test(
        "who may make no other request makes none, though the gate grants it to who asks (R31)",
        arguments: [RequestPermission.denied, .unwanted])
    func limitIsObeyed(permission: RequestPermission) async throws {
        let test = try await client()
        test.transport.script { .success($0.receipt()) }
        let asked = Locked(0)
        let state = await test.client.delivery.drain {
            asked.withLock {
                $0 += 1
                return $0 == 1 ? .granted(timeout: nil) : permission
            }
        }
        #expect(state.counts.stored == 1 && test.transport.batches.map(\.sequences) == [[1]])
        await test.client.shutdown(within: .zero)
    }

    @Test("a step that is to call the witness leaves that to the next one: it has made its request (R28)")
    func witnessIsARequestOfItsOwn() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let poison = DeliveryStateMachine.maximumSuspects
        try await test.track(0..<1)
        #expect(await test.client.flush().stored == 1)
        test.transport.script { .success($0.sequences == [1] ? $0.receipt() : .problem(.malformed)) }
        try await test.track(1..<poison + 2)
        for step in 1...poison + 1 {
            _ = await test.client.dispatchStep()
            #expect(test.transport.batches.count == 1 + step)
        }
        #expect(test.transport.batches.last?.sequences == [1])
        let status = await test.client.status()
        #expect(status.deadLettered == Int64(poison) && status.depth == 1 && status.isBalanced)
    }

    @Test("an event that was rejected is no witness: it would be a dead letter, and stored as well (I1)")
    func rejectedEventIsNoWitness() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { .success($0.receipt { _ in .rejected }) }
        try await test.track(0..<1)
        #expect(await test.client.flush().deadLettered == 1)
        test.transport.script { .success($0.names == ["event 1"] ? .problem(.malformed) : $0.receipt()) }
        try await test.track(1..<2)
        #expect(await test.client.flush().remaining == 1, "without a witness nobody can tell")
        #expect(test.transport.batches.map(\.sequences) == [[1], [2]])
    }

    @Test("what was stored is sent to nobody again once somebody has purged the queue (D16)")
    func purgedWitnessIsNotSent() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        try await test.track(0..<1)
        #expect(await test.client.flush().stored == 1)
        _ = try await test.client.purge()
        test.transport.script { .success($0.names == ["event 1"] ? .problem(.malformed) : $0.receipt()) }
        try await test.track(1..<2)
        #expect(await test.client.flush().remaining == 1)
        #expect(test.transport.batches.map(\.sequences) == [[1], [2]])
    }
}
