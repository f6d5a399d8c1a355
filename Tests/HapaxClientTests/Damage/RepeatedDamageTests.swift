import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A queue that is damaged again after somebody has deleted the file of the first time (I1, I11)", .timeLimit(.minutes(20)))
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

    @Test("the new file is damaged in its turn while it takes over from the first: nothing is told as lost that is there (I1, I12)")
    func damageWithinASalvage() async throws {
        let log = FaultyDisk(path + "/queue.sqlite-wal")
        let queue = try open("first")
        try queue.append((1...500).map { Self.event($0) }[...])
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        queue.observeWaitingIDs { change in
            // With its next write, once.
            if case .added = change, log.failures == 0 {
                log.fail(FaultyDisk.Fault(at: 0, code: ResultCode.SQLITE_CORRUPT.rawValue, operations: [.write]))
            }
        }
        await queue.salvage()
        #expect(log.failures == 1)
        #expect(queue.directory.filesSetAside.count == 2 && queue.unsalvagedFiles == 0)
        #expect(queue.books.drops.byReason == [:] && queue.latestDamage?.lost == 0)
        #expect(try await drain(queue).count == 500)
        #expect(queue.books.isBalanced && queue.books.discarded == 0, "\(queue.books)")
        queue.close()
    }

    @Test("on a disk that spoils whatever is written a salvage ends all the same; once it is well the next one takes everything (I1, I15)")
    func salvageOnASpoilingDiskEnds() async throws {
        let log = FaultyDisk(path + "/queue.sqlite-wal")
        let queue = try open("first")
        try queue.append((1...500).map { Self.event($0) }[...])
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        queue.observeWaitingIDs { change in
            // With the next write behind each that succeeded; more often than any salvage should need.
            if case .added = change, queue.directory.filesSetAside.count < 20 {
                log.fail(FaultyDisk.Fault(at: 0, code: ResultCode.SQLITE_CORRUPT.rawValue, operations: [.write]))
            }
        }
        await queue.salvage()
        #expect(queue.directory.filesSetAside.count == 5, "the first one, and one for each time it began")
        #expect(queue.unsalvagedFiles == 5 && queue.salvageFailure?.isDamagedAgain == true)
        queue.observeWaitingIDs { _ in }
        log.fail(nil)
        #expect(try await drain(queue).count == 500)
        #expect(queue.books.drops.byReason == [:] && queue.books.isBalanced && queue.books.discarded == 0, "\(queue.books)")
        queue.close()
    }

    /// A file of 500 events, of which the disk gave some before it failed; some of these were delivered when the next file was damaged.
    private func damagedAgain(delivered limit: Int) async throws -> EventQueue {
        let first = FaultyDisk(path + "/queue.sqlite.damaged-1")
        let queue = try open("first")
        try queue.append((1...500).map { Self.event($0) }[...])
        _ = try await queue.database.writeWithoutTransaction { try $0.checkpoint(.truncate) }
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        first.cutOff(at: 60, [.read])
        await queue.salvage()
        first.fail(nil)
        let taken = queue.books.depth
        #expect(taken > 10 && taken < 500 && queue.unsalvagedFiles == 1, "\(taken)")
        let batch = try queue.nextBatch(limit: limit, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        #expect(queue.books.discarded == 500 - taken && queue.books.stored == min(taken, Int64(limit)))
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        return queue
    }

    @Test("a file that is salvaged anew counts what it holds once as discarded, though some was delivered before (I12)")
    func discardedIsCountedOnce() async throws {
        let queue = try await damagedAgain(delivered: .max)
        let taken = queue.books.stored
        // The server knows the first ones already, and says so.
        #expect(try await drain(queue).count == 500)
        #expect(queue.books.isBalanced && queue.books.discarded == 0 && queue.books.adopted == taken, "\(queue.books)")
        queue.close()
    }

    @Test("a purge before such a file is salvaged anew counts as purged what was not delivered, and no more (D14, I12)")
    func deliveredIsNotPurged() async throws {
        let queue = try await damagedAgain(delivered: 10)
        _ = try queue.purge()
        #expect(queue.books.stored == 10 && queue.books.discarded == 490 && queue.books.isBalanced, "\(queue.books)")
        #expect(queue.books.drops.byReason == ["purged": 490])
        queue.close()
    }

    @Test("letters that were retried and come back with a file that is salvaged anew are counted as they are (I12)")
    func retriedLettersComeBackCounted() async throws {
        let first = FaultyDisk(path + "/queue.sqlite.damaged-1")
        let queue = try open("first")
        try queue.append((1...100).map { Self.event($0) }[...])
        let batch = try queue.nextBatch(limit: 3, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .deadLetter(reason: "r", detail: "d")) }, time: 0)
        _ = try await queue.database.writeWithoutTransaction { try $0.checkpoint(.truncate) }
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        var number = 0
        repeat {
            first.fail(FaultyDisk.Fault(at: number, code: ResultCode.SQLITE_IOERR.rawValue, operations: [.read]))
            await queue.salvage()
            first.fail(nil)
            number += 1
            // Until a read fails around which the letters can be read all the same.
        } while queue.unsalvagedFiles == 1 && queue.books.letters < 3
        #expect(queue.unsalvagedFiles == 1 && queue.books.letters == 3, "\(queue.books)")
        #expect(try queue.retryDeadLetters(nil).retried.count == 3 && queue.books.deadLettered == 0)
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        #expect(try await drain(queue).count == 100)
        #expect(queue.books.letters == 3 && queue.books.deadLettered == 3 && queue.books.isBalanced, "\(queue.books)")
        #expect(try queue.retryDeadLetters(nil).retried.count == 3 && queue.books.deadLettered == 0 && queue.books.isBalanced)
        queue.close()
    }

    @Test("an event that is a dead letter since a salvage is the same one when that salvage is done again by another install (I1, I12)")
    func buriedEventIsOneLetter() async throws {
        let first = try open("first")
        try first.append((1...20).map { Self.event($0) }[...])
        try await first.database.write { try $0.execute(sql: "UPDATE queue SET check_sum = check_sum + 1 WHERE row = 3") }
        first.close()
        try DamagedPage.make(in: path + "/queue.sqlite", at: Self.event(16).id)
        let second = try open("second")
        await second.salvage()
        #expect(second.books.letters == 1)
        try second.append([Self.event(21)][...])
        second.close()
        // As where there was no room for the mark.
        for name in try asides() where name.hasSuffix(".salvaged") { try FileManager.default.removeItem(atPath: path + "/" + name) }
        try DamagedPage.make(in: path + "/queue.sqlite", at: Self.event(21).id)
        let third = try open("third")
        await third.salvage()
        #expect(third.unsalvagedFiles == 0 && third.directory.filesSetAside.count == 2)
        #expect(try third.deadLetters(after: 0, limit: 9).map(\.eventID) == [Self.event(3).id])
        #expect(third.books.letters == 1 && third.books.isBalanced)
        third.close()
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
