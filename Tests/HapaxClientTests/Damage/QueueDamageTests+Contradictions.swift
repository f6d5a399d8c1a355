import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Damage that SQLite does not complain about: pages that are well-formed and contradict each other.
extension QueueDamageTests {
    enum Contradiction: CaseIterable {
        /// A row under a number that is not its place: a look through the table finds it, its number does not.
        case misplacedRow
        /// The same, and its bytes changed as well.
        case misplacedDamagedRow
        /// A page that says it holds no rows.
        case emptiedPage

        /// - Parameter page: Of rows, with others on both sides.
        func plant(_ page: inout ArraySlice<UInt8>) {
            let start = page.startIndex
            if self == .emptiedPage {
                (page[start + 3], page[start + 4]) = (0, 0)
                return
            }
            // The first cell: its length takes two bytes, then comes the row number in one (https://www.sqlite.org/fileformat2.html#b_tree_pages).
            let cell = start + Int(page[start + 8]) << 8 + Int(page[start + 9])
            page[cell + 2] = 0x7B
            if self == .misplacedDamagedRow { page[cell + 100] ^= 0x01 }
        }
    }

    @Test(
        "pages that contradict each other hold up nothing: the file counts as damaged, and what is lost is told (D13, I11, I15)",
        arguments: Contradiction.allCases)
    func contradictionsAreDamage(contradiction: Contradiction) async throws {
        _ = try make(60)
        let queue = try open()
        try queue.readPagesAnew()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 }
        let page = leaves[leaves.count / 2] * 4_096
        let rows = Int(bytes[page + 4])
        contradiction.plant(&bytes[page..<page + 4_096])
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.write(contentsOf: bytes)
        try handle.close()

        let delivered = try await drain(queue)
        #expect(asides().count == 1)
        #expect(queue.books.depth == 0 && queue.books.isBalanced)
        switch contradiction {
        case .misplacedRow: #expect(delivered.count == 60 && queue.books.drops.byReason == [:])
        case .misplacedDamagedRow:
            #expect(delivered.count == 59)
            #expect(try queue.deadLetters(after: 0, limit: 9).map(\.reason).contains("damaged"))
        case .emptiedPage: #expect(delivered.count == 60 - rows && queue.books.drops.byReason == ["damaged": Int64(rows)])
        }
        queue.close()
    }

    @Test("books that are gone beside events that are there: the file is set aside, and no books are made up (I12)")
    func booksAreNotMadeUp() async throws {
        _ = try make(60)
        try await DatabaseQueue(path: file).write { try $0.execute(sql: "DELETE FROM books") }
        let queue = try open()
        #expect(asides().count == 1)
        #expect(try await drain(queue).count == 60)
        #expect(queue.books.isBalanced && queue.books.depth == 0)
        queue.close()
    }

    @Test("the books of a queue that is empty by now are not made up either (I7, I12)")
    func booksOfAnEmptyQueueAreNotMadeUp() async throws {
        _ = try make(3)
        var queue = try open()
        #expect(try await drain(queue).count == 3)
        try await queue.database.write { try $0.execute(sql: "DELETE FROM books; DELETE FROM dead_letters") }
        queue.close()
        queue = try open()
        #expect(asides().count == 1 && queue.latestDamage != nil)
        queue.close()
    }

    @Test("books that vanish while the queue is open are met by the next commit, and go on as they were (I7, I12)")
    func booksThatVanishAreMissed() async throws {
        _ = try make(60)
        let queue = try open()
        let before = queue.books
        try await queue.database.write { try $0.execute(sql: "DELETE FROM books") }
        try queue.append([Self.event(before.lastSequence + 1)][...])
        #expect(asides().count == 1)
        #expect(try await drain(queue).count == 61)
        #expect(queue.books.isBalanced && queue.books.lastSequence == before.lastSequence + 1)
        queue.close()
    }

    @Test(
        "what every queue's file has from the first, and this one has not, stops no start: its rows are found (I11, I15)",
        arguments: [
            "DELETE FROM grdb_migrations", "UPDATE grdb_migrations SET identifier = 'x'", "DROP TABLE grdb_migrations", "DROP TABLE books",
            "DROP TABLE dead_letters", "ALTER TABLE queue RENAME COLUMN payload TO p",
        ])
    func incompleteFilesAreDamage(change: String) async throws {
        _ = try make(60)
        try await DatabaseQueue(path: file).write { try $0.execute(sql: change) }
        let queue = try open()
        #expect(try await drain(queue).count == 60)
        #expect(asides().count == 1)
        queue.close()
    }

    @Test("whatever SQLite calls an error of our statements at an opening is the file's (I11, I15)")
    func statementErrorsAreDamageAtOpening() {
        let error = DatabaseError(resultCode: .SQLITE_ERROR, message: "table queue already exists")
        #expect(error.isDamageAtOpening && !error.isDamage)
        #expect(!DatabaseError(resultCode: .SQLITE_FULL).isDamageAtOpening && !NewerSchema().isDamageAtOpening)
    }

    @Test(
        "books that do not add up are believed in nothing: nobody knows how many events are lost (I11, I12)",
        arguments: ["depth = depth - 16", "depth = depth + 8192", "last_sequence = 9223372036854775807", "letters = 9223372036854775807"],
        [false, true])
    func wrongBooksTellNoNumber(change: String, isDamaged: Bool) async throws {
        _ = try make(60)
        try await DatabaseQueue(path: file).write { try $0.execute(sql: "UPDATE books SET \(change)") }
        if isDamaged { try damageAPage() }
        let queue = try open()
        #expect(asides().count == 1)
        let delivered = try await drain(queue).count
        #expect(isDamaged ? (30..<60).contains(delivered) : delivered == 60)
        #expect(queue.latestDamage?.isSalvaged == true && queue.latestDamage?.lost == nil && queue.books.drops.byReason.isEmpty)
        queue.close()
    }

    @Test("sums of bytes that changed on the disk take no room from the quota once nothing is left")
    func sumsAreRightOnceNothingIsLeft() async throws {
        _ = try make(60)
        try await DatabaseQueue(path: file).write {
            try $0.execute(sql: "UPDATE books SET bytes = bytes + 1000000, letter_bytes = letter_bytes + 1000000")
        }
        let queue = try open()
        #expect(try await drain(queue).count == 60)
        #expect(try queue.purgeDeadLetters([1]) == 1)
        #expect(queue.books.usage == QueueUsage() && asides().isEmpty)
        queue.close()
    }

    @Test("what decided by rows of a damaged file is not repeated on the one that takes over; what stores is (I5)")
    func decisionsAreNotRepeated() throws {
        let queue = try open()
        for growing in [false, true] {
            let files = queue.unsalvagedFiles
            let store = {
                try queue.transaction(growing: growing) { _, _ in
                    if queue.unsalvagedFiles == files { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
                }
            }
            if growing { try store() } else { #expect(throws: DatabaseError.self) { try store() } }
            #expect(queue.unsalvagedFiles == files + 1)
        }
        queue.close()
    }

    @Test("a file that cannot be renamed for the moment does not end the queue: the next call takes over")
    func failedRenameIsTriedAgain() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        // A directory under the new name, for which no file makes way.
        let obstacle = directory.path + "/away"
        try FileManager.default.moveItem(atPath: path, toPath: obstacle)
        try Data().write(to: URL(fileURLWithPath: path))
        await #expect(throws: (any Error).self) { _ = try await drain(queue) }
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.moveItem(atPath: obstacle, toPath: path)
        #expect(try await drain(queue).count > 40)
        #expect(asides().count == 1 && queue.books.isBalanced)
        queue.close()
    }

    @Test("a new file that cannot be made for the moment does not end the queue either: the next call makes it (I11, I15)")
    func failedTakeoverIsTriedAgain() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        let disk = FaultyDisk(queue.directory.newDatabasePath)
        disk.cutOff(at: 0, [.open])
        await #expect(throws: (any Error).self) { _ = try await drain(queue) }
        #expect(disk.failures > 0 && asides().count == 1)
        disk.fail(nil)
        #expect(try await drain(queue).count > 40)
        #expect(asides().count == 1 && queue.books.isBalanced)
        queue.close()
    }

    @Test("where the disk is full the ballast makes room for the new file (I11, I13)")
    func ballastMakesRoomForANewFile() throws {
        let queue = try open()
        let disk = FaultyDisk(queue.directory.newDatabasePath)
        disk.fail(FaultyDisk.Fault(at: 0, code: ResultCode.SQLITE_FULL.rawValue, operations: [.write]))
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        #expect(disk.failures == 1 && asides().count == 1)
        queue.close()
    }

    @Test("a damaged row that becomes a dead letter takes its bytes out of the books, and keeps its install (I9, I12)")
    func buriedRowsAreCounted() async throws {
        let queue = try open("first")
        try queue.append((1...3).map { Self.event($0) }[...])
        let bytes = queue.books.bytes
        let other = EventID.derived(name: "i", key: "other")
        try await queue.database.write {
            try $0.execute(
                sql: "UPDATE queue SET payload = zeroblob(length(payload)), install_id = ? WHERE row = 1", arguments: [Data(other.bytes)])
        }
        let settled = Locked<[EventID]>([])
        let source = QueueBatchSource(
            queue: queue, clock: ManualClock(),
            settled: { settlements in settled.withLock { $0 += settlements.map(\.event.id) } })
        let batch = try await source.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        #expect(batch.buried == 1 && batch.events.map(\.id) == [2, 3].map { Self.event($0).id })
        #expect(settled.withLock { $0 } == [Self.event(1).id], "subscribers learn of it")
        #expect(try queue.deadLetters(after: 0, limit: 9).map(\.origin) == [.install(other)])
        #expect(queue.books.bytes == bytes - Int64(Self.event(1).bytes.count))
        // More than all together: less than nothing would be damage in its turn.
        try await queue.database.write { try $0.execute(sql: "UPDATE queue SET payload = zeroblob(100000) WHERE row = 2") }
        #expect(try await source.nextBatch(limit: 9, maximumBytes: .max, skipping: 0).events.map(\.id) == [Self.event(3).id])
        queue.close()
        let again = try open()
        #expect(asides().isEmpty && again.books.depth == 1 && again.books.isBalanced)
        again.close()
    }

    @Test("a page that cannot be read is not the end of the queue, of what waits nor of the ids (R12, I11)")
    func damageIsNoEnd() async throws {
        let bytes = try make(300)
        let pages = (1..<bytes.count / 4_096).filter { page in
            (bytes[page * 4_096] == 0x0D && bytes[page * 4_096 + 4] > 4) || (bytes[page * 4_096] == 0x0A && bytes[page * 4_096 + 4] > 50)
        }
        #expect(pages.count > 20)
        for page in [pages[15]] + pages.filter({ bytes[$0 * 4_096] == 0x0A }) {
            try FileManager.default.removeItem(atPath: path)
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
            var changed = bytes
            for index in page * 4_096..<page * 4_096 + 64 { changed[index] = 0xEE }
            try Data(bytes).write(to: URL(fileURLWithPath: file))
            let queue = try open()
            try queue.readPagesAnew()
            let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
            try handle.write(contentsOf: changed)
            try handle.close()
            if bytes[page * 4_096] == 0x0D {
                let batch = try queue.nextBatch(limit: 300, maximumBytes: .max, skipping: 0)
                #expect(batch.events.isEmpty, "those of the file that took over")
            } else {
                #expect(try queue.waitingIDs().isEmpty, "a caller's retry of what may be lost is taken")
            }
            #expect(asides().count == 1)
            queue.close()
        }
    }
}
