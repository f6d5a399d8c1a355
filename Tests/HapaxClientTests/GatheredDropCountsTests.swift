import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Counts of what many installs dropped that are gone (I12, I13)")
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
}
