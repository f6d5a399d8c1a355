import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Which files are set aside and how they are named, and what does not stay with them.
extension QueueDamageTests {
    @Test("a file of somebody else is set aside as it is; one of a later version is left untouched and refused")
    func foreignAndNewerFiles() throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try Data("these are my notes, not a database".utf8).write(to: URL(fileURLWithPath: file))
        try open().close()
        try FileManager.default.removeItem(atPath: file)
        try DatabaseQueue(path: file).write { try $0.execute(sql: "CREATE TABLE notes (text TEXT)") }
        try open().close()
        #expect(asides().count == 2)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path + "/" + asides()[0])) == Data("these are my notes, not a database".utf8))

        try DatabaseQueue(path: file).write { try $0.execute(sql: "INSERT INTO grdb_migrations VALUES ('99 from the future')") }
        let before = try Data(contentsOf: URL(fileURLWithPath: file))
        let refusal = try #require(throws: QueueOpenError.self) { try open() }
        guard case .unusable(let failure) = refusal else { throw refusal }
        #expect(failure.description == "the queue was made by a newer version")
        #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == before)
        #expect(asides().count == 2)
    }

    @Test("nothing is taken from a database of somebody else, though its pages have tables where a queue has its own (D17)")
    func foreignRowsStayWhereTheyAre() async throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try await DatabaseQueue(path: file).write { db in
            for table in 1...20 {
                try db.execute(sql: "CREATE TABLE notes_\(table) (row INTEGER PRIMARY KEY, id BLOB, text BLOB, time INTEGER, a, b, c, d)")
                try db.execute(sql: "INSERT INTO notes_\(table) VALUES (1, x'00', x'01', 2, 3, 4, 5, 6)")
            }
        }
        let queue = try open()
        await queue.salvage()
        #expect(queue.unsalvagedFiles == 0 && asides().count == 1)
        #expect(queue.books.depth == 0 && queue.books.letters == 0 && queue.books.drops.byReason == [:])
        queue.close()
    }

    @Test("a file that is deleted before it could be salvaged holds up nothing: all that it held is told as lost (I11, I15)")
    func deletedFileIsLost() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        try queue.append([Self.event(62)][...])
        for name in try FileManager.default.contentsOfDirectory(atPath: path) where name.contains("damaged-") {
            try FileManager.default.removeItem(atPath: path + "/" + name)
        }
        #expect(try await drain(queue).count == 1)
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.lost == 60 && damage.lostDeadLetters == 1 && queue.unsalvagedFiles == 0)
        queue.close()
    }

    @Test("a purge just behind a salvage: what is lost with the file counts as lost, and not as purged as well (I12)")
    func purgeBehindASalvageCountsOnce() async throws {
        try makeDamaged()
        let queue = try open()
        let pending = queue.damage.withLock { $0.pending }
        for file in asides() { try FileManager.default.removeItem(atPath: path + "/" + file) }
        await queue.salvage()
        let dropped = queue.books.drops.byReason
        #expect(dropped[EventQueue.damagedEvent] == 60, "control")
        // As if the salvage had ended on the disk, and nobody here had heard of it.
        queue.damage.withLock { $0.pending = pending }
        _ = try queue.purge()
        #expect(queue.books.drops.byReason == dropped && queue.books.isBalanced)
        queue.close()
    }

    @Test("files are set aside under numbers, not texts: the tenth follows the ninth (D14)")
    func asidesAreNumbered() throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        for number in 1...11 {
            try Data("noise".utf8).write(to: URL(fileURLWithPath: file))
            try open("\(number)").close()
            try FileManager.default.removeItem(atPath: file)
        }
        #expect(asides() == (1...11).map { "queue.sqlite.damaged-\($0)" })
        // Taken over in this order at the next opening, too.
        let queue = try open("12")
        #expect(queue.damage.withLock { $0.pending.map(\.name) } == asides())
        queue.close()
    }

    @Test("a log that belongs to a damaged file goes with it, also when the process ended between the two renames")
    func logGoesWithItsFile() async throws {
        let queue = try open("first")
        try queue.append((1...60).map { Self.event($0) }[...])
        // As after a kill: the rows are in the log only.
        let copies = [file, file + "-wal"].map { ($0, FileManager.default.contents(atPath: $0) ?? Data()) }
        queue.close()
        for (path, bytes) in copies { try bytes.write(to: URL(fileURLWithPath: path)) }
        let database = try #require(copies.first?.1)
        try Data("older".utf8).write(to: URL(fileURLWithPath: file + ".damaged-1"))
        try database.write(to: URL(fileURLWithPath: file + ".damaged-2"))
        try Data().write(to: URL(fileURLWithPath: file + ".damaged-2.moving"))
        try FileManager.default.removeItem(atPath: file)

        let again = try open()
        #expect(asides().count == 2 && FileManager.default.contents(atPath: file + ".damaged-2-wal") == copies.last?.1)
        #expect(try await drain(again).count == 60)
        again.close()
    }

    @Test("a journal goes with its file as well: the next one must not be rolled back by it")
    func journalGoesWithItsFile() throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        for suffix in ["", "-journal"] { try Data("noise".utf8).write(to: URL(fileURLWithPath: file + suffix)) }
        try open().close()
        #expect(try Data(contentsOf: URL(fileURLWithPath: file + ".damaged-1-journal")) == Data("noise".utf8))
        #expect(!FileManager.default.fileExists(atPath: file + "-journal"))
    }

    @Test("who looks at a file while it is set aside and the one that takes over have nothing in common")
    func lookerIsUndisturbed() async throws {
        _ = try make(60)
        let queue = try open()
        try queue.append([Self.event(62)][...])
        let reader = try #require(try QueueReader(directory: QueueDirectory(path: path)))
        #expect(try reader.summary().books.depth == 61)
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        try queue.append([Self.event(63)][...])
        #expect(try reader.summary().books.depth == 61)
        #expect(try await drain(queue).count == 62)
        queue.close()
    }

    @Test("who logged in, the anonymous id and an open session move to the new file at once")
    func identityMoves() throws {
        let first = try open("first")
        try first.append((1...60).map { Self.event($0) }[...])
        try first.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        try first.save(EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5))
        first.close()
        try damageAPage()
        let queue = try open()
        #expect(queue.installID != Self.install)
        #expect(try queue.identity() == EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna"))
        #expect(try queue.openSession() == EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5))
        queue.close()
    }

    @Test("who is logged in and in a session stays so when an older file is found beside the queue")
    func foundIdentityReplacesNone() throws {
        let older = try open("first")
        try older.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        try older.save(EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5))
        older.close()
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        try FileManager.default.removeItem(atPath: file)
        let queue = try open("second")
        try queue.saveIdentity { Identity(anonymousID: "b-1", loginID: "berta") }
        try queue.save(EventQueue.OpenSession(start: Self.event(2).id, lastActivity: 9))
        queue.close()
        try bytes.write(to: URL(fileURLWithPath: file + ".damaged-1"))
        let again = try open("third")
        #expect(again.unsalvagedFiles == 1)
        #expect(try again.identity() == EventQueue.SavedIdentity(anonymousID: "b-1", loginID: "berta"))
        #expect(try again.openSession() == EventQueue.OpenSession(start: Self.event(2).id, lastActivity: 9))
        again.close()
    }

    @Test("opting out outlives the queue's file, whatever is left of it (D16)")
    func optOutOutlivesTheFile() async throws {
        let first = try TestClient(directory: directory)
        try first.client.optOut()
        await first.client.shutdown(within: .zero)
        try Data("noise".utf8).write(to: URL(fileURLWithPath: file))
        let second = try TestClient(directory: directory)
        #expect(second.client.isOptedOut && second.client.track("refused") == nil)
        try second.client.optIn()
        await second.client.shutdown(within: .zero)
        let third = try TestClient(directory: directory)
        #expect(!third.client.isOptedOut)
        await third.client.shutdown(within: .zero)
    }

    @Test(
        "a file of somebody else's whose name counts higher than anybody can is left alone", arguments: ["9223372036854775807", "0", "-1"])
    func strangeNumbersAreNobodys(digits: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        for name in [file, file + ".damaged-" + digits] { try Data("noise".utf8).write(to: URL(fileURLWithPath: name)) }
        try open().close()
        #expect(asides() == ["queue.sqlite.damaged-1"])
    }
}
