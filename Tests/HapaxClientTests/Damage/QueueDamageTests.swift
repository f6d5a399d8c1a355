import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A damaged queue file (I1, I11, D17)", .takesTurns, .timeLimit(.minutes(20)))
struct QueueDamageTests {
    let directory = TemporaryDirectory()
    var path: String { directory.path + "/queue" }
    var file: String { path + "/queue.sqlite" }
    static let install = EventID.derived(name: "i", key: "first")

    func open(_ key: String = "second", _ durability: Durability = .process, quota: QueueQuota = .unlimited) throws -> EventQueue {
        try EventQueue(
            directory: QueueDirectory(path: path), durability: durability, newInstallID: .derived(name: "i", key: key), quota: quota)
    }

    static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 300) }

    /// A closed queue of a few pages.
    func make(_ count: Int64 = 60) throws -> [UInt8] {
        let queue = try open("first")
        try queue.append((1...count).map { Self.event($0) }[...])
        var bad = Self.event(count + 1)
        bad.problem = EventProblem(.nameTooLong, detail: "too long")
        try queue.append([bad][...])
        queue.close()
        return [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
    }

    static let originals: [Data: [UInt8]] = Dictionary(
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
                    Int64(CheckSum.crc32(eventID, original)) == sum
                else { continue }
                found.insert(id)
            }
        }
        return found
    }

    func asides() -> [String] { QueueDirectory(path: path).filesSetAside }

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

    func drain(_ queue: EventQueue) async throws -> [Data: [UInt8]] {
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
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
    func spoil(_ queue: EventQueue) throws {
        try queue.readPagesAnew()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D }
        let page = leaves[leaves.count / 2]
        for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.write(contentsOf: bytes)
        try handle.close()
    }

    func makeDamaged() throws {
        _ = try make(60)
        try damageAPage()
    }

    /// A page of rows in a closed file becomes noise, which is met when it opens.
    func damageAPage() throws {
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        // A full page of rows: its count of cells is the byte at 4.
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 }
        let page = try #require(leaves.first)
        for index in page * 4_096 + 1..<page * 4_096 + 200 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        // As after a kill: then the pages are looked at when it opens.
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
    }

    @Test("a flipped bit anywhere: it opens, goes on, and delivers every row that SQLite can read; the old file stays")
    func flippedBits() async throws {
        let whole = try make()
        var damaged = 0
        for page in 0..<whole.count / 4_096 {
            for offset in [0, 3, 4, 5, 8, 16, 18, 21, 28, 44, 47, 56, 60, 100, 103, 108, 2_048, 4_000, 4_090] {
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

    @Test("a page that says it is empty, whatever it is of: the queue opens, goes on, and tells what cannot be found (I11, I12, I15)")
    func emptiedPages() async throws {
        let whole = try make()
        for page in 0..<whole.count / 4_096 {
            let header = page * 4_096 + (page == 0 ? 100 : 0)
            guard [0x02, 0x05, 0x0A, 0x0D].contains(whole[header]) else { continue }
            var bytes = whole
            for index in header + 1..<header + 8 { bytes[index] = 0 }
            let expected = try readable(bytes)
            let delivered = try await deliver(bytes)
            #expect(expected.isSubset(of: delivered), "page \(page + 1)")
            let queue = try open()
            await queue.salvage()
            let letters = try queue.deadLetterCount()
            let told = queue.books.drops.byReason.filter { $0.value > 0 }.values.reduce(0, +)
            #expect(letters == queue.books.letters, "page \(page + 1)")
            if asides().isEmpty { #expect(delivered.count == 61 && letters == 1 && told == 0, "page \(page + 1)") }
            queue.close()
        }
    }

    @Test("row numbers that were given and are forgotten are damage, which costs nothing and tells of nothing lost (D3, I12)")
    func forgottenRowNumbersAreDamage() async throws {
        _ = try make(3)
        var queue = try open()
        #expect(try await drain(queue).count == 3)
        try await queue.database.write { try $0.execute(sql: "DELETE FROM sqlite_sequence WHERE name = 'queue'") }
        queue.close()
        queue = try open()
        #expect(asides().count == 1)
        try queue.append([Self.event(1)][...])
        #expect(try await drain(queue).count == 1)
        #expect(queue.books.drops.byReason.filter { $0.value > 0 } == [:] && queue.books.isBalanced)
        #expect(queue.latestDamage?.lost == 0)
        queue.close()
    }

    @Test("the same in a running client, whose queue is empty (D3)")
    func forgottenRowNumbersAreMet() async throws {
        let queue = try open()
        try queue.append([Self.event(1)][...])
        #expect(try await drain(queue).count == 1)
        try await queue.database.write { try $0.execute(sql: "DELETE FROM sqlite_sequence WHERE name = 'queue'") }
        try queue.append([] as [PreparedEvent], dropped: ["refused": 1])
        #expect(asides().count == 1)
        try queue.append([Self.event(2)][...])
        #expect(try await drain(queue).count == 1)
        #expect(queue.books.drops.byReason.filter { $0.value > 0 } == ["refused": 1] && queue.books.isBalanced)
        queue.close()
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

    @Test("a bit that changed in an event's bytes: that event alone is a dead letter, with its bytes (I3, I8)")
    func changedBytesAreNotSent() async throws {
        var bytes = try make(60)
        let text = Array("\(Self.event(30).id)".utf8)
        let place = try #require((0..<bytes.count - text.count).first { Array(bytes[$0..<$0 + text.count]) == text })
        bytes[place + text.count + 12] ^= 0x01
        let changed = bytes[place..<place + text.count + 13]
        let delivered = try await deliver(bytes)
        #expect(delivered.count == 60 && !delivered.contains(Data(Self.event(30).id.bytes)))
        #expect(asides().isEmpty, "the file itself is whole")
        let queue = try open()
        let letter = try #require(try queue.deadLetters(after: 1, limit: 9).first)
        #expect(letter.reason == "damaged" && letter.eventID == Self.event(30).id)
        #expect(letter.event.count == Self.event(30).bytes.count && letter.event.firstRange(of: changed) != nil, "as they are now")
        #expect(try queue.retryDeadLetters([letter.number]).unfit == 1, "nor later: it is not what was tracked, though it is JSON")
        queue.close()
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
