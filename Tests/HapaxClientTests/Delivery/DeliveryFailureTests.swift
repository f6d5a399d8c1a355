import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Why the latest attempt to deliver failed, and nothing older (R13, D11)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct DeliveryFailureTests {
    /// A queue with so many events of which the first attempt to deliver one failed.
    private func failed(_ count: Int) async throws -> TestClient {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { _ in .failure(.cut) }
        try await test.track(0..<count)
        #expect(await test.client.flush().failure == .transport(.cut))
        return test
    }

    /// Grants so many requests.
    private func permission(_ count: Int) -> @Sendable () -> RequestPermission {
        let left = Locked(count)
        return {
            left.withLock { left in
                left -= 1
                return left < 0 ? .unwanted : .granted(timeout: nil)
            }
        }
    }

    @Test("an attempt that this process ended itself says less than why the one before failed")
    func ownEndHidesNothing() async throws {
        let test = try await failed(1)
        test.transport.script { _ in .failure(.aborted) }
        #expect(await test.client.flush().failure == .transport(.cut))
    }

    @Test("once a batch is delivered the failure before it is none any more, also if the rest is left for later")
    func deliveryEndsAFailure() async throws {
        let test = try await failed(2)
        test.transport.script { .success($0.receipt()) }
        let state = await test.client.delivery.drain(permission: permission(1))
        #expect(state.counts.stored == 1 && state.failure == nil)
        let status = await test.client.status()
        #expect(status.depth == 1 && status.failure == nil)
    }

    @Test("nor is it once the event that was to blame has become a dead letter (D13)")
    func condemnationEndsAFailure() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        test.transport.script { $0.sequences == [2] ? .success(.problem(.malformed)) : .success($0.receipt()) }
        try await test.track(0..<2)
        // One to store the first event, one to try the second, one to see that nothing is behind it.
        let state = await test.client.delivery.drain(permission: permission(3))
        #expect(state.counts.stored == 1 && state.counts.deadLettered == 1 && state.failure == nil)
    }

    @Test("nor is it once nothing waits any more, because somebody has purged it")
    func emptyQueueHasNoFailure() async throws {
        let test = try await failed(1)
        _ = try test.client.queue.purge()
        #expect(await test.client.flush().failure == nil)
    }

    @Test("a timer whose rest is over changes nothing: neither the rest behind it nor the upload that ended it")
    func lateTimerChangesNothing() async throws {
        let test = try await failed(2)
        let delivery = test.client.delivery
        _ = await test.client.flush()
        let rest = await delivery.restNumber
        await delivery.waitEnded(rest - 1)
        await delivery.restBegins()
        #expect(await delivery.state.nextAttempt != nil)
        test.transport.script { batch in
            await delivery.waitEnded(rest)
            return .success(batch.receipt())
        }
        #expect(await test.client.flush().stored == 2)
    }
}
