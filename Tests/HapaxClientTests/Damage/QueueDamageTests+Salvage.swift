import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What is taken over from a damaged file, and what the books say meanwhile.
extension QueueDamageTests {
    @Test("a page of noise in the middle: the rows before and behind it are salvaged as events of their own install")
    func salvagedRowsKeepTheirInstall() async throws {
        try makeDamaged()
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

    @Test("the new file takes events before the old one is salvaged; what is salvaged goes first, in its order (I11, R9)")
    func storingDoesNotWaitForSalvage() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        let before = queue.books
        try queue.append([Self.event(62)][...])
        #expect(queue.books.depth == 1 && queue.books.discarded == 60)
        #expect(queue.books.drops.byReason == [:], "as long as nobody knows what is lost")
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
            #expect(
                queue.books.discarded == 60 - Int64(damage.salvaged) && queue.books.drops.byReason["damaged"] ?? 0 == queue.books.discarded)
        }
        queue.close()
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
            #expect(lost > 0 && queue.books.drops.byReason["damaged"] == Int64(lost) && queue.books.discarded == Int64(lost))
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

    enum Surroundings: CaseIterable {
        /// Half of the rows lie behind those of a file that was damaged before.
        case secondDamage
        /// The page is damaged, too, that says which number was given last.
        case lostNumbers
        case nothing
    }

    @Test(
        "damaged pages cost the events that they hold and no other, the last one and several at once included (I11, D17)",
        arguments: [[0], [-1], [0, -1], [10, -1], [10, 20, -1], [9, 10, 11, -2, -1]], Surroundings.allCases)
    func pagesCostWhatTheyHold(pages: [Int], surroundings: Surroundings) async throws {
        _ = try make(300)
        let sequencePage = try await {
            let queue = try open("first")
            defer { queue.close() }
            return try await queue.database.read {
                try #require(try Int.fetchOne($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_sequence'"))
            }
        }()
        if surroundings == .secondDamage {
            // A trillion numbers farther.
            let queue = try open("first")
            try queue.transaction { db, books in
                try db.execute(sql: "UPDATE queue SET row = row + (1 << 40) WHERE row > 150")
                try db.execute(sql: "UPDATE sqlite_sequence SET seq = seq + (1 << 40) WHERE name = 'queue'")
            }
            try await queue.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
            queue.close()
        }
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let text = Array(#""event":"e""#.utf8)
        let leaves = (1..<bytes.count / 4_096).filter { page in
            bytes[page * 4_096] == 0x0D && bytes[page * 4_096 + 4] > 2
                && bytes[page * 4_096..<(page + 1) * 4_096].firstRange(of: text) != nil
        }
        var lost = 0
        for page in pages {
            let leaf = page < 0 ? leaves[leaves.count + page] : leaves[page]
            lost += Int(bytes[leaf * 4_096 + 4])
            for index in leaf * 4_096..<leaf * 4_096 + 64 { bytes[index] = 0xEE }
        }
        if surroundings == .lostNumbers {
            for index in (sequencePage - 1) * 4_096..<sequencePage * 4_096 { bytes[index] = 0 }
        }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.lost == lost && damage.salvaged == 300 - lost)
        queue.close()
    }

    @Test("a row whose number changed to one that another event has by now is taken over under a new one (I1)")
    func takenNumberCostsNoEvent() async throws {
        _ = try make(60)
        let first = EventQueue.rowsPerDamagedFile + 1
        try await DatabaseQueue(path: file).write {
            try $0.execute(sql: "UPDATE queue SET row = ? WHERE row = 60", arguments: [first])
        }
        try damageAPage()
        let queue = try open()
        var later = Self.event(100)
        later.sequence = 1
        try queue.append([later][...])
        #expect(try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0).events.map(\.row) == [first], "control")
        let delivered = try await drain(queue)
        let damage = try #require(queue.latestDamage)
        #expect(delivered[Data(Self.event(60).id.bytes)] == Self.event(60).bytes && delivered.count == damage.salvaged + 1)
        #expect(damage.salvaged + (damage.lost ?? 0) == 60 && queue.books.isBalanced)
        queue.close()
    }

    @Test(
        "a row of a damaged file whose own bytes have changed is a dead letter, in the books as well, and not told as lost (I3, I12)",
        arguments: [false, true])
    func changedRowsAreNotLost(isRunning: Bool) async throws {
        _ = try make(60)
        try await DatabaseQueue(path: file).write {
            try $0.execute(sql: "UPDATE queue SET payload = zeroblob(length(payload)) WHERE row = 50")
        }
        if !isRunning { try damageAPage() }
        let queue = try open()
        if isRunning {
            try spoil(queue)
            try queue.append([Self.event(62)][...])
        }
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        let letters = try queue.deadLetters(after: 0, limit: 9).filter { $0.reason == "damaged" }
        #expect(letters.map(\.eventID) == [Self.event(50).id] && letters.map(\.origin) == [.install(Self.install)])
        #expect(damage.isSalvaged && damage.lost == 59 - damage.salvaged && damage.salvaged > 40)
        #expect(queue.books.drops.byReason["damaged"] == damage.lost.map(Int64.init) && queue.books.isBalanced)
        #expect(queue.books.deadLettered == 2 && queue.books.letters == 2)
        queue.close()
    }
}
