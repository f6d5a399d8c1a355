import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A damaged file that cannot be read for a while, as without descriptors (I1, I11)")
struct SalvageReadFailureTests {
    private static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 700) }

    private func open(_ path: String, _ key: String) throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: key))
    }

    @Test("a failed read is tried again: no row is given up that can be read later", arguments: [FaultyDisk.Operation.open, .read])
    func failedReadIsTriedAgain(operation: FaultyDisk.Operation) async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let queue = try open(directory.path("queue"), "first")
        try queue.append((1...20).map { Self.event($0) }[...])
        try DamagedPage.make(in: queue, at: Self.event(8).id)
        _ = try? queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        #expect(queue.unsalvagedFiles == 1)
        // Of the new file nothing needs to be read: it is in memory.
        disk.cutOff(at: 0, [operation])
        await queue.salvage()
        #expect(disk.failures > 0)
        disk.fail(nil)
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.salvaged > 10, "\(damage)")
        #expect(queue.books.isBalanced)
        queue.close()
    }

    @Test("a salvage that failed is no empty queue: the delivery learns of it, and tries again (I12, I15)")
    func failedSalvageIsTold() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let queue = try open(directory.path("queue"), "first")
        try queue.append((1...20).map { Self.event($0) }[...])
        try DamagedPage.make(in: queue, at: Self.event(8).id)
        _ = try? queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        let source = QueueBatchSource(queue: queue, clock: ManualClock()) { _ in }
        disk.cutOff(at: 0, [.write])
        await #expect(throws: (any Error).self) {
            _ = try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        }
        #expect(disk.failures > 0 && queue.unsalvagedFiles == 1)
        disk.fail(nil)
        #expect(try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0).events.count > 10)
        queue.close()
    }
}
