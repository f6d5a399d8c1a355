import Foundation
import GRDB
import GRDBSQLite
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// An empty queue is not always the end of it.
@Suite("A flush says why something is left (R13, I12, I15)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct UnfinishedFlushTests {
    @Test("events that cannot be stored: the flush names the failure of the store")
    func unstoredEventsAreAFailure() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        test.client.track("stuck")
        let report = await test.client.finalFlush(within: .seconds(1))
        #expect(report.remaining == 1)
        guard case .queue = report.failure else {
            Issue.record("\(String(describing: report.failure))")
            return
        }
        try test.refuseCommits(false)
        #expect(await test.client.flush().failure == nil, "control")
        await test.client.shutdown(within: .zero)
    }

    /// A whole file in the place of a damaged one, of which the client learns when it is told: those that are there when it starts it salvages
    /// at once, and no test could get in between.
    private func setAside(in test: TestClient) async throws -> DamagedFile {
        let first = try TestClient()
        try await first.track(0..<20)
        await first.client.shutdown(within: .zero)
        let file = DamagedFile(name: "queue.sqlite.damaged-1", isOwn: false)
        let queue = test.client.queue
        try FileManager.default.moveItem(
            atPath: first.client.queue.directory.databasePath, toPath: queue.directory.path + "/" + file.name)
        try queue.transaction { db, _ in try EventQueue.remember(file, db) }
        return file
    }

    @Test("a flush that has so much time ends then, also while what a damaged file held is being taken over (R13)")
    func limitBoundsTheSalvage() async throws {
        let test = try TestClient()
        let file = try await setAside(in: test)
        // Somebody else writes: the salvage waits, by the real clock and longer than this test.
        try await test.client.queue.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA busy_timeout = 600000") }
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: test.client.queue.directory.databasePath, configuration: configuration)
        try await other.writeWithoutTransaction { try $0.execute(sql: "BEGIN IMMEDIATE") }
        test.client.queue.damage.withLock { $0.pending.append(file) }
        async let report = test.client.finalFlush(within: .seconds(2))
        await test.clock.scheduled(2)
        #expect(test.clock.pending == [.seconds(2), .milliseconds(2_500)], "what it was at may end by itself")
        test.clock.advance(by: .seconds(3))
        #expect(await report == FlushReport(stored: 0, duplicates: 0, deadLettered: 0, remaining: 0, failure: .transport(.aborted)))
        try await other.writeWithoutTransaction { try $0.execute(sql: "ROLLBACK") }
        await test.client.queue.salvage()
        #expect(await test.client.status().depth >= 20, "it went on by itself")
        await test.client.shutdown(within: .zero)
    }

    @Test("the same while its delivery waits for a disk that hangs: the report says what had been delivered before (R13, D7)")
    func limitBoundsADiskThatHangs() async throws {
        let test = try TestClient()
        try await test.track(0..<60)
        let hangs = Gate()
        let disk = Task { [queue = test.client.queue, transport = test.transport] in
            await transport.requests(2)
            try await blocking { try queue.database.writeWithoutTransaction { _ in hangs.blockUntilOpen() } }
        }
        test.transport.script { [transport = test.transport] batch in
            if transport.batches.count == 2 { await hangs.waitForArrivals(1) }
            return .success(batch.receipt())
        }
        async let report = test.client.finalFlush(within: .seconds(2))
        await hangs.waitForArrivals(1)
        // Time for the delivery to come to the disk; without it the test would only see less.
        for _ in 0..<1_000 { await Task.detached {}.value }
        test.clock.advance(by: .seconds(3))
        #expect(await report == FlushReport(stored: 50, duplicates: 0, deadLettered: 0, remaining: 10, failure: .transport(.aborted)))
        hangs.open()
        try await disk.value
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "a flush sends what is still being stored, with a limit and without, also beside a queue (R13)", arguments: [true, false],
        [true, false])
    func storingIsWaitedFor(isLimited: Bool, isSpool: Bool) async throws {
        let directory = TemporaryDirectory()
        let main = isSpool ? try TestClient(directory: directory) : nil
        let test = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
        let mayStore = Gate()
        test.client.writer.whenStored { mayStore.blockUntilOpen() }
        await mayStore.waitForArrivals(1)
        test.client.track("late")
        let isOver = Locked(false)
        let flush = Task {
            let report = isLimited ? await test.client.finalFlush(within: .seconds(2)) : await test.client.flush()
            isOver.withLock { $0 = true }
            return report
        }
        // Until the flush waits behind the event, or does not and is over.
        while test.client.writer.intake.withLock({ $0.mailbox.count }) < 2, !isOver.withLock({ $0 }) { await Task.yield() }
        mayStore.open()
        #expect(await flush.value == FlushReport(stored: 1, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        await main?.client.shutdown(within: .zero)
        await test.client.shutdown(within: .zero)
    }

    @Test("a request that hangs is ended when the time is over (R13)")
    func limitEndsARequest() async throws {
        let test = try TestClient()
        let transport = test.transport
        transport.script { _ in await transport.hang() }
        try await test.track(0..<1)
        async let report = test.client.finalFlush(within: .seconds(2))
        await transport.requests(1)
        test.clock.advance(by: .seconds(2))
        #expect(await report.failure == .transport(.aborted))
        #expect(await report.remaining == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("a damaged file that cannot be read for the moment: nothing counts as drained, and later all of it arrives (I11)")
    func unreadableFileIsAFailure() async throws {
        let test = try TestClient()
        let disk = FaultyDisk(test.directory.path)
        let file = try await setAside(in: test)
        disk.fail(FaultyDisk.Fault(at: 0, count: .max, code: SQLITE_CANTOPEN, operations: [.open]))
        test.client.queue.damage.withLock { $0.pending.append(file) }
        let report = await test.client.flush()
        #expect(disk.failures > 0)
        guard case .queue(let failure) = report.failure else {
            Issue.record("\(String(describing: report.failure))")
            return
        }
        #expect(failure.code == SQLITE_CANTOPEN && report.stored == 0)
        disk.fail(nil)
        #expect(await test.client.flush().failure == nil)
        #expect(Set(test.transport.batches.flatMap(\.names)).isSuperset(of: (0..<20).map { "event \($0)" }))
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("the event that tells of damage is part of what a flush delivers, which looks at the file before it stores (R13, I11)")
    func reportIsDelivered() async throws {
        let test = try TestClient()
        let (client, queue) = (test.client, test.client.queue)
        let file = try await setAside(in: test)
        // Nothing is in it that would be sent meanwhile.
        try Data("noise".utf8).write(to: URL(fileURLWithPath: queue.directory.path + "/" + file.name))
        queue.damage.withLock { $0.pending.append(file) }
        // Nothing is stored until the file has been looked at.
        let looked = Gate()
        client.writer.whenStored { looked.blockUntilOpen() }
        await looked.waitForArrivals(1)
        queue.damage.withLock { record in
            let salvaged = record.observer.salvaged
            record.observer.salvaged = { damage, report in
                salvaged(damage, report)
                looked.open()
            }
        }
        let report = await client.finalFlush(within: .seconds(2))
        #expect(test.transport.batches.flatMap(\.names) == [QueueDamage.eventName])
        #expect(report.stored == 1 && report.remaining == 0 && report.failure == nil)
        #expect(test.clock.pending.isEmpty)
        await client.shutdown(within: .zero)
    }
}
