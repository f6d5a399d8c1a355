import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// As what rows and dead letters are taken over, and how many at once.
extension QueueDamageTests {
    /// How many rows each commit adds to a table.
    private final class Groups: TransactionObserver, Sendable {
        let table: String
        let counts = Locked<(open: Int, all: [Int])>((0, []))

        init(_ table: String) { self.table = table }

        func observes(eventsOfKind kind: DatabaseEventKind) -> Bool {
            if case .insert(table) = kind { true } else { false }
        }

        func databaseDidChange(with event: DatabaseEvent) { counts.withLock { $0.open += 1 } }

        func databaseDidCommit(_ db: Database) {
            counts.withLock { counts in
                if counts.open > 0 { counts.all.append(counts.open) }
                counts.open = 0
            }
        }

        func databaseDidRollback(_ db: Database) { counts.withLock { $0.open = 0 } }
    }

    private static func refused(_ sequence: Int64, fill: Int = 300) -> PreparedEvent {
        var event = PreparedEvent.sample(sequence, fill: fill)
        event.problem = EventProblem(.nameTooLong, detail: "too long")
        return event
    }

    /// A whole file that was set aside, of whose install the queue that opens is not.
    private func openBesideWhole(_ count: Int64, fill: Int) throws -> EventQueue {
        let first = try open("first")
        try first.append((1...count).map { .sample($0, fill: fill) })
        try first.append((count + 1...2 * count).map { Self.refused($0, fill: fill) })
        first.close()
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        return try open()
    }

    @Test(
        "a salvage takes a few rows at a time: who stores meanwhile waits for these, not for all (R8, I11)",
        arguments: [(450, 10, [200, 200, 50]), (5, 400_000, [3, 2])])
    func rowsAreTakenInGroups(count: Int, fill: Int, groups: [Int]) async throws {
        let queue = try openBesideWhole(Int64(count), fill: fill)
        let taken = Locked<[Int]>([])
        queue.observeWaitingIDs { change in if case .added(let ids) = change { taken.withLock { $0.append(ids.count) } } }
        let letters = Groups("dead_letters")
        try queue.database.add(transactionObserver: letters)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == count && queue.latestDamage?.salvagedDeadLetters == count)
        #expect(taken.withLock { $0 }.filter { $0 > 0 } == groups)
        #expect(letters.counts.withLock { $0.all } == groups)
        queue.close()
    }

    @Test("where a disk has no room for a group of rows a part of it is taken, and the rest as soon as there is (I11, I13)")
    func groupsAreHalved() async throws {
        let log = FaultyDisk(path + "/queue.sqlite-wal")
        let queue = try openBesideWhole(100, fill: 300)
        log.fail(FaultyDisk.Fault(at: 0, count: 5, code: ResultCode.SQLITE_FULL.rawValue, operations: [.write]))
        await queue.salvage()
        #expect(log.failures == 5, "control")
        #expect(queue.latestDamage?.isSalvaged == true && queue.latestDamage?.salvaged == 100 && queue.books.depth == 100)
        queue.close()
    }

    @Test("what is taken over keeps its time and its install, be it another than the file's (R10, I7)")
    func rowsKeepTheirInstallAndTime() async throws {
        let other = EventID.derived(name: "i", key: "other")
        let queue = try openBesideWhole(3, fill: 300)
        try await DatabaseQueue(path: file + ".damaged-1").write {
            try $0.execute(sql: "UPDATE queue SET install_id = ? WHERE row = 1", arguments: [Data(other.bytes)])
        }
        await queue.salvage()
        #expect(queue.oldestTime == 1_000)
        for (install, numbers) in [(other, [1]), (Self.install, [2, 3])] as [(EventID, [Int64])] {
            let batch = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
            #expect(batch.envelope.installID == install && batch.events.map(\.id) == numbers.map { Self.event($0).id })
            try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        }
        queue.close()
    }

    @Test("a dead letter whose number has changed to another's is kept beside that one (I1, I11)")
    func lettersOfOneNumberAreKept() async throws {
        let queue = try open("first")
        for number in Int64(1)...2 {
            try queue.append([Self.refused(number)])
        }
        try await queue.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let page =
            try #require(
                (1..<bytes.count / 4_096).last { page in
                    let page = bytes[page * 4_096..<(page + 1) * 4_096]
                    return page.first == 0x0D && page.firstRange(of: Array("too long".utf8)) != nil
                }) * 4_096
        // The second cell; its length takes two bytes, then comes the row number in one.
        let cell = page + Int(bytes[page + 10]) << 8 + Int(bytes[page + 11])
        #expect(bytes[cell + 2] == 2, "control")
        bytes[cell + 2] = 1
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.write(contentsOf: bytes)
        try handle.close()
        _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        await queue.salvage()
        let letters = try queue.deadLetters(after: 0, limit: 9)
        #expect(letters.map(\.event) == [1, 2].map { Self.event($0).bytes } && letters.map(\.number).first == 1)
        #expect(queue.books.drops.byReason == [:] && queue.books.isBalanced)
        queue.close()
    }

    private static func letter(_ number: Int64, of origin: DeadLetter.Origin) -> DeadLetter {
        var letter = DeadLetter(
            number: 0, eventID: event(number).id, reason: "conflict", detail: "", time: 1_000, event: event(number).bytes)
        (letter.origin, letter.originNumber) = (origin, number)
        return letter
    }

    @Test(
        "dead letters are taken over as whose they are: the file's own install's, another's, nobody's (I1, I9)", arguments: [true, false])
    func lettersKeepTheirInstall(isRunning: Bool) async throws {
        let other = EventID.derived(name: "i", key: "other")
        var queue = try open("first")
        try queue.append([Self.refused(1)])
        try queue.adoptDeadLetters([Self.letter(7, of: .install(other)), Self.letter(8, of: .nobody)])
        if isRunning {
            _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        } else {
            queue.close()
            try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
            queue = try open()
        }
        await queue.salvage()
        let letters = try queue.deadLetters(after: 0, limit: 9)
        let originals: [(DeadLetter.Origin, Int64?)] = [
            isRunning ? (.own, nil) : (.install(Self.install), 1), (.install(other), 7), (.nobody, 8),
        ]
        #expect(letters.map(\.origin) == originals.map(\.0) && letters.map(\.originNumber) == originals.map(\.1))
        #expect(letters.map(\.event) == [1, 7, 8].map { Self.event($0).bytes })
        #expect(queue.books.drops.byReason == [:] && queue.books.isBalanced)
        queue.close()
    }

    @Test("a changed row that has become a dead letter does so once, be its file salvaged again beside the one that took it over (I1, I12)")
    func changedRowIsOneLetter() async throws {
        let first = try open("first")
        try first.append((1...3).map { Self.event($0) })
        try await first.database.write { try $0.execute(sql: "UPDATE queue SET payload = zeroblob(9) WHERE row = 2") }
        first.close()
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let queue = try open()
        let pending = queue.damage.withLock { $0.pending }
        await queue.salvage()
        // As if its end had not been reached.
        queue.damage.withLock { $0.pending = pending }
        _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        await queue.salvage()
        let letters = try queue.deadLetters(after: 0, limit: 9)
        #expect(letters.map(\.eventID) == [Self.event(2).id] && letters.map(\.time) == [1_000])
        #expect(queue.books.depth == 2 && queue.books.isBalanced)
        queue.close()
    }

    @Test("a dead letter keeps its number, and what comes before it is taken over gets another (D3)")
    func letterNumbersAreGivenOnce() async throws {
        let queue = try open("first")
        for number in Int64(1)...3 {
            if number == 3 { _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)) }
            try queue.append([Self.refused(number)])
        }
        await queue.salvage()
        let letters = try queue.deadLetters(after: 0, limit: 9)
        #expect(letters.map(\.event) == [1, 2, 3].map { Self.event($0).bytes } && letters.map(\.number) == [1, 2, 1_000_001])
        queue.close()
    }

    @Test("a dead letter that two damaged files hold is taken over once (I1, I12)")
    func letterOfTwoFilesIsOne() async throws {
        let queue = try open("first")
        try queue.append([Self.refused(1)])
        for _ in 1...2 {
            _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
            let pending = queue.damage.withLock { $0.pending }
            await queue.salvage()
            // As if the first one's end had not been reached.
            if pending.count == 1 { queue.damage.withLock { $0.pending = pending } }
        }
        #expect(try queue.deadLetters(after: 0, limit: 9).map(\.number) == [1])
        #expect(queue.unsalvagedFiles == 0 && queue.books.drops.byReason == [:] && queue.books.isBalanced)
        queue.close()
    }
}
