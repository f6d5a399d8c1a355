import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Purge (D16, I12)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct PurgeTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path + "/queue" }

    /// Without a client, which would do more beside.
    private func open() throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: "1"))
    }

    @Test("a purge and a shutdown do not keep each other from their ends (D7, R38)")
    func purgeEndsDuringAShutdown() async throws {
        let test = try TestClient()
        let mayAnswer = AwaitedCount()
        test.transport.script { batch in
            await mayAnswer.reaches(1)
            return .success(batch.receipt())
        }
        try await test.track(0..<200)
        async let report = test.client.shutdown(within: .seconds(10))
        await test.transport.requests(1)
        async let purged = test.client.purge()
        // Once it waits for the request, which it then keeps from having a successor.
        while await !test.client.delivery.isLimited { await Task.yield() }
        mayAnswer.set(1)
        #expect(try await purged == 150)
        #expect(await report == ShutdownReport(stored: 0, lost: 0))
    }

    @Test("deletes what waits and what is dead, and the books add up")
    func everythingIsDeleted() async throws {
        let test = try TestClient()
        let id = EventID.derived(name: "order", key: "1")
        try await test.track(0..<3)
        test.client.track("order", id: id)
        test.client.track(String(repeating: "n", count: 201))
        #expect(try await test.client.purge() == 5)
        let status = await test.client.status()
        #expect(status.depth == 0 && status.bytes == 0 && status.isBalanced && status.dropped == ["purged": 4])
        #expect(try test.client.deadLetters.list().isEmpty)
        test.client.track("order", id: id)
        #expect(await test.client.flush().stored == 1, "its id may come again")
        #expect(test.transport.batches.flatMap(\.sequences) == [6], "no sequence comes again (I7)")
    }

    @Test("where there is nothing nothing is counted; with rows that the books do not know, or miss, they add up (I11, I12)")
    func booksAddUpBehindAPurge() async throws {
        let test = try TestClient()
        #expect(try await test.client.purge() == 0)
        #expect(await test.client.status().dropped.isEmpty)
        try await test.track(0..<3)
        test.client.track("")
        try await test.client.writer.barrier()
        try await test.client.queue.database.write { try $0.execute(sql: "DELETE FROM queue WHERE row = 2") }
        #expect(try await test.client.purge() == 3)
        let (status, books) = (await test.client.status(), test.client.queue.books)
        #expect(status.isBalanced && status.depth == 0 && status.dropped == ["purged": 2])
        #expect(books.usage == QueueUsage())
    }

    /// Calls back behind the next commit, before anybody else has the connection.
    private final class CommitObserver: TransactionObserver {
        private let action: () -> Void

        init(_ action: @escaping () -> Void) { self.action = action }
        func observes(eventsOfKind eventKind: DatabaseEventKind) -> Bool { false }
        func databaseDidChange(with event: DatabaseEvent) {}
        func databaseDidCommit(_ db: Database) { action() }
        func databaseDidRollback(_ db: Database) {}
    }

    @Test("a file that is set aside just behind the purge's commit is none of its business: it can hold later events (I1)")
    func laterDamageIsNotPurged() throws {
        let queue = try open()
        defer { queue.close() }
        try queue.append((1...3).map { PreparedEvent.sample($0, fill: 10) }[...])
        for number in 1...2 {
            try Data().write(to: URL(fileURLWithPath: queue.directory.databasePath + ".damaged-\(number)"))
        }
        queue.damage.withLock { $0.pending = [DamagedFile(name: "queue.sqlite.damaged-1", isOwn: true)] }
        try queue.database.add(
            transactionObserver: CommitObserver {
                queue.damage.withLock { $0.pending.append(DamagedFile(name: "queue.sqlite.damaged-2", isOwn: true)) }
            }, extent: .nextTransaction)
        #expect(try queue.purge().waiting == 3)
        #expect(queue.damage.withLock { $0.pending.map(\.number) } == [2])
        #expect(queue.directory.isSalvaged("queue.sqlite.damaged-1") && !queue.directory.isSalvaged("queue.sqlite.damaged-2"))
    }

    enum Purge: CaseIterable { case everything, waiting, letters }

    @Test("what was deleted for ever is in no file of the queue any more", arguments: Purge.allCases)
    func purgedEventsAreGone(purge: Purge) async throws {
        let queue = try open()
        defer { queue.close() }
        var events = (1...200).map { PreparedEvent.sample($0, fill: 700) }
        if purge == .letters { for index in events.indices { events[index].problem = EventProblem(.nameTooLong, detail: "") } }
        try queue.append(events[...])
        func holders() throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.hasPrefix("queue.sqlite") }.filter {
                try Data(contentsOf: URL(fileURLWithPath: path + "/" + $0)).firstRange(of: Data("xxxxxxxx".utf8)) != nil
            }
        }
        #expect(try !holders().isEmpty, "control")
        switch purge {
        case .everything: #expect(try queue.purge().waiting == 200)
        case .waiting: #expect(try await queue.purgeWaiting() == 200)
        case .letters: #expect(try queue.purgeDeadLetters(try queue.deadLetterNumbers()) == 200)
        }
        #expect(try holders() == [])
    }

    @Test("a purge writes a small part of what it deletes: a full disk has no room for more")
    func purgeWritesLittle() throws {
        let queue = try open()
        defer { queue.close() }
        try queue.append((1...2_000).map { PreparedEvent.sample($0, fill: 700) }[...])
        try EventQueue.work(on: queue.database) { db in
            _ = try db.checkpoint(.truncate)
            var books = queue.books
            try db.inTransaction {
                let purged = try EventQueue.purgeWaiting(db, &books)
                #expect(purged.count == 2_000)
                return .commit
            }
        }
        func size(_ name: String) throws -> Int { try Data(contentsOf: URL(fileURLWithPath: path + "/" + name)).count }
        #expect(try size("queue.sqlite") > 1_400_000 && size("queue.sqlite-wal") < 100_000)
    }

    @Test("pages are given back in steps: SQLite holds in memory what one transaction moves")
    func pagesAreGivenBackInSteps() throws {
        let queue = try open()
        defer { queue.close() }
        try queue.append((1...2_500).map { PreparedEvent.sample($0, fill: 4_000) }[...])
        let commits = Locked(0)
        try queue.database.add(transactionObserver: CommitObserver { commits.withLock { $0 += 1 } }, extent: .databaseLifetime)
        #expect(try queue.purge().waiting == 2_500)
        // The purge's own, and one for each thousand of its pages.
        #expect(commits.withLock { $0 } >= 4)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path + "/queue.sqlite")).count < 200_000)
    }

    @Test("opting out deletes nothing (D16)")
    func optOutKeepsWhatWaits() async throws {
        let test = try TestClient()
        try await test.track(0..<3)
        try test.client.optOut()
        #expect(await test.client.flush().stored == 3)
    }

    @Test("a suspect that was purged is none: what comes later goes in its order, and its poison is found (R9, D13, D16)")
    func purgedSuspectIsForgotten() async throws {
        let test = try TestClient()
        test.transport.script { batch in .success(batch.names.contains("poison") ? .problem(.malformed) : batch.receipt()) }
        test.client.track("poison")
        try await test.client.writer.barrier()
        let asked = Locked(0)
        _ = await test.client.delivery.drain {
            let isFirst = asked.withLock { asked in
                asked += 1
                return asked == 1
            }
            return isFirst ? .granted(timeout: nil) : .unwanted
        }
        #expect(try await test.client.purge() == 1)
        test.client.track("poison")
        try await test.track(1...2)
        let report = await test.client.flush()
        #expect(report.stored == 2 && report.deadLettered == 1 && report.failure == nil)
        #expect(test.transport.batches.flatMap(\.sequences) == [1, 2, 3, 4])
    }

    /// Six events in batches of two, which are answered once the count is 1.
    private func withAnswersHeldUp() async throws -> (TestClient, mayAnswer: AwaitedCount) {
        let test = try TestClient { $0.batchSize = 2 }
        let mayAnswer = AwaitedCount()
        test.transport.script { batch in
            await mayAnswer.reaches(1)
            return .success(batch.receipt())
        }
        try await test.track(0..<6)
        return (test, mayAnswer)
    }

    @Test("ends an upload after the request in flight; what that delivered is counted as delivered, and the rest is not sent")
    func uploadUnderWayEnds() async throws {
        let (test, mayAnswer) = try await withAnswersHeldUp()
        async let flushed = test.client.flush()
        await test.transport.requests(1)
        async let purged = test.client.purge()
        while await !test.client.delivery.isLimited { await Task.yield() }
        mayAnswer.set(1)
        #expect(try await purged == 4)
        #expect(await flushed.stored == 2)
        #expect(test.transport.batches.count == 1)
        #expect(await test.client.status().isBalanced)
    }

    @Test("a purge that fails ends no flush: that goes on behind it")
    func failedPurgeEndsNoFlush() async throws {
        let (test, mayAnswer) = try await withAnswersHeldUp()
        let delivery = test.client.delivery
        async let flushed = delivery.drain()
        await test.transport.requests(1)
        async let isPurged: Bool = {
            do { try await delivery.exclusively { throw StorageFailure(errno: EIO) } } catch { return false }
            return true
        }()
        while await delivery.exclusives == 0 { await Task.yield() }
        mayAnswer.set(1)
        #expect(await !isPurged)
        #expect(await flushed.counts.stored == 6)
    }

    @Test("nor a step that was to send its request: it does so behind it (R28)")
    func failedPurgeTakesNoStep() async throws {
        let test = try TestClient { $0.batchSize = 2 }
        let delivery = test.client.delivery
        try await test.track(0..<6)
        let asked = Locked(0)
        async let step = delivery.drain {
            let isFirst = asked.withLock { asked in
                asked += 1
                return asked == 1
            }
            // As if a purge came before the pass has read.
            if isFirst { delivery.assumeIsolated { $0.exclusives += 1 } }
            return isFirst ? .granted(timeout: nil) : .unwanted
        }
        while await delivery.wasHeldBy == nil { await Task.yield() }
        #expect(test.transport.batches.isEmpty)
        await delivery.purgeFailed()
        #expect(await step.counts.stored == 2)
        #expect(test.transport.batches.count == 1)
    }

    @Test("a step that comes while a purge waits for the request in flight does not take the purge's word back")
    func stepBesideAPurgeSendsNothing() async throws {
        let (test, mayAnswer) = try await withAnswersHeldUp()
        async let flushed = test.client.flush()
        await test.transport.requests(1)
        async let purged = test.client.purge()
        while await test.client.delivery.exclusives == 0 { await Task.yield() }
        async let step = test.client.dispatchStep()
        while await test.client.delivery.limits.isEmpty { await Task.yield() }
        mayAnswer.set(1)
        #expect(try await purged == 4)
        let delivered = await flushed.stored
        let stepped = await step
        #expect(delivered == 2 || stepped == .good(more: false), "one of the two reports it")
        #expect(test.transport.batches.count == 1 && test.client.queue.books.depth == 0)
    }
}

extension Delivery {
    fileprivate func purgeFailed() {
        exclusives -= 1
        limitEnded()
    }
}
