import Foundation
import GRDB
import GRDBSQLite
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// More than one damaged file.
extension QueueDamageTests {
    @Test("what was salvaged from one file does not come back when the next cannot be read at all")
    func salvagedFilesStayDoneBehindNoise() async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        _ = try queue.purge()
        queue.close()
        try Data("noise".utf8).write(to: URL(fileURLWithPath: file))
        let again = try open("third")
        #expect(asides().count == 2)
        #expect(try await drain(again).isEmpty)
        again.close()
    }

    @Test("a file whose salvage had no chance to be marked as done is marked at the next opening")
    func markIsMadeUpFor() async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        queue.close()
        let mark = try #require(
            try FileManager.default.contentsOfDirectory(atPath: path).first { $0.hasSuffix(".salvaged") })
        try FileManager.default.removeItem(atPath: path + "/" + mark)
        try open("third").close()
        #expect(queue.directory.isSalvaged("queue.sqlite.damaged-1"))
    }

    @Test("dead letters that are lost with a file that was damaged before it opened are counted and told (I11, I12)")
    func lostLettersAreTold() async throws {
        var bytes = try make(60)
        let text = Array(#"too long"#.utf8)
        let place = try #require((0..<bytes.count - text.count).last { Array(bytes[$0..<$0 + text.count]) == text })
        let page = place / 4_096
        for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.salvaged == 60 && damage.lost == 0 && damage.salvagedDeadLetters == 0 && damage.lostDeadLetters == 1)
        #expect(damage.properties["$lost_dead_letters"] == .integer(1))
        #expect(queue.books.dropped == ["damaged_dead_letter": 1] && queue.books.isBalanced)
        queue.close()
    }

    @Test("what one damaged file had taken over from another is not told as lost when both are salvaged (I12)")
    func rowsInTwoFilesAreNotLost() async throws {
        _ = try make(60)
        let first = try Data(contentsOf: URL(fileURLWithPath: file))
        let queue = try open()
        // As if the rows had been taken over from an older file whose salvage has not ended.
        try first.write(to: URL(fileURLWithPath: file + ".damaged-1"))
        try await queue.database.write { try EventQueue.remember(DamagedFile(name: "queue.sqlite.damaged-1", isOwn: false), $0) }
        queue.damage.withLock { $0.pending.append(DamagedFile(name: "queue.sqlite.damaged-1", isOwn: false)) }
        _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        #expect(asides().count == 2)
        #expect(try await drain(queue).count == 60)
        #expect(queue.books.dropped == [:] && queue.books.isBalanced && queue.books.discarded == 0)
        queue.close()
    }

    @Test("a file that can never be read keeps no younger one from being salvaged (I15)")
    func unreadableFileHoldsUpNoOther() async throws {
        _ = try make(60)
        try FileManager.default.createDirectory(atPath: file + ".damaged-1", withIntermediateDirectories: true)
        try damageAPage()
        let queue = try open()
        #expect(asides().count == 2)
        await queue.salvage()
        #expect(queue.books.depth > 40 && queue.unsalvagedFiles == 1)
        queue.close()
    }

    @Test("the number of a file that was deleted is not given again, nor its row numbers (D3, R9)")
    func numbersDoNotComeBack() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        _ = try await drain(queue)
        for name in try FileManager.default.contentsOfDirectory(atPath: path) where name.contains("damaged-") {
            try FileManager.default.removeItem(atPath: path + "/" + name)
        }
        try queue.append((62...121).map { Self.event($0) }[...])
        let batch = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        try spoil(queue)
        try queue.append((122...151).map { Self.event($0) }[...])
        #expect(asides() == ["queue.sqlite.damaged-2"])
        #expect(throws: DatabaseError.self) { try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0) }
        #expect(asides() == ["queue.sqlite.damaged-2"], "the new file is whole")
        let delivered = try await drain(queue)
        #expect(delivered.count > 70, "\(queue.books), \(String(describing: queue.latestDamage))")
        #expect(queue.books.isBalanced, "\(queue.books)")
        queue.close()
    }

    @Test("a file set aside that cannot be opened keeps nobody from starting; nothing counts as drained (I11)")
    func unreadableFileKeepsNobodyFromStarting() async throws {
        _ = try make(60)
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let disk = FaultyDisk(path + "/queue.sqlite.damaged-1")
        disk.fail(FaultyDisk.Fault(at: 0, count: .max, code: SQLITE_CANTOPEN, operations: [.open]))
        let queue = try open()
        try queue.append([Self.event(100)][...])
        let source = QueueBatchSource(queue: queue, clock: ManualClock()) { _ in }
        let batch = try await source.nextBatch(limit: 20, maximumBytes: .max, skipping: 0)
        #expect(batch.events.map(\.id) == [Self.event(100).id])
        try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
        await #expect(throws: SalvageFailure.self) { try await source.nextBatch(limit: 20, maximumBytes: .max, skipping: 0) }
        queue.close()
        disk.fail(nil)
        let again = try open("third")
        #expect(try await drain(again).count == 60)
        again.close()
    }

    /// A file from which nobody can tell whose it is: the only page of its books is noise.
    private func makeFileOfNobody() throws {
        var bytes = try make(60)
        let books = try #require(
            (1..<bytes.count / 4_096).first { page in
                let start = page * 4_096
                return bytes[start] == 0x0D && bytes[start + 4] == 1
                    && bytes[start..<start + 4_096].indices.contains { Array(bytes[$0..<min($0 + 16, bytes.count)]) == Self.install.bytes }
            })
        for index in books * 4_096..<books * 4_096 + 200 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
    }

    @Test("dead letters of two files of nobody knows which install have the same numbers and are both kept (I1)")
    func lettersOfNobodyDoNotCollide() async throws {
        for round in 1...2 {
            try? FileManager.default.removeItem(atPath: file)
            try makeFileOfNobody()
            let queue = try open("round \(round)")
            await queue.salvage()
            #expect(queue.latestDamage?.salvagedDeadLetters == 1)
            #expect(try queue.deadLetterCount() == 1 && queue.books.isBalanced)
            _ = try await drain(queue)
            queue.close()
            try FileManager.default.copyItem(atPath: file, toPath: directory.path + "/round-\(round).sqlite")
        }
        // The second queue took the first one's place, but nothing of it: both are adopted by a third.
        let main = try EventQueue(
            directory: QueueDirectory(path: directory.path + "/main"), durability: .process, newInstallID: .derived(name: "i", key: "main"))
        for round in 1...2 {
            let place = QueueDirectory(path: directory.path + "/round-\(round)")
            try FileManager.default.createDirectory(atPath: place.path, withIntermediateDirectories: true)
            try FileManager.default.copyItem(atPath: directory.path + "/round-\(round).sqlite", toPath: place.databasePath)
            let spool = try EventQueue(
                directory: place, durability: .process, newInstallID: .derived(name: "i", key: "unused"), isSpool: true)
            let letters = try spool.deadLetters(after: 0, limit: 9).map { $0.belonging(to: spool.installID) }
            #expect(letters.map(\.origin) == [.nobody])
            for _ in 1...2 { try main.adoptDeadLetters(letters) }
            spool.close()
        }
        #expect(try main.deadLetterCount() == 2, "each once, however often it is adopted")
        main.close()
    }
}
