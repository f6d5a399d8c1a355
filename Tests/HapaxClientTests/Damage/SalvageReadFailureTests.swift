import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A damaged file that cannot be read for a while, as without descriptors (I1, I11)", .takesTurns, .timeLimit(.minutes(20)))
struct SalvageReadFailureTests {
    private static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 700) }

    private func open(_ path: String, _ key: String) throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: key))
    }

    /// Twenty events, one of them on a damaged page, which has been met.
    private func damaged(_ directory: TemporaryDirectory) throws -> EventQueue {
        let queue = try open(directory.path("queue"), "first")
        try queue.append((1...20).map { Self.event($0) }[...])
        try DamagedPage.make(in: queue, at: Self.event(8).id)
        _ = try? queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        #expect(queue.unsalvagedFiles == 1)
        return queue
    }

    @Test("a failed read is tried again: no row is given up that can be read later", arguments: [FaultyDisk.Operation.open, .read])
    func failedReadIsTriedAgain(operation: FaultyDisk.Operation) async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let queue = try damaged(directory)
        // Of the new file nothing needs to be read: it is in memory.
        disk.cutOff(at: 0, [operation])
        await queue.salvage()
        #expect(disk.failures > 0)
        disk.fail(nil)
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.salvaged > 10, "\(damage)")
        #expect(Set(queue.books.drops.byReason.keys) == ["damaged"], "what never was is not counted")
        #expect(queue.books.isBalanced)
        queue.close()
    }

    @Test("a salvage that failed is no empty queue: the delivery learns of it, and tries again (I12, I15)")
    func failedSalvageIsTold() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let queue = try damaged(directory)
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        disk.cutOff(at: 0, [.write])
        await #expect(throws: (any Error).self) {
            _ = try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        }
        #expect(disk.failures > 0 && queue.unsalvagedFiles == 1)
        disk.fail(nil)
        #expect(try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0).events.count > 10)
        queue.close()
    }

    @Test(
        "whichever operation fails that reads a copy: it does not stay, and in the end all of it is found",
        arguments: [FaultyDisk.Operation.open, .read], [1, .max / 2])
    func failedCopyDoesNotStay(operation: FaultyDisk.Operation, count: Int) async throws {
        let directory = TemporaryDirectory()
        let first = try open(directory.path("queue"), "first")
        try first.append((1...20).map { Self.event($0) }[...])
        first.close()
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: first.directory.databasePath))
        try handle.write(contentsOf: Data(repeating: 0xEE, count: 4_096))
        try handle.close()
        let queue = try open(directory.path("queue"), "second")
        let disk = FaultyDisk(first.directory.databasePath + ".damaged-1")
        var number = 0
        while queue.unsalvagedFiles > 0, number < 200 {
            disk.fail(FaultyDisk.Fault(at: number, count: count, code: ResultCode.SQLITE_IOERR.rawValue, operations: [operation]))
            await queue.salvage()
            let files = try FileManager.default.contentsOfDirectory(atPath: first.directory.path)
            #expect(files.filter { $0.contains("copy") } == [], "\(number)")
            // Each that lasts takes a while.
            number += count == 1 ? 1 : 6
        }
        disk.fail(nil)
        #expect(number > 1 && queue.books.isBalanced)
        #expect(queue.latestDamage?.salvaged == 20 && queue.latestDamage?.lost == 0, "the books are read as well")
        queue.close()
    }

    @Test("what was taken over and may still be undone by a power cut is not marked as done; the next opening makes up for it (I6)")
    func markFollowsTheDisk() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let queue = try damaged(directory)
        disk.cutOff(at: 0, [.sync])
        await queue.salvage()
        #expect(disk.failures > 0 && queue.latestDamage?.isSalvaged == true)
        #expect(!queue.directory.isSalvaged("queue.sqlite.damaged-1"))
        disk.fail(nil)
        queue.close()
        try open(directory.path("queue"), "second").close()
        #expect(queue.directory.isSalvaged("queue.sqlite.damaged-1"))
    }

    @Test("a damaged file that the disk cannot read is left in peace while other events wait (I15)")
    func failingDiskIsLeftInPeace() async throws {
        let directory = TemporaryDirectory()
        let queue = try open(directory.path("queue"), "first")
        try queue.append((1...20).map { Self.event($0) }[...])
        try DamagedPage.make(in: queue, at: Self.event(8).id)
        try queue.append([Self.event(21)][...])
        _ = try? queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        #expect(queue.unsalvagedFiles == 1)
        try queue.append([Self.event(22)][...])
        let disk = FaultyDisk(queue.directory.databasePath + ".damaged-1")
        disk.cutOff(at: 0, [.open])
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        _ = try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        let failures = disk.failures
        #expect(try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0).events.last?.id == Self.event(22).id)
        #expect(failures > 0 && disk.failures == failures)
        #expect(queue.salvageFailure != nil)
        _ = try queue.purge()
        #expect(queue.salvageFailure == nil, "nothing is left that fails")
        queue.close()
    }

    /// Twenty events in a file that was set aside, and that the disk does not give until it is told to.
    private func makeUnreadable(_ directory: TemporaryDirectory, _ operation: FaultyDisk.Operation = .read) throws -> FaultyDisk {
        let first = try open(directory.path("queue"), "first")
        try first.append((1...20).map { Self.event($0) }[...])
        first.close()
        let path = first.directory.databasePath
        try FileManager.default.moveItem(atPath: path, toPath: path + ".damaged-1")
        let disk = FaultyDisk(path + ".damaged-1")
        disk.cutOff(at: 0, [operation])
        return disk
    }

    @Test(
        "a disk that fails only while a queue opens: this client takes the events over, not the next one (I15)",
        arguments: [FaultyDisk.Operation.read, .open])
    func failureAtOpeningIsNotFinal(_ operation: FaultyDisk.Operation) async throws {
        let directory = TemporaryDirectory()
        let disk = try makeUnreadable(directory, operation)
        let queue = try open(directory.path("queue"), "second")
        #expect(disk.failures > 0 && queue.unsalvagedFiles == 1)
        await queue.salvage()
        #expect(queue.unsalvagedFiles == 1)
        disk.fail(nil)
        await queue.salvage()
        #expect(queue.unsalvagedFiles == 0 && queue.books.depth == 20 && queue.books.isBalanced)
        queue.close()
    }

    @Test(
        "whom later events concern is taken from a file that could not be opened at the start, too, unless somebody has said so since (R56)"
    )
    func identityIsTakenLater() async throws {
        for saysSo in [true, false] {
            let directory = TemporaryDirectory()
            let first = try open(directory.path("queue"), "first")
            try first.saveIdentity { Identity(anonymousID: "phone", loginID: "ann") }
            first.close()
            let path = first.directory.databasePath
            try FileManager.default.moveItem(atPath: path, toPath: path + ".damaged-1")
            let disk = FaultyDisk(path + ".damaged-1")
            disk.cutOff(at: 0, [.open])
            let queue = try open(directory.path("queue"), "second")
            if saysSo { try queue.saveIdentity { Identity(anonymousID: "phone", loginID: "bob") } }
            disk.fail(nil)
            await queue.salvage()
            #expect(try queue.identity().loginID == (saysSo ? "bob" : "ann"))
            queue.close()
        }
    }

    @Test("a purge forgets a file that could not be opened at the start, and damage met since leaves it what it is")
    func unopenedFileIsForgotten() async throws {
        for isPurged in [true, false] {
            let directory = TemporaryDirectory()
            let disk = try makeUnreadable(directory, .open)
            let queue = try open(directory.path("queue"), "second")
            if isPurged {
                try queue.purge()
            } else {
                let database = try queue.database
                #expect(try queue.takesOver(from: database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
            }
            #expect(queue.unsalvagedFiles == (isPurged ? 0 : 2))
            disk.fail(nil)
            await queue.salvage()
            #expect(queue.unsalvagedFiles == 0 && queue.books.depth == (isPurged ? 0 : 20) && queue.books.isBalanced)
            queue.close()
            let next = try open(directory.path("queue"), "third")
            await next.salvage()
            #expect(next.books.depth == (isPurged ? 0 : 20) && next.unsalvagedFiles == 0)
            next.close()
        }
    }

    @Test(
        "a salvage that failed when the client started is tried again by its timer, and by a step, though nothing else waits (R27, I15)",
        .timeLimit(.minutes(20)), arguments: [true, false])
    func failedSalvageNeedsNoFlush(isStep: Bool) async throws {
        let directory = TemporaryDirectory()
        let disk = try makeUnreadable(directory)
        let test = try TestClient(directory: directory) { $0.uploadsAutomatically = !isStep }
        await test.client.queue.salvage()
        #expect(test.client.queue.unsalvagedFiles == 1 && test.client.queue.books.depth == 0)
        disk.fail(nil)
        if isStep {
            guard case .good = await test.client.dispatchStep() else { return #expect(Bool(false), "nothing was sent") }
        } else {
            test.clock.advance(by: .seconds(60))
            await test.transport.requests(1)
        }
        #expect(Set(test.transport.batches.flatMap(\.ids)).isSuperset(of: (1...20).map { Self.event($0).id }))
        await test.client.shutdown(within: .zero)
    }

    @Test("whichever read of a salvage fails: what is lost is counted once (I11, I12)")
    func lossIsCountedOnce() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let first = try open(directory.path("queue"), "first")
        try first.append((1...20).map { Self.event($0) }[...])
        first.close()
        try DamagedPage.make(in: first.directory.databasePath, at: Self.event(8).id)
        var number = 0
        var reads = 0
        repeat {
            let path = directory.path("queue \(number)")
            try FileManager.default.copyItem(atPath: first.directory.path, toPath: path)
            let queue = try open(path, "second")
            defer { queue.close() }
            // Of the new file everything is read anew.
            try queue.readPagesAnew()
            disk.fail(FaultyDisk.Fault(at: number, code: ResultCode.SQLITE_IOERR.rawValue, operations: [.read]))
            await queue.salvage()
            let hasFailed = disk.failures > 0
            disk.fail(nil)
            await queue.salvage()
            let lost = try #require(queue.latestDamage?.lost)
            #expect(lost > 0 && queue.books.drops.byReason == ["damaged": Int64(lost)] && queue.books.isBalanced, "read \(number)")
            if hasFailed { reads += 1 }
            number = hasFailed ? number + 1 : .max
        } while number < 500
        #expect(reads > 10, "control")
    }
}
