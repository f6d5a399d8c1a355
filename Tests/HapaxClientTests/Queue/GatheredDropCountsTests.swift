import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Counts of what many installs dropped that are gone (I12, I13)", .timeLimit(.minutes(20)))
struct GatheredDropCountsTests {
    private static let installs = 600

    /// One event dropped by each.
    private static func drops(told: Int64) -> DropCounts {
        var drops = DropCounts()
        for number in 0..<installs {
            let key = DropCounts.Key(install: .derived(name: "spool", key: "\(number)"), reason: number % 3 == 0 ? "oldest" : "opted_out")
            drops[key] = DropCounts.Count(count: 1, told: told)
        }
        return drops
    }

    @Test("once the server has them they take a few rows and nothing is forgotten; each was told under its own name")
    func toldCountsAreGathered() async throws {
        let test = try TestClient()
        let queue = test.client.queue
        try queue.adopt(Self.drops(told: 0))
        let sums = queue.books.drops.byReason
        #expect(sums == ["oldest": 200, "opted_out": 400], "control")
        var batches = 0
        while queue.books.drops.isUntold {
            try await test.track(0..<1)
            #expect(await test.client.flush().stored == 1)
            batches += 1
        }
        #expect(batches == (Self.installs + EventLimits.maximumInstallsTakenOver - 1) / EventLimits.maximumInstallsTakenOver)
        let told = test.transport.batches.flatMap { Array($0.scanned.envelope.takenOver.keys) }
        #expect(told.count == Self.installs && Set(told).count == Self.installs)
        #expect(queue.books.drops.counts.count <= DropCounts.maximumRows && queue.books.drops.byReason == sums)
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
        let again = try TestClient(directory: test.directory)
        #expect(again.client.queue.books == queue.books && !again.client.queue.books.drops.isUntold)
        await again.client.shutdown(within: .zero)
    }

    @Test(
        "while a damaged file is left, or a queue beside this one, they stay apart: those can be taken over once more",
        arguments: [true, false])
    func countsStayApartBesideOthers(isSpool: Bool) async throws {
        let test = try TestClient()
        let queue = test.client.queue
        try queue.adopt(Self.drops(told: 1))
        let spool = try TestClient(directory: test.directory) { $0.whenQueueIsTaken = .spool }
        let damaged = queue.directory.databasePath + ".damaged-1"
        if !isSpool {
            await spool.client.shutdown(within: .zero)
            try Data().write(to: URL(fileURLWithPath: damaged))
        }
        let before = queue.books.drops
        #expect(await test.client.flush().failure == nil && queue.books.drops == before)
        try queue.adopt(Self.drops(told: 1))
        #expect(queue.books.drops == before)
        if isSpool { await spool.client.shutdown(within: .zero) } else { try FileManager.default.removeItem(atPath: damaged) }
        #expect(await test.client.flush().failure == nil)
        #expect(queue.books.drops.counts.count == 2 && queue.books.drops.byReason == before.byReason)
        await test.client.shutdown(within: .zero)
    }

    @Test("the queue's own counts stay its own, and go on from where the server has them")
    func ownCountsStay() async throws {
        let test = try TestClient { $0.enrichers = [{ $0.name == "bad" ? nil : $0 }] }
        let queue = test.client.queue
        try queue.adopt(Self.drops(told: 1))
        for count in 1...3 {
            #expect(test.client.track("bad") == nil)
            try await test.track(0..<1)
            #expect(await test.client.flush().stored == 1)
            #expect(test.transport.batches.last?.scanned.envelope.dropped == [DropReason.enricher.rawValue: Int64(count)])
        }
        #expect(queue.books.drops.byReason == ["oldest": 200, "opted_out": 400, "enricher": 3])
        await test.client.shutdown(within: .zero)
    }

    @Test("a few stay apart, so that one that comes again, as with an old copy of a spool, counts once")
    func fewCountsStayApart() async throws {
        let test = try TestClient()
        let queue = test.client.queue
        var drops = DropCounts()
        for (key, count) in Self.drops(told: 1).counts.prefix(DropCounts.maximumRows) { drops[key] = count }
        for _ in 0..<2 {
            try queue.adopt(drops)
            #expect(await test.client.flush().failure == nil && queue.books.drops == drops)
        }
        await test.client.shutdown(within: .zero)
    }

    @Test("a damaged file from before they were gathered brings none of them back (I11, I12)")
    func damagedFileBringsNothingBack() async throws {
        let test = try TestClient()
        let queue = test.client.queue
        try queue.adopt(Self.drops(told: 1))
        let ids = try await test.track(1...200)
        let path = queue.directory.databasePath
        func checkpoint() throws {
            try queue.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)") }
        }
        try checkpoint()
        let older = try Data(contentsOf: URL(fileURLWithPath: path))
        try queue.gatherDrops()
        let gathered = queue.books.drops
        #expect(gathered.counts.count == 2, "control")
        try checkpoint()
        // As on a disk that lost what was written since.
        try FileHandle(forWritingTo: URL(fileURLWithPath: path)).write(contentsOf: older)
        try DamagedPage.make(in: queue, at: ids[100])
        while await test.client.flush().remaining > 0 {}
        #expect(queue.directory.filesSetAside.count == 1)
        #expect(gathered.counts.allSatisfy { queue.books.drops[$0.key] == $0.value })
        #expect(queue.books.drops.byReason.filter { $0.key != "damaged" } == gathered.byReason)
        await test.client.shutdown(within: .zero)
    }
}
