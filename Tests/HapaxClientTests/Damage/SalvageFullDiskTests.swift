#if canImport(Glibc)
import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite(
    "A damaged file on a disk that is too small to hold it twice (I11, I12, I15)",
    .enabled(if: TinyDisk.isPossible, "mounting a file system takes root"), .takesTurns, .timeLimit(.minutes(20)))
struct SalvageFullDiskTests {
    private static let count = 1_600

    private static func event(_ sequence: Int) -> PreparedEvent { .sample(Int64(sequence), fill: 500) }

    private func open(_ disk: TinyDisk) throws -> EventQueue {
        try EventQueue(
            directory: QueueDirectory(path: disk.path + "/queue"), durability: .process,
            newInstallID: .derived(name: "i", key: UUID().uuidString))
    }

    /// Turns a page of rows into noise.
    private static func spoil(_ path: String) throws {
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D }
        let page = try #require(leaves.dropFirst(2).first { bytes[$0 * 4_096 + 4] > 3 })
        for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.write(contentsOf: bytes)
        try handle.close()
    }

    @Test("what is purged before it could be salvaged does not come back, and a purge that cannot promise that says so")
    func purgedEventsStayAway() async throws {
        let disk = try #require(TinyDisk(bytes: 3 * 1024 * 1024))
        var queue = try open(disk)
        try queue.append((1...Self.count).map { Self.event($0) }[...])
        queue.close()
        try Self.spoil(queue.directory.databasePath)
        try Data().write(to: URL(fileURLWithPath: queue.directory.databasePath + "-wal"))
        disk.fill(except: 700_000)
        queue = try open(disk)
        let full = queue
        await #expect(throws: DatabaseError.self) { _ = try await full.purgeWaiting() }
        #expect(queue.damage.withLock { !$0.pending.isEmpty } && queue.books.depth > 0)
        _ = try queue.purge()
        #expect(queue.books.depth == 0 && queue.books.isBalanced)
        #expect(try queue.reading { try Int.fetchOne($0, sql: "SELECT COUNT(*) FROM salvaged_rows") } == 0)
        queue.close()
        disk.unfill()
        queue = try open(disk)
        await queue.salvage()
        #expect(queue.books.depth == 0 && queue.directory.filesSetAside.count == 1)
        queue.close()
    }

    @Test(
        "salvage goes on behind what was delivered, be there room for a few events only: each is sent once, and the counts are right",
        arguments: [false, true], [700_000, 520_000])
    func salvageGoesOn(isRunning: Bool, free: Int) async throws {
        let disk = try #require(TinyDisk(bytes: 3 * 1024 * 1024))
        var queue = try open(disk)
        try queue.append((1...Self.count).map { Self.event($0) }[...])
        if isRunning {
            try queue.readPagesAnew()
            try Self.spoil(queue.directory.databasePath)
        } else {
            queue.close()
            try Self.spoil(queue.directory.databasePath)
            try Data().write(to: URL(fileURLWithPath: queue.directory.databasePath + "-wal"))
            disk.fill(except: free)
            queue = try open(disk)
        }
        if isRunning { disk.fill(except: free) }
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        var sent: [EventID] = []
        var failures = 0
        while sent.count < 3 * Self.count {
            do {
                let batch = try await source.nextBatch(limit: 50, maximumBytes: .max, skipping: 0)
                if batch.events.isEmpty { break }
                sent += batch.events.map(\.id)
                try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
            } catch {
                failures += 1
                if failures > 5 { throw error }
            }
        }
        #expect(Set(sent).count == sent.count && sent.count > Self.count - 20, "each is sent once, and it ends")
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.salvaged + (damage.lost ?? 0) == Self.count && damage.salvaged == sent.count)
        #expect(queue.books.isBalanced && queue.books.drops.byReason["damaged"] == Int64(Self.count - sent.count))
        queue.close()
    }

    @Test("a copy that leaves no room to deliver waits for more (I13); whom events concern is known at once", arguments: [0, 400_000])
    func copyWaitsForRoom(logBytes: Int) async throws {
        let disk = try #require(TinyDisk(bytes: 3 * 1024 * 1024))
        var queue = try open(disk)
        let count = logBytes > 0 ? 300 : 700
        try queue.append((1...count).map { Self.event($0) }[...])
        try queue.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        queue.close()
        let file = queue.directory.databasePath
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        let size = try handle.seekToEnd()
        try handle.seek(toOffset: 0)
        try handle.write(contentsOf: Data(repeating: 0xEE, count: QueueRoom.pageBytes))
        try handle.close()
        // Of a log there is a copy as well, be nothing in it.
        if logBytes > 0 { try Data(count: logBytes).write(to: URL(fileURLWithPath: file + "-wal")) }
        disk.fill(except: logBytes > 0 ? Int(size) * 5 / 4 + 600_000 : Int(size) + 450_000)
        queue = try open(disk)
        #expect(try queue.identity() == EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna"))
        #expect(disk.freeBytes > size, "control: the copy itself would fit")
        await queue.salvage()
        #expect(queue.salvageFailure?.cause.isDiskFull == true && queue.isSalvageDue && queue.books.depth == 0)
        disk.unfill()
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == count && queue.salvageFailure == nil && queue.books.isBalanced)
        queue.close()
    }
}
#endif
