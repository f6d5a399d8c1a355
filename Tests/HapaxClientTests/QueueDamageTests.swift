import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A damaged queue file (I1, I11, D17)")
struct QueueDamageTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path + "/queue" }
    private var file: String { path + "/queue.sqlite" }
    private static let install = EventID.derived(name: "i", key: "first")

    private func open(_ key: String = "second") throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: key))
    }

    private static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 300) }

    /// A closed queue of a few pages.
    private func make(_ count: Int64 = 60) throws -> [UInt8] {
        let queue = try open("first")
        try queue.append((1...count).map { Self.event($0) }[...])
        var bad = Self.event(count + 1)
        bad.problem = EventProblem(.nameTooLong, detail: "too long")
        try queue.append([bad][...])
        queue.close()
        return [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
    }

    private static let originals: [Data: [UInt8]] = Dictionary(
        uniqueKeysWithValues: (1...60).map { (Data(event($0).id.bytes), event($0).bytes) })

    /// What SQLite itself can read of the file, row by row, and is still what was stored.
    private func readable(_ bytes: [UInt8]) throws -> Set<Data> {
        let copy = directory.path + "/copy.sqlite"
        try Data(bytes).write(to: URL(fileURLWithPath: copy))
        var configuration = Configuration()
        configuration.readonly = true
        var found: Set<Data> = []
        guard let database = try? DatabaseQueue(path: copy, configuration: configuration) else { return [] }
        database.unsafeRead { db in
            for row in 1...60 {
                let sql = "SELECT event_id, payload, check_sum FROM queue WHERE row = ?"
                guard let read = try? Row.fetchOne(db, sql: sql, arguments: [row]), let id = Data.fromDatabaseValue(read[0]),
                    let payload = Data.fromDatabaseValue(read[1]), let original = Self.originals[id], original == [UInt8](payload),
                    let sum = Int64.fromDatabaseValue(read[2]), let eventID = EventID(bytes: id),
                    original.withUnsafeBytes({ Int64(CheckSum.crc32(eventID, $0)) }) == sum
                else { continue }
                found.insert(id)
            }
        }
        return found
    }

    private func asides() -> [String] { QueueDirectory(path: path).damagedFiles() }

    /// Opens a queue whose file is `bytes`, stores one event more, and delivers everything as a client does.
    private func deliver(_ bytes: [UInt8]) async throws -> Set<Data> {
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        let queue = try open()
        defer { queue.close() }
        var more = Self.event(1_000)
        more.sequence = queue.books.lastSequence + 1
        try queue.append([more][...])
        let delivered = try await drain(queue)
        #expect(delivered[Data(more.id.bytes)] == more.bytes)
        for (id, bytes) in delivered where id != Data(more.id.bytes) {
            #expect(Self.originals[id] == bytes, "what is sent is what was tracked (I3)")
        }
        #expect(queue.books.isBalanced)
        return Set(delivered.keys)
    }

    private func drain(_ queue: EventQueue) async throws -> [Data: [UInt8]] {
        let source = QueueBatchSource(queue: queue, clock: ManualClock()) { _ in }
        var delivered: [Data: [UInt8]] = [:]
        var failures = 0
        while true {
            do {
                let batch = try await source.nextBatch(limit: 20, maximumBytes: .max, skipping: 0)
                if batch.events.isEmpty { return delivered }
                for event in batch.events { delivered[Data(event.id.bytes)] = event.bytes }
                try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
            } catch {
                // As after any failure the delivery tries again; here the file has been replaced by then.
                failures += 1
                guard failures < 4 else { throw error }
            }
        }
    }

    /// Turns a page of rows into noise behind the queue's back.
    private func spoil(_ queue: EventQueue) throws {
        try queue.database.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)")
            try db.execute(sql: "PRAGMA cache_size = 0; PRAGMA shrink_memory")
        }
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D }
        let page = leaves[leaves.count / 2]
        for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.write(contentsOf: bytes)
        try handle.close()
    }

    @Test("a flipped bit anywhere: it opens, goes on, and delivers every row that SQLite can read; the old file stays")
    func flippedBits() async throws {
        let whole = try make()
        var damaged = 0
        for page in 0..<whole.count / 4_096 {
            for offset in [0, 3, 5, 8, 16, 18, 21, 28, 44, 56, 60, 100, 103, 108, 2_048, 4_000, 4_090] {
                var bytes = whole
                bytes[page * 4_096 + offset] ^= 0x41
                let expected = try readable(bytes)
                let delivered = try await deliver(bytes)
                #expect(expected.isSubset(of: delivered), "page \(page + 1), byte \(offset): \(expected.subtracting(delivered).count) lost")
                damaged += asides().count
            }
        }
        #expect(damaged > 10, "the damage was met")
    }

    @Test("cut off at every page: it opens, goes on, and delivers what SQLite can read")
    func truncated() async throws {
        let whole = try make()
        for length in stride(from: 1, to: whole.count, by: 2_048) {
            let bytes = [UInt8](whole.prefix(length))
            let delivered = try await deliver(bytes)
            #expect(try readable(bytes).isSubset(of: delivered), "cut off at \(length)")
            #expect(!asides().isEmpty, "cut off at \(length): the old file stays")
        }
    }

    @Test("a page of noise in the middle: the rows before and behind it are salvaged as events of their own install")
    func salvagedRowsKeepTheirInstall() async throws {
        var bytes = try make(60)
        let page = try #require((1..<bytes.count / 4_096).first { bytes[$0 * 4_096] == 0x0D && bytes.count > $0 * 4_096 + 4_096 })
        for index in page * 4_096 + 1..<page * 4_096 + 200 { bytes[index] = 0xFF }
        // As after a kill: then the pages are looked at when it opens.
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(asides() == [damage.file])
        #expect(queue.installID != Self.install, "a new file is a new install (I7)")
        let batch = try queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        #expect(batch.events.count == damage.salvaged && damage.salvaged + (damage.lost ?? -1) == 60)
        #expect(batch.envelope.installID == Self.install)
        queue.close()
        let again = try open("third")
        await again.salvage()
        #expect(again.installID == queue.installID && again.books == queue.books, "salvaged once")
        again.close()
    }

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
        #expect(throws: QueueOpenError.self) { try open() }
        #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == before)
        #expect(asides().count == 2)
    }

    @Test("damage met while a client runs: it keeps its install, stores on, tells the server, and shows it in its status (I11, I12)")
    func runningClientGoesOn() async throws {
        let test = try TestClient(directory: directory)
        try await test.track(0..<200)
        try spoil(test.client.queue)

        for _ in 0..<3 { _ = await test.client.flush() }
        test.client.track("afterwards")
        _ = await test.client.flush()
        let status = await test.client.status()
        let damage = try #require(status.damage)
        #expect(status.isBalanced && status.depth == 0)
        #expect(asides() == [damage.file])
        let names = Set(test.transport.batches.flatMap(\.names))
        #expect(names.contains("$QueueDamaged") && names.contains("afterwards"))
        #expect(names.count + (damage.lost ?? 0) >= 202, "what was not lost arrived")
        #expect(status.dropped["damaged"] ?? 0 == damage.lost.map(Int64.init), "what was lost is counted")
    }

    @Test("damage met by an upload's own read: that upload takes what was salvaged, and does not call the queue empty (I11, I15)")
    func uploadThatMeetsDamageGoesOn() async throws {
        let test = try TestClient(directory: directory)
        try await test.track(0..<200)
        try spoil(test.client.queue)
        let report = await test.client.flush()
        #expect(report.stored > 150 && report.remaining <= 1 && asides().count == 1, "but for the event that tells of it")
        await test.client.shutdown(within: .zero)
    }

    @Test("the new file takes events before the old one is salvaged; what is salvaged goes first, in its order (I11, R9)")
    func storingDoesNotWaitForSalvage() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        let before = queue.books
        try queue.append([Self.event(62)][...])
        #expect(queue.books.depth == 1 && queue.books.discarded == 60 && queue.books.dropped["damaged"] == 60)
        #expect(queue.books.lastSequence == 62 && queue.books.isBalanced && queue.installID == Self.install)
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.salvaged + (damage.lost ?? 0) == 60 && damage.salvaged > 30)
        #expect(queue.books.depth == Int64(damage.salvaged) + 1 && queue.books.discarded == Int64(damage.lost ?? -1))
        #expect(queue.books.letters == before.letters && damage.salvagedDeadLetters == 1 && queue.books.deadLettered == 1)
        let batch = try queue.nextBatch(limit: 1_000, maximumBytes: .max, skipping: 0)
        let sent = Set(batch.events.map(\.id))
        #expect(batch.events.map(\.row) == batch.events.map(\.row).sorted() && batch.events.last?.id == Self.event(62).id)
        #expect(batch.events.dropLast().map(\.id) == (1...60).map { Self.event($0).id }.filter { sent.contains($0) })
        #expect(batch.envelope.installID == Self.install, "its own events, with their sequences")
        #expect(try queue.deadLetters(after: 0, limit: 9).map(\.number) == [1], "a dead letter keeps its number")
        queue.close()
    }

    @Test(
        "a process that ends before its salvage: the next one salvages, and the books are as if nothing had happened (I1, I12)",
        arguments: [false, true])
    func salvageIsTakenUpAgain(isRunning: Bool) async throws {
        _ = try make(60)
        if isRunning {
            let queue = try open()
            try spoil(queue)
            try queue.append([Self.event(62)][...])
            queue.close()
        } else {
            var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
            for index in 16..<40 { bytes[index] ^= 0xFF }
            // The header is beyond reading, and a log shows that rows can be found by SQLite only where it is not.
            try Data(bytes).write(to: URL(fileURLWithPath: file))
            try open().close()
        }
        let queue = try open("third")
        let pending = queue.damage.withLock { $0.pending }
        #expect(pending.map(\.isOwn) == [isRunning])
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(queue.books.isBalanced && damage.isSalvaged)
        if isRunning {
            #expect(queue.installID == Self.install && damage.salvaged > 30)
            #expect(queue.books.discarded == 60 - Int64(damage.salvaged) && queue.books.dropped["damaged"] ?? 0 == queue.books.discarded)
        }
        queue.close()
    }

    private func makeDamaged() throws {
        _ = try make(60)
        try damageAPage()
    }

    /// A page of rows in a closed file becomes noise, which is met when it opens.
    private func damageAPage() throws {
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 }
        let page = try #require(leaves.first)
        for index in page * 4_096 + 1..<page * 4_096 + 200 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
    }

    @Test("what is lost with a file that was damaged before it opened is counted; a report that was not stored is made again (I11, I12)")
    func lossIsToldAfterACrash() async throws {
        try makeDamaged()
        let reports = Locked<[EventID]>([])
        var observer = DamageObserver()
        observer.salvaged = { _, id in reports.withLock { $0.append(id) } }
        // Ends each time before the report is stored.
        for key in ["second", "third"] {
            let queue = try open(key)
            queue.observeDamage(observer)
            await queue.salvage()
            let lost = try #require(queue.latestDamage?.lost)
            #expect(lost > 0 && queue.books.dropped["damaged"] == Int64(lost) && queue.books.discarded == Int64(lost))
            #expect(queue.books.isBalanced)
            queue.close()
        }
        let report = try #require(reports.withLock { $0.first })
        #expect(reports.withLock { $0 } == [report, report], "under one id")
        let queue = try open("fourth")
        queue.observeDamage(observer)
        await queue.salvage()
        var event = Self.event(1_000)
        (event.id, event.sequence) = (report, 1)
        try queue.append([event][...])
        queue.close()
        let last = try open("fifth")
        #expect(last.damage.withLock { $0.pending.isEmpty })
        last.close()
    }

    @Test(
        "what was salvaged from one file does not come back when the next is damaged, be it delivered or purged", arguments: [false, true])
    func salvagedFilesStayDone(isRunning: Bool) async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        _ = try queue.purge()
        let later = (Int64(1)...60).map { number in
            var event = Self.event(number)
            event.id = .derived(name: "later", key: "\(number)")
            return event
        }
        try queue.append(later[...])
        if isRunning {
            try spoil(queue)
            _ = try await drain(queue)
            #expect(asides().count == 2)
        }
        queue.close()
        if !isRunning {
            try damageAPage()
            try open("third").close()
            #expect(asides().count == 2)
        }
        let again = try open("fourth")
        let old = Set((1...60).map { Data(Self.event($0).id.bytes) })
        #expect(try await drain(again).keys.filter { old.contains($0) }.isEmpty)
        again.close()
    }

    @Test("a bit that changed in an event's bytes: that event alone is a dead letter, with its bytes (I3, I8)")
    func changedBytesAreNotSent() async throws {
        var bytes = try make(60)
        let text = Array("\(Self.event(30).id)".utf8)
        let place = try #require((0..<bytes.count - text.count).first { Array(bytes[$0..<$0 + text.count]) == text })
        bytes[place + text.count + 12] ^= 0x01
        let delivered = try await deliver(bytes)
        #expect(delivered.count == 60 && !delivered.contains(Data(Self.event(30).id.bytes)))
        #expect(asides().isEmpty, "the file itself is whole")
        let queue = try open()
        let letter = try #require(try queue.deadLetters(after: 1, limit: 9).first)
        #expect(letter.reason == "damaged" && letter.eventID == Self.event(30).id)
        queue.close()
    }

    @Test("who logged in, the anonymous id and an open session move to the new file at once")
    func identityMoves() throws {
        let first = try open("first")
        try first.append((1...60).map { Self.event($0) }[...])
        try first.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        try first.save(EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5))
        first.close()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        // A full page of rows: its count of cells is the byte at 4.
        let leaves = (1..<bytes.count / 4_096 - 1).filter { bytes[$0 * 4_096] == 0x0D }
        let leaf = try #require(leaves.first { bytes[$0 * 4_096 + 4] > 2 })
        for index in leaf * 4_096 + 1..<leaf * 4_096 + 200 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        #expect(queue.installID != Self.install)
        #expect(try queue.identity() == EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna"))
        #expect(try queue.openSession() == EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5))
        queue.close()
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

    @Test("a log that belongs to a damaged file goes with it, also when the process ended between the two renames")
    func logGoesWithItsFile() async throws {
        let queue = try open("first")
        try queue.append((1...60).map { Self.event($0) }[...])
        // As after a kill: the rows are in the log only.
        let copies = [file, file + "-wal"].map { ($0, FileManager.default.contents(atPath: $0) ?? Data()) }
        queue.close()
        for (path, bytes) in copies { try bytes.write(to: URL(fileURLWithPath: path)) }
        let database = try #require(copies.first?.1)
        try database.write(to: URL(fileURLWithPath: file + ".damaged-1"))
        try FileManager.default.removeItem(atPath: file)

        let again = try open()
        #expect(FileManager.default.fileExists(atPath: file + ".damaged-1-wal"))
        #expect(try await drain(again).count == 60)
        again.close()
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
    }

    @Test("an event lost with a damaged file is taken again from its caller; one that was salvaged is not doubled (R12, I11)")
    func retriesAreTaken() async throws {
        let test = try TestClient(directory: directory)
        let ids = (1...200).map { EventID.derived(name: "order", key: "\($0)") }
        for id in ids {
            _ = try await test.client.trackDurably("order", properties: ["fill": .string(String(repeating: "x", count: 300))], id: id)
        }
        try spoil(test.client.queue)
        _ = await test.client.flush()
        for id in ids {
            _ = try await test.client.trackDurably("order", properties: ["fill": .string(String(repeating: "x", count: 300))], id: id)
        }
        for _ in 0..<3 { _ = await test.client.flush() }
        #expect(Set(ids).isSubset(of: Set(test.transport.batches.flatMap(\.ids))), "every order arrived")
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("control: a reader that stops at the damage loses rows that SQLite can read")
    func stoppingAtDamageIsSeen() throws {
        let whole = try make()
        let leaves = (1..<whole.count / 4_096).filter { whole[$0 * 4_096] == 0x0D }
        let isSeen = try leaves.contains { page in
            var bytes = whole
            for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
            let expected = try readable(bytes)
            var found: Set<Data> = []
            try DatabaseQueue(path: directory.path + "/copy.sqlite").unsafeRead { db in
                do {
                    let rows = try Row.fetchCursor(db, sql: "SELECT event_id FROM queue ORDER BY row")
                    while let row = try rows.next() { found.insert(row[0]) }
                } catch is DatabaseError {}
            }
            return !expected.isSubset(of: found)
        }
        #expect(isSeen)
    }
}
