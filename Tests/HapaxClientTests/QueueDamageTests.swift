import Foundation
import GRDB
import HapaxModel
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

    private func event(_ sequence: Int64) -> PreparedEvent {
        let id = EventID.derived(name: "event", key: "\(sequence)")
        let bytes = Event(
            id: id, name: "e", time: 1_000, distinctID: "u", sequence: sequence,
            properties: ["fill": .string(String(repeating: "x", count: 300))]
        ).encoded().bytes
        return PreparedEvent(id: id, sequence: sequence, time: 1_000, bytes: bytes, callerSupplied: sequence % 7 == 0)
    }

    /// A closed queue of a few pages.
    private func make(_ count: Int64 = 60) throws -> [UInt8] {
        let queue = try open("first")
        try queue.append((1...count).map { event($0) }[...])
        var bad = event(count + 1)
        bad.problem = EventProblem(.nameTooLong, detail: "too long")
        try queue.append([bad][...])
        queue.close()
        return [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
    }

    /// What SQLite itself can read of the file, row by row.
    private func readable(_ bytes: [UInt8]) throws -> Set<Data> {
        let copy = directory.path + "/copy.sqlite"
        try Data(bytes).write(to: URL(fileURLWithPath: copy))
        var configuration = Configuration()
        configuration.readonly = true
        var found: Set<Data> = []
        guard let database = try? DatabaseQueue(path: copy, configuration: configuration) else { return [] }
        database.unsafeRead { db in
            for row in 1...60 {
                let sql = "SELECT event_id, payload FROM queue WHERE row = ?"
                guard let read = try? Row.fetchOne(db, sql: sql, arguments: [row]), let id = Data.fromDatabaseValue(read[0]),
                    EventID(bytes: id) != nil, Data.fromDatabaseValue(read[1]) != nil
                else { continue }
                found.insert(id)
            }
        }
        return found
    }

    private func asides() -> [String] { QueueDirectory(path: path).damagedFiles() }

    /// Opens a queue whose file is `bytes`, stores one event more, and delivers everything as a client does.
    private func deliver(_ bytes: [UInt8]) throws -> Set<Data> {
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        let queue = try open()
        defer { queue.close() }
        var more = event(1_000)
        more.sequence = queue.books.lastSequence + 1
        try queue.append([more][...])
        var delivered: Set<Data> = []
        var failures = 0
        while true {
            do {
                let batch = try queue.nextBatch(limit: 20, maximumBytes: .max, skipping: 0)
                if batch.events.isEmpty { break }
                delivered.formUnion(batch.events.map { Data($0.id.bytes) })
                try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
            } catch {
                // As after any failure the delivery tries again; here the file has been replaced by then.
                failures += 1
                guard failures < 4 else { throw error }
            }
        }
        let books = queue.books
        #expect(delivered.contains(Data(event(1_000).id.bytes)))
        #expect(
            books.lastSequence + books.adopted == books.depth + books.stored + books.duplicates + books.deadLettered + books.discarded)
        return delivered
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
    func flippedBits() throws {
        let whole = try make()
        var damaged = 0
        for page in 0..<whole.count / 4_096 {
            for offset in [0, 3, 5, 8, 16, 18, 21, 28, 44, 56, 60, 100, 103, 108, 2_048, 4_000, 4_090] {
                var bytes = whole
                bytes[page * 4_096 + offset] ^= 0x41
                let expected = try readable(bytes)
                let delivered = try deliver(bytes)
                #expect(expected.isSubset(of: delivered), "page \(page + 1), byte \(offset): \(expected.subtracting(delivered).count) lost")
                damaged += asides().count
            }
        }
        #expect(damaged > 10, "the damage was met")
    }

    @Test("cut off at every page: it opens, goes on, and delivers what SQLite can read")
    func truncated() throws {
        let whole = try make()
        for length in stride(from: 1, to: whole.count, by: 2_048) {
            let bytes = [UInt8](whole.prefix(length))
            let delivered = try deliver(bytes)
            #expect(try readable(bytes).isSubset(of: delivered), "cut off at \(length)")
            #expect(!asides().isEmpty, "cut off at \(length): the old file stays")
        }
    }

    @Test("a page of noise in the middle: the rows before and behind it are salvaged as events of their own install")
    func salvagedRowsKeepTheirInstall() throws {
        var bytes = try make(60)
        let page = try #require((1..<bytes.count / 4_096).first { bytes[$0 * 4_096] == 0x0D && bytes.count > $0 * 4_096 + 4_096 })
        for index in page * 4_096 + 1..<page * 4_096 + 200 { bytes[index] = 0xFF }
        // As after a kill: then the pages are looked at when it opens.
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        let damage = try #require(queue.damages.withLock { $0.first })
        #expect(asides() == [damage.file])
        #expect(queue.installID != Self.install, "a new file is a new install (I7)")
        let batch = try queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        #expect(batch.events.count == damage.salvaged && damage.salvaged + (damage.lost ?? -1) == 60)
        #expect(batch.envelope.installID == Self.install)
        queue.close()
        let again = try open("third")
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
