import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A caller that waits no longer (C14)", .endsWhenItHangs)
struct CancellationTests {
    @Test("a cancelled durable call returns at once, and its event is stored all the same", arguments: [true, false])
    func durableCallReturns(isCancelledBefore: Bool) async throws {
        let test = try TestClient()
        let mayGoOn = try await test.holdWriter()
        let call = Task { () -> TrackError? in
            while isCancelledBefore, !Task.isCancelled { await Task.yield() }
            do throws(TrackError) {
                try await test.client.trackDurably("order", id: .derived(name: "order", key: "1"))
                return nil
            } catch { return error }
        }
        while !isCancelledBefore, await test.client.status().inMemory == 0 { await Task.yield() }
        call.cancel()
        #expect(await call.value == .cancelled)
        mayGoOn.signal()
        #expect(await test.client.flush().stored == 1)
        await test.client.shutdown(within: .zero)
    }

    /// Where a flush stands when its caller's patience ends.
    enum Step: CaseIterable, Sendable { case notBegun, storing, sending, settling }

    @Test(
        "a flush returns at once when its task is cancelled or its time is over; its request is answered and settled, and no other is made",
        arguments: Step.allCases, [DeliveryFailure.cancelled, .outOfTime])
    func flushReturns(step: Step, failure: DeliveryFailure) async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let (mayStore, mayAnswer, mayRead) = (Gate(), Gate(), Gate())
        if step != .sending { mayAnswer.open() }
        if step != .settling { mayRead.open() }
        test.transport.script { [queue = test.client.file] batch in
            if step == .settling {
                Thread.detachNewThread { try? queue.database.writeWithoutTransaction { _ in mayRead.blockUntilOpen() } }
                await mayRead.waitForArrivals(1)
            }
            try? await blocking { mayAnswer.blockUntilOpen() }
            return .success(batch.receipt())
        }
        try await test.track(0..<2)
        if step == .storing || step == .notBegun { test.client.writer.whenStored { mayStore.blockUntilOpen() } }
        let flush = Task {
            while step == .notBegun, failure == .cancelled, !Task.isCancelled { await Task.yield() }
            return await test.client.flush(within: failure == .outOfTime ? .seconds(2) : nil)
        }
        switch step {
        case .notBegun: break
        case .storing: await mayStore.waitForArrivals(1)
        case .sending: await mayAnswer.waitForArrivals(1)
        case .settling: await mayRead.waitForArrivals(1)
        }
        if failure == .outOfTime { await test.clock.scheduled(1) }
        if failure == .cancelled { flush.cancel() } else { test.clock.advance(by: .seconds(2)) }
        #expect(await flush.value.failure == failure)
        for gate in [mayStore, mayAnswer, mayRead] { gate.open() }
        let isUnderWay = step == .sending || step == .settling
        while isUnderWay, test.client.file.counters.stored == 0 { await Task.yield() }
        // Another step follows the one under way.
        _ = await test.client.delivery.exclusively { true }
        #expect(test.transport.batches.count <= 1 || !isUnderWay)
        let rest = await test.client.flush()
        #expect(rest.remaining == 0 && rest.failure == nil)
        #expect(test.transport.batches.flatMap(\.sequences) == [1, 2], "each is sent once")
        await test.client.shutdown(within: .zero)
    }

    @Test("a flush is over when what was stored at its call is, though events keep coming; one that is to be sent again is tried again")
    func flushIsBounded() async throws {
        let test = try TestClient { $0.batchSize = 2 }
        test.transport.script { [client = test.client] batch in
            client.track("later")
            try? await client.writer.barrier()
            return .success(batch.receipt { $0.sequence == 1 ? .retry : .stored })
        }
        try await test.track(0..<3)
        let report = await test.client.flush()
        #expect(report == FlushReport(stored: 2, duplicates: 0, deadLettered: 0, remaining: 4, failure: .askedToRetry(events: 1)))
        #expect(test.transport.batches.map(\.sequences) == [[1, 2], [3], [1]])
        test.transport.script { [client = test.client] batch in
            client.track("later")
            try? await client.writer.barrier()
            return .success(batch.receipt())
        }
        let next = await test.client.flush()
        #expect(next.stored == 4 && next.failure == nil && next.remaining > 0)
        await test.client.shutdown(within: .zero)
    }

    @Test("what becomes a dead letter as it is stored is in the next report, once (C19)")
    func lettersOfIntakeAreReported() async throws {
        let test = try TestClient()
        test.client.track("")
        try await test.client.writer.barrier()
        #expect(await test.client.flush().deadLettered == 1)
        #expect(await test.client.flush().deadLettered == 0)
        await test.client.shutdown(within: .zero)
    }
}
