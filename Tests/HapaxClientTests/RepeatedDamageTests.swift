import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A queue that is damaged again after somebody has deleted the file of the first time (I1, I11)")
struct RepeatedDamageTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path("queue") }

    private static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 700) }

    private func open(_ key: String) throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: key))
    }

    /// - Returns: The queue that goes on.
    private func damage(_ queue: EventQueue, at sequence: Int64, isRunning: Bool) throws -> EventQueue {
        if isRunning {
            try DamagedPage.make(in: queue, at: Self.event(sequence).id)
            return queue
        }
        queue.close()
        try DamagedPage.make(in: queue.directory.databasePath, at: Self.event(sequence).id)
        return try open("\(sequence)")
    }

    private func drain(_ queue: EventQueue) async throws -> Set<EventID> {
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        var sent: Set<EventID> = []
        while true {
            let batch = try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
            if batch.events.isEmpty { return sent }
            sent.formUnion(batch.events.map(\.id))
            try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
        }
    }

    private func asides() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.hasPrefix("queue.sqlite.damaged-") }
    }

    @Test("what the second damaged file holds is salvaged as well", arguments: [false, true], [false, true])
    func secondDamageIsSalvaged(isRunning: Bool, deletes: Bool) async throws {
        var queue = try open("first")
        try queue.append((1...20).map { Self.event($0) }[...])
        queue = try damage(queue, at: 8, isRunning: isRunning)
        #expect(try await drain(queue).count > 10)
        #expect(try !asides().isEmpty)
        if deletes { for name in try asides() { try FileManager.default.removeItem(atPath: path + "/" + name) } }
        try queue.append(
            (Int64(101)...120).map { number in
                var event = Self.event(number)
                event.sequence = queue.books.lastSequence + number - 100
                return event
            }[...])
        queue = try damage(queue, at: 108, isRunning: isRunning)
        let sent = try await drain(queue)
        #expect(sent.count > 10 && sent.isSubset(of: (101...120).map { Self.event($0).id }), "\(sent.count)")
        #expect(queue.books.isBalanced)
        queue.close()
    }

    @Test("the log that is left of a deleted damaged file is not in the way of the next one (I11, I15)")
    func leftLogIsNotInTheWay() async throws {
        let first = try open("first")
        try first.append((1...20).map { Self.event($0) }[...])
        let file = first.directory.databasePath
        // As after a kill: the rows are in the log, and what the file says of itself is noise.
        let copies = [file, file + "-wal"].map { ($0, FileManager.default.contents(atPath: $0) ?? Data()) }
        first.close()
        for (path, bytes) in copies { try bytes.write(to: URL(fileURLWithPath: path)) }
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.write(contentsOf: Data("noise noise noise".utf8))
        try handle.close()
        // A file that is only read to be salvaged gets a log from SQLite, which stays when somebody deletes the file.
        try Data().write(to: URL(fileURLWithPath: file + ".damaged-1-wal"))
        let queue = try open("second")
        #expect(try await drain(queue).count == 20)
        queue.close()
    }

    @Test("on a full disk no younger file is looked at while an older one waits for room (R9)")
    func olderFileGoesFirst() async throws {
        let log = FaultyDisk(path + "/queue.sqlite-wal")
        let second = FaultyDisk(path + "/queue.sqlite.damaged-2")
        let queue = try open("first")
        for sequences in [1...20, 21...40] as [ClosedRange<Int64>] {
            try queue.append(sequences.map { Self.event($0) }[...])
            try DamagedPage.make(in: queue, at: Self.event(sequences.lowerBound + 8).id)
            _ = try? queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        }
        #expect(queue.unsalvagedFiles == 2)
        log.fail(FaultyDisk.Fault(at: 0, count: .max, code: ResultCode.SQLITE_FULL.rawValue, operations: [.write]))
        second.fail(FaultyDisk.Fault(at: 0, count: .max, code: ResultCode.SQLITE_IOERR.rawValue))
        await queue.salvage()
        #expect(queue.salvageFailure?.cause.isDiskFull == true && log.failures > 0 && second.failures == 0)
        log.fail(nil)
        second.fail(nil)
        #expect(try await drain(queue).count > 20)
        #expect(queue.unsalvagedFiles == 0 && queue.books.isBalanced)
        queue.close()
    }
}
