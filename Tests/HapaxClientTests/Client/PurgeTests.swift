import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Purge (D16, I12)", .endsWhenItHangs)
struct PurgeTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path + "/queue" }

    /// Without a client, which would do more beside.
    private func open() throws -> QueueFile { try QueueFile.open(path) }

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
        while await test.client.delivery.waiters.isEmpty { await Task.yield() }
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
        #expect(try await test.client.deadLetters.list().isEmpty)
        test.client.track("order", id: id)
        #expect(await test.client.flush().stored == 1, "its id may come again")
        #expect(test.transport.batches.flatMap(\.sequences) == [6], "no sequence comes again (I7)")
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

    enum Purge: CaseIterable { case waiting, deadLetters }

    @Test("what was deleted for ever is in no file of the queue any more", arguments: Purge.allCases)
    func purgedEventsAreGone(purge: Purge) async throws {
        let queue = try open()
        defer { queue.close() }
        var events = (1...200).map { PreparedEvent.sample($0, fill: 700) }
        if purge == .deadLetters { for index in events.indices { events[index].problem = EventProblem(.nameTooLong, detail: "") } }
        try queue.append(events[...])
        func holders() throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.hasPrefix("1.sqlite") }.filter {
                try Data(contentsOf: URL(fileURLWithPath: path + "/" + $0)).firstRange(of: Data("xxxxxxxx".utf8)) != nil
            }
        }
        #expect(try !holders().isEmpty, "control")
        switch purge {
        case .waiting: #expect(try queue.purgeWaiting() == 200)
        case .deadLetters: #expect(try queue.purgeDeadLetters() == 200)
        }
        #expect(try holders() == [])
    }

    @Test("pages are given back in steps: SQLite holds in memory what one transaction moves")
    func pagesAreGivenBackInSteps() throws {
        let queue = try open()
        defer { queue.close() }
        try queue.append((1...2_500).map { PreparedEvent.sample($0, fill: 4_000) }[...])
        let commits = Locked(0)
        try queue.database.add(transactionObserver: CommitObserver { commits.withLock { $0 += 1 } }, extent: .databaseLifetime)
        #expect(try queue.purgeWaiting() == 2_500)
        // The purge's own, and one for each thousand of its pages.
        #expect(commits.withLock { $0 } >= 4)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path + "/1.sqlite")).count < 200_000)
    }

    @Test("opting out deletes nothing (D16)")
    func optOutKeepsWhatWaits() async throws {
        let test = try TestClient()
        try await test.track(0..<3)
        try test.client.setConsent(.denied)
        #expect(await test.client.flush().stored == 3)
    }

    @Test("a suspect that was purged is none: what comes later goes in its order, and its poison is found (R9, D13, D16)")
    func purgedSuspectIsForgotten() async throws {
        let test = try TestClient()
        test.transport.script { batch in .success(batch.names.contains("poison") ? .problem(.malformed) : batch.receipt()) }
        test.client.track("poison")
        try await test.client.writer.barrier()
        _ = await test.client.delivery.step(test.client.file, isManual: true)
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
        while await test.client.delivery.waiters.isEmpty { await Task.yield() }
        mayAnswer.set(1)
        #expect(try await purged == 4)
        #expect(await flushed.stored == 2)
        #expect(test.transport.batches.filter { !$0.ids.isEmpty }.count == 1)
        #expect(await test.client.status().isBalanced)
    }

    @Test("what is purged is in neither file nor log any more, though much else waits (D16)")
    func purgedBytesAreGone() throws {
        let directory = TemporaryDirectory()
        let queue = try QueueFile.open(directory.path)
        // Of several pages: those that become free are what SQLite would leave as they are.
        let text = String(repeating: "purge me ", count: 2_000)
        let secret = PreparedEvent(
            id: .derived(name: "event", key: "secret"), time: 1, bytes: Array(#"{"secret":"\#(text)"}"#.utf8),
            problem: EventProblem(.missingName, detail: ""))
        try queue.append([secret])
        for first in stride(from: Int64(1), to: 9_001, by: 500) {
            try queue.append((first..<first + 500).map { PreparedEvent.sample($0, fill: 1_000) })
        }
        func isThere() -> Bool {
            ["", "-wal"].contains { suffix in
                FileManager.default.contents(atPath: queue.directory.databasePath(1) + suffix)?.range(of: Data("purge me".utf8)) != nil
            }
        }
        #expect(isThere(), "control")
        #expect(try queue.purgeDeadLetters([1]) == 1 && !isThere())
        #expect(queue.counters.waiting == 9_000)
        queue.close()
    }
}
