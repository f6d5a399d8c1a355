import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Consent", .timeLimit(.minutes(3)), .endsWhenItHangs)
struct ConsentTests {
    @Test("while consent is pending events are stored and nothing is sent, which whoever asks is told; granted, all of it is sent")
    func pendingIsStored() async throws {
        let first = try TestClient { $0.consent = .pending }
        #expect(first.client.consent == .pending)
        #expect(await first.client.flush().failure == nil, "nothing waits")
        try await first.track(1...3)
        let report = await first.client.flush()
        #expect(report.failure == .consentPending && report.remaining == 3)
        #expect(await first.client.status().failure == .consentPending)
        #expect(await first.client.flushNextBatch() == .failed(.consentPending))
        #expect(await first.client.shutdown(within: .seconds(1)).failure == .consentPending)
        #expect(first.transport.batches.isEmpty)
        // The configuration is asked once: what the directory says holds, whoever comes.
        let second = try TestClient(directory: first.directory)
        #expect(second.client.consent == .pending)
        try second.client.setConsent(.granted)
        try await second.track(4...4)
        #expect(await second.client.flush().stored == 4)
        #expect(second.transport.batches.flatMap(\.names) == (1...4).map { "event \($0)" })
        await second.client.shutdown(within: .zero)
    }

    @Test(
        "denied, what was taken while it was pending is deleted, dead letters included, and what was taken before is sent; books balance (I12)"
    )
    func denialDeletesWhatWaited() async throws {
        let test = try TestClient()
        try await test.track(1...2)
        try test.client.setConsent(.pending)
        try await test.track(3...5)
        test.client.track("")
        try await test.client.writer.barrier()
        try test.client.setConsent(.denied)
        #expect(test.client.track("refused") == nil)
        #expect(await test.client.flush().stored == 2)
        let status = await test.client.status()
        #expect(status.depth == 0 && status.removed == 3 && status.dropped == ["purged": 3, "opted_out": 1] && status.isBalanced)
        #expect(try test.client.file.deadLetters(after: 0, limit: 1).isEmpty)
        // Its numbers alone would say that there was something.
        _ = await test.client.flush()
        #expect(test.transport.batches.map(\.names) == [["event 1", "event 2"]])
        try test.client.setConsent(.granted)
        try await test.track(6...6)
        #expect(await test.client.flush().stored == 1 && test.transport.batches.last?.names == ["event 6"])
        await test.client.shutdown(within: .zero)
    }

    @Test("what waits in memory while another process denies, and grants again, is refused and never stored; who waits for it is told")
    func denialReachesTheMailbox() async throws {
        let test = try TestClient { $0.consent = .pending }
        let writer = try await test.holdWriter()
        for _ in 0..<500 { test.client.track("pending") }
        let durable = Task { try await test.client.trackDurably("pending, too") }
        while test.client.writer.intake.withLock({ $0.uncommitted.events }) < 501 { await Task.yield() }
        for consent in [Consent.denied, .granted] { try test.client.file.directory.setConsent(consent) }
        writer.signal()
        await #expect(throws: TrackError.refused(.optedOut)) { try await durable.value }
        try await test.track(1...1)
        #expect(await test.client.flush().stored == 1)
        let status = await test.client.status()
        #expect(status.created == 1 && status.dropped == ["opted_out": 501] && status.isBalanced)
        #expect(test.transport.batches.map(\.names) == [["event 1"]])
        await test.client.shutdown(within: .zero)
    }

    /// What a kill would have left after each of a file's commits, and after what was done between them.
    private final class Kills: TransactionObserver {
        private let (queue, copies) = (Locked(""), TemporaryDirectory())
        private let count = Locked(0)

        init(_ queue: String) { self.queue.withLock { $0 = queue } }

        func observes(eventsOfKind eventKind: DatabaseEventKind) -> Bool { true }
        func databaseDidChange(with event: DatabaseEvent) {}
        func databaseDidCommit(_ db: Database) { kill() }
        func databaseDidRollback(_ db: Database) {}

        func kill() {
            let number = count.withLock {
                $0 += 1; return $0
            }
            do {
                try FileManager.default.copyItem(atPath: queue.withLock { $0 }, toPath: copies.path("\(number)/queue"))
            } catch { Issue.record(error) }
        }

        var all: [String] { (1...count.withLock { $0 }).map { copies.path("\($0)") } }
    }

    @Test(
        "whoever is killed, at whatever moment: of what was taken while consent was pending not a byte is sent once it has been denied, not even if it is granted later; without a denial it is",
        arguments: [false, true])
    func killsSendNothing(isDenied: Bool) async throws {
        // The second file is another process's for whoever comes later.
        let first = try TestClient { $0.consent = .pending }
        let second = try TestClient(directory: first.directory)
        let queue = first.directory.path("queue")
        let kills = Kills(queue)
        for test in [first, second] {
            try await test.client.file.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA wal_autocheckpoint = 0") }
            try await test.track(1...1_500)
        }
        try second.client.file.database.add(transactionObserver: kills)
        try first.client.file.database.add(transactionObserver: kills)
        kills.kill()
        if isDenied { try QueueDirectory(path: queue).setConsent(.denied) }
        kills.kill()
        // Each purges with its next commit, the second one also by a request that it wants to make.
        _ = second.client.track("late")
        try await second.client.writer.barrier()
        _ = await first.client.flush()
        kills.kill()
        for test in [first, second] { _ = await test.client.shutdown(within: .zero) }
        #expect(first.transport.batches.isEmpty && second.transport.batches.isEmpty)
        for (number, copy) in kills.all.enumerated() {
            for consent in [Consent?.none, .granted] {
                let place = TemporaryDirectory()
                try FileManager.default.copyItem(atPath: copy + "/queue", toPath: place.path("queue"))
                if isDenied, let consent {
                    try QueueDirectory(path: place.path("queue")).setConsent(.denied)
                    try QueueDirectory(path: place.path("queue")).setConsent(consent)
                } else if let consent {
                    try QueueDirectory(path: place.path("queue")).setConsent(consent)
                }
                let later = try TestClient(directory: place)
                _ = await later.client.parts.finalFlush(within: .seconds(60))
                let names = later.transport.batches.flatMap(\.names).count
                let isSent = !isDenied && consent == .granted
                #expect(isSent ? names >= 3_000 : names == 0, "kill \(number), then \(consent as Any)")
                await later.client.shutdown(within: .zero)
            }
        }
    }
}
