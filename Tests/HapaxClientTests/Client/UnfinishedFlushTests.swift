import Foundation
import GRDB
import GRDBSQLite
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// An empty queue is not always the end of it.
@Suite("A flush says why something is left (R13, I12, I15)", .endsWhenItHangs)
struct UnfinishedFlushTests {
    @Test("events that cannot be stored: the flush names the failure of the store")
    func unstoredEventsAreAFailure() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        test.client.track("stuck")
        let report = await test.client.parts.finalFlush(within: .seconds(1)).own
        #expect(report.remaining == 1)
        guard case .queue = report.failure else {
            Issue.record("\(String(describing: report.failure))")
            return
        }
        try test.refuseCommits(false)
        #expect(await test.client.flush().failure == nil, "control")
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "a flush that has so much time ends then, also while its delivery waits for a disk that hangs: the report says what had been delivered before (R13, D7)"
    )
    func limitBoundsADiskThatHangs() async throws {
        let test = try TestClient()
        try await test.track(0..<60)
        let hangs = Gate()
        let disk = Task { [queue = test.client.file, transport = test.transport] in
            await transport.requests(2)
            try await blocking { try queue.database.writeWithoutTransaction { _ in hangs.blockUntilOpen() } }
        }
        test.transport.script { [transport = test.transport] batch in
            if transport.batches.count == 2 { await hangs.waitForArrivals(1) }
            return .success(batch.receipt())
        }
        async let report = test.client.parts.finalFlush(within: .seconds(2)).own
        await hangs.waitForArrivals(1)
        // Time for the delivery to come to the disk; without it the test would only see less.
        for _ in 0..<1_000 { await Task.detached {}.value }
        test.clock.advance(by: .seconds(3))
        #expect(await report == FlushReport(stored: 50, duplicates: 0, deadLettered: 0, remaining: 10, failure: .transport(.aborted)))
        hangs.open()
        try await disk.value
        await test.client.shutdown(within: .zero)
    }

    @Test("a flush sends what is still being stored, with a limit and without (R13)", arguments: [true, false])
    func storingIsWaitedFor(isLimited: Bool) async throws {
        let test = try TestClient()
        let mayStore = Gate()
        test.client.writer.whenStored { mayStore.blockUntilOpen() }
        await mayStore.waitForArrivals(1)
        test.client.track("late")
        let isOver = Locked(false)
        let flush = Task {
            let report = isLimited ? await test.client.parts.finalFlush(within: .seconds(2)).own : await test.client.flush()
            isOver.withLock { $0 = true }
            return report
        }
        // Until the flush waits behind the event, or does not and is over.
        while test.client.writer.intake.withLock({ $0.mailbox.count }) < 2, !isOver.withLock({ $0 }) { await Task.yield() }
        mayStore.open()
        #expect(await flush.value == FlushReport(stored: 1, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        await test.client.shutdown(within: .zero)
    }

    @Test("a request that hangs is ended when the time is over (R13)")
    func limitEndsARequest() async throws {
        let test = try TestClient()
        let transport = test.transport
        transport.script { _ in await transport.hang() }
        try await test.track(0..<1)
        async let report = test.client.parts.finalFlush(within: .seconds(2)).own
        await transport.requests(1)
        test.clock.advance(by: .seconds(2))
        #expect(await report.failure == .transport(.aborted))
        #expect(await report.remaining == 1)
        await test.client.shutdown(within: .zero)
    }
}
