import Foundation
import GRDB
import HapaxModel
import Testing

@testable import HapaxClient

/// Pages with rows that are whole and do not belong where they are: SQLite notices nothing.
extension QueueDamageTests {
    private static let pageBytes = 4_096

    /// A closed queue, and what it was before half of its events were delivered and others stored in their places.
    private func makeTwice(fill: Int) async throws -> (before: [UInt8], now: [UInt8], waiting: Set<EventID>) {
        func bytes() throws -> [UInt8] { [UInt8](try Data(contentsOf: URL(fileURLWithPath: file))) }
        var queue = try open("first")
        try queue.append((1...150).map { PreparedEvent.sample($0, fill: fill) })
        queue.close()
        let before = try bytes()
        queue = try open("first")
        let batch = try queue.nextBatch(limit: 75, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        try queue.append((151...250).map { PreparedEvent.sample($0, fill: fill) })
        queue.close()
        return (before, try bytes(), Set((76...250).map { PreparedEvent.sample($0, fill: fill).id }))
    }

    /// Opens a queue whose file is `bytes`, and delivers everything.
    ///
    /// - Returns: What was not delivered of what waits, what was counted as lost, and whether that is known.
    private func deliver(_ bytes: [UInt8], _ waiting: Set<EventID>) async throws -> (missing: Int, told: Int, isKnown: Bool) {
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        let queue = try open()
        defer { queue.close() }
        let delivered = Set(try await drain(queue).keys.compactMap { EventID(bytes: $0) })
        let buried = Set(try queue.deadLetters(after: 0, limit: 999).compactMap(\.eventID))
        let told = Int(queue.books.drops.byReason["damaged"] ?? 0)
        #expect(
            queue.books.isBalanced && queue.books.depth == 0 && queue.books.discarded == told,
            "\(queue.books), \(String(describing: queue.latestDamage))")
        return (waiting.subtracting(delivered).subtracting(buried).count, told, queue.latestDamage.map { $0.lost != nil } ?? true)
    }

    @Test("a page whose write the disk lost: what is lost with it is told to the last event (I1, I11, I12)", arguments: [300, 1_500])
    func lostWritesAreTold(fill: Int) async throws {
        let (before, now, waiting) = try await makeTwice(fill: fill)
        var losses = 0
        for page in 1..<min(before.count, now.count) / Self.pageBytes {
            let range = page * Self.pageBytes..<(page + 1) * Self.pageBytes
            if before[range] == now[range] { continue }
            var bytes = now
            bytes.replaceSubrange(range, with: before[range])
            let (missing, told, isKnown) = try await deliver(bytes, waiting)
            // Of a page that leads to others, events were sent that a salvage does not find.
            let isInterior = now[page * Self.pageBytes] == 0x05
            #expect(isInterior ? missing <= told : missing == told || !isKnown, "page \(page): \(missing) \(told)")
            losses += missing
        }
        #expect(losses > 0, "or nothing was tried")
    }

    @Test("a page from before its events were delivered, in a queue that is empty by now: nothing is told as lost (I12)")
    func emptyQueuesHaveLostNothing() async throws {
        let queue = try open("first")
        try queue.append((1...150).map { PreparedEvent.sample($0, fill: 300) })
        try await queue.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
        let before = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        while true {
            let batch = try queue.nextBatch(limit: 50, maximumBytes: .max, skipping: 0)
            if batch.events.isEmpty { break }
            try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        }
        #expect(queue.books.head == 151)
        queue.close()
        let now = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let books = try pageOfBooks(now)
        for page in 1..<now.count / Self.pageBytes {
            let range = page * Self.pageBytes..<(page + 1) * Self.pageBytes
            if before[range] == now[range] { continue }
            var bytes = now
            bytes.replaceSubrange(range, with: before[range])
            let (_, told, isKnown) = try await deliver(bytes, [])
            // The books themselves may be the page: then what they say is told.
            #expect(told == 0 || !isKnown || page == books, "page \(page): \(told)")
        }
    }

    @Test("a row from before its event was delivered, with changed bytes on top, stands for none that is lost (I12)")
    func staleChangedRowAccountsForNothing() async throws {
        var queue = try open("first")
        try queue.append((1...10).map { Self.event($0) }[...])
        queue.close()
        try await DatabaseQueue(path: file).write {
            try $0.execute(
                sql: """
                    UPDATE books SET head = 6, depth = 5, stored = 5;
                    UPDATE queue SET check_sum = 1 - check_sum WHERE row = 3;
                    DELETE FROM queue WHERE row = 8;
                    """)
        }
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.salvaged == 4 && damage.deadLettered == 0 && damage.lost == 1)
        #expect(queue.books.drops.byReason == ["damaged": 1] && queue.books.isBalanced)
        queue.close()
    }

    @Test("of two copies of one file nothing is taken over, nor counted, twice (I2, I12)")
    func copiesAreTakenOnce() async throws {
        let bytes = try make(20)
        for number in 1...2 { try Data(bytes).write(to: URL(fileURLWithPath: file + ".damaged-\(number)")) }
        try FileManager.default.removeItem(atPath: file)
        let queue = try open()
        await queue.salvage()
        let books = queue.books
        #expect(books.depth == 20 && books.letters == 1 && books.adopted == 21 && books.deadLettered == 1)
        #expect(books.discarded == 0 && books.duplicates == 0 && books.drops.byReason.isEmpty && books.isBalanced)
        queue.close()
    }

    @Test("books from before the last event: no sequence is given again, and what they say of a loss is not believed (I7, I12)")
    func oldBooksAreNotBelieved() async throws {
        var queue = try open("first")
        try queue.append((1...150).map { PreparedEvent.sample($0, fill: 300) })
        queue.close()
        let before = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        queue = try open("first")
        let batch = try queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        try queue.append((151...160).map { PreparedEvent.sample($0, fill: 300) })
        queue.close()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let books = try pageOfBooks(bytes) * Self.pageBytes
        bytes.replaceSubrange(books..<books + Self.pageBytes, with: before[books..<books + Self.pageBytes])
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        queue = try open("second")
        await queue.salvage()
        #expect(queue.installID != Self.install, "or a sequence would be given twice")
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.lost == nil && damage.salvaged == 60)
        #expect(queue.books.drops.byReason.isEmpty && queue.books.isBalanced)
        queue.close()
    }

    @Test("pages that stand in the places of others: the process goes on, and what is lost is told (I1, I11)", arguments: [300, 1_500])
    func misplacedPagesAreDamage(fill: Int) async throws {
        let (_, now, waiting) = try await makeTwice(fill: fill)
        // Leaves of a table.
        let leaves = (1..<now.count / Self.pageBytes).filter { now[$0 * Self.pageBytes] == 0x0D }
        for (number, leaf) in leaves.enumerated() {
            let other = leaves[(number + leaves.count / 2) % leaves.count]
            var bytes = now
            bytes.replaceSubrange(
                other * Self.pageBytes..<(other + 1) * Self.pageBytes, with: now[leaf * Self.pageBytes..<(leaf + 1) * Self.pageBytes])
            let (missing, told, isKnown) = try await deliver(bytes, waiting)
            #expect(missing == told || !isKnown, "page \(leaf) in the place of \(other): \(missing) \(told)")
        }
    }

    @Test("the books' page in the place of the session's tells of no session: no `$AppEnd` is made up (I3)")
    func misplacedBooksAreNoSession() async throws {
        let queue = try open("first")
        try queue.append([Self.event(1)])
        let session = try await queue.database.read {
            try Int.fetchOne($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name = 'session'")
        }
        queue.close()
        let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        try copyPage(try pageOfBooks(bytes), over: try #require(session) - 1, in: bytes)
        let test = try TestClient(directory: directory)
        await test.client.queue.salvage()
        #expect(await test.client.flush().failure == nil)
        #expect(test.transport.batches.flatMap(\.names).sorted() == ["$QueueDamaged", "e"])
        #expect(try test.client.queue.openSession() == nil)
        await test.client.shutdown(within: .zero)
    }

    /// Puts a page over another one.
    private func copyPage(_ page: Int, over other: Int, in bytes: [UInt8]) throws {
        var bytes = bytes
        bytes.replaceSubrange(
            other * Self.pageBytes..<(other + 1) * Self.pageBytes, with: bytes[page * Self.pageBytes..<(page + 1) * Self.pageBytes])
        try Data(bytes).write(to: URL(fileURLWithPath: file))
    }

    private func page(of text: String, in bytes: [UInt8]) throws -> Int {
        try #require(Data(bytes).range(of: Data(text.utf8))).lowerBound / Self.pageBytes
    }

    @Test("events that are too old are removed once each, though the oldest stand where they are not looked for (I12, I15)")
    func misplacedPagesEndNoQuota() async throws {
        var queue = try open("first")
        try queue.append((1...150).map { PreparedEvent.sample($0, fill: 300) })
        queue.close()
        let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let pages = try [1, 120].map { try page(of: PreparedEvent.sample($0, fill: 300).id.description, in: bytes) }
        try copyPage(pages[1], over: pages[0], in: bytes)
        var quota = QueueQuota()
        quota.maximumAge = .seconds(1)
        queue = try EventQueue(
            directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: "second"), quota: quota)
        // Every event is too old by then.
        while (try? queue.discardAged(now: 1_000_000_000)) != false || queue.unsalvagedFiles > 0 { await queue.salvage() }
        #expect(queue.books.isBalanced && queue.books.depth == 0)
        #expect(queue.books.drops.byReason.values.reduce(0, +) == 150, "\(queue.books.drops)")
        queue.close()
    }

    @Test("reading dead letters on and on comes to an end, though a page of them stands where others should (I15)")
    func misplacedPagesEndNoExport() throws {
        let queue = try open("first")
        var letters = (1...60).map { PreparedEvent.sample($0, fill: 300) }
        for index in letters.indices { letters[index].problem = EventProblem(.nameTooLong, detail: "too long") }
        try queue.append(letters)
        queue.close()
        let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let pages = try [20, 60].map { try page(of: PreparedEvent.sample($0, fill: 300).id.description, in: bytes) }
        try copyPage(pages[0], over: pages[1], in: bytes)
        let reader = try #require(try QueueReader(directory: QueueDirectory(path: path)))
        #expect(throws: StorageFailure.self) {
            var last: Int64 = 0
            for _ in 1...60 {
                guard let end = try reader.deadLetters(after: last, limit: 7).last else { return }
                last = end.number
            }
        }
    }
}
