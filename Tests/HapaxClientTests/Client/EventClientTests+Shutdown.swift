import HapaxTestKit
import GRDB
import TestSupport
import Testing

@testable import HapaxClient

/// What a shutdown waits for, what it leaves, and what is answered afterwards.
extension EventClientTests {
    @Test("after shutdown track returns nil and the durable call throws (I12)")
    func shutDownClientRefuses() async throws {
        let test = try TestClient()
        try await test.track(0..<2)
        let report = await test.client.shutdown(within: .seconds(5))
        #expect(report == ShutdownReport(stored: 0, lost: 0))
        #expect(test.transport.batches.map(\.ids.count) == [2])
        #expect(test.client.track("late") == nil)
        await #expect(throws: TrackError.refused(.shutDown)) { try await test.client.trackDurably("late") }
    }

    @Test("what is asked after shutdown returns and says so (D7)")
    func callsAfterShutdownReturn() async throws {
        let test = try TestClient()
        try await test.track(0..<2)
        _ = await test.client.shutdown(within: .zero)
        #expect(await test.client.flush() == FlushReport(stored: 0, duplicates: 0, deadLettered: 0, remaining: 2, failure: .shutDown))
        await #expect(throws: TrackError.shutDown) { try await test.client.waitUntilStored() }
        #expect(await test.client.shutdown(within: .zero).lost == 0)
        #expect(await test.client.status().depth == 2)
    }

    @Test("shutdown ends an upload that hangs at its limit and keeps the events (D6, D7, R38)")
    func shutdownIsBounded() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        try await test.track(0..<3)
        async let report = test.client.shutdown(within: .seconds(2))
        await test.transport.requests(1)
        await test.clock.scheduled(1)
        test.clock.advance(by: .seconds(2))
        #expect(await report == ShutdownReport(stored: 3, lost: 0, failure: .shutDown))
    }

    @Test("shutdown leaves a commit that is stuck behind another process's lock, at its limit (D7, R38)")
    func shutdownLeavesWhatIsStuck() async throws {
        let test = try TestClient()
        try await test.track(0..<3)
        let locked = Gate()
        let unlock = Gate()
        let holder = Task { [queue = test.client.file] in
            try await blocking {
                try queue.database.writeWithoutTransaction { _ in
                    locked.open()
                    unlock.blockUntilOpen()
                }
            }
        }
        try await blocking { locked.blockUntilOpen() }
        let caller = Task { [client = test.client] in try await client.trackDurably("stuck") }
        while test.client.writer.intake.withLock({ $0.uncommitted.events }) == 0 { await Task.yield() }
        #expect(await test.client.status().depth == 3, "a status does not wait for the commit")
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(3)
        test.clock.advance(by: .milliseconds(500))
        await #expect(throws: TrackError.shutDown) { try await caller.value }
        test.clock.advance(by: .milliseconds(100))
        let left = await report
        #expect(left.stored == 3 && left.lost == 1)
        unlock.open()
        try await holder.value
    }

    @Test("shutdown with a store that never succeeds says what is lost")
    func shutdownCountsWhatIsLost() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        test.client.track("lost")
        await test.clock.scheduled(1)
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(2)
        test.clock.advance(by: .milliseconds(500))
        #expect(await report == ShutdownReport(stored: 0, lost: 1))
    }
}
