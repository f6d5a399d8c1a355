import Foundation
import GRDB
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxClient

/// Dead letters in damaged files.
extension QueueDamageTests {
    @Test("a dead letter that two damaged files hold is not told as lost with the second (I12)")
    func lettersInTwoFilesAreNotLost() async throws {
        try makeDamaged()
        var queue = try open("second")
        await queue.salvage()
        #expect(queue.books.letters == 1)
        // As after a crash before the salvage had ended, and damage of the file that took over.
        try await queue.database.write { try $0.execute(sql: "UPDATE damaged_files SET is_salvaged = 0") }
        queue.close()
        try FileManager.default.removeItem(atPath: file + ".damaged-1.salvaged")
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-2")
        queue = try open("third")
        await queue.salvage()
        #expect(queue.latestDamage?.salvagedDeadLetters == 1 && queue.latestDamage?.lostDeadLetters == 0)
        #expect(queue.books.letters == 1 && queue.books.drops.byReason["damaged_dead_letter"] == nil && queue.books.isBalanced)
        queue.close()
    }

    @Test(
        "letters that are listed and not found by their number are met as damage, and nobody looks for them for ever (I11, I15)",
        arguments: [true, false])
    func lettersThatAreNotFoundAreDamage(isRetry: Bool) async throws {
        func work(_ queue: EventQueue, _ numbers: [Int64]) throws -> Int {
            isRetry ? try queue.retryDeadLetters(numbers).retried.count : try queue.purgeDeadLetters(numbers)
        }
        let queue = try makeLettersThatAreNotFound { $0 ^ 0x08 }
        let listed = try queue.reading { try Int64.fetchAll($0, sql: "SELECT row FROM dead_letters") }
        #expect(listed.count == 400)
        // All of them are purged at once, without a look for each.
        #expect(throws: (any Error).self) { try work(queue, isRetry ? listed : listed.dropLast()) }
        await queue.salvage()
        #expect(try work(queue, queue.reading { try Int64.fetchAll($0, sql: "SELECT row FROM dead_letters") }) == 400)
        #expect(queue.books.letters == 0 && queue.books.drops.byReason["damaged_dead_letter"] == nil && queue.books.isBalanced)
        queue.close()
    }

    @Test("purging all letters looks for none by its number: they are gone, and the file is whole afterwards (I11)")
    func lettersThatAreNotFoundArePurgedTogether() async throws {
        let queue = try makeLettersThatAreNotFound { $0 ^ 0x08 }
        #expect(try queue.purgeDeadLetters(Array(1...1_000)) == 400)
        #expect(queue.books.letters == 0 && queue.books.letterBytes == 0 && queue.books.isBalanced)
        #expect(try queue.deadLetterCount() == 0 && asides() == [])
        #expect(try queue.reading { try String.fetchAll($0, sql: "PRAGMA integrity_check") } == ["ok"])
        queue.close()
    }

    @Test("letters of a file that a running client set aside are not counted once more when they are purged unread (I12)")
    func purgedLettersAreCountedOnce() async throws {
        let queue = try open()
        var bad = Self.event(1)
        bad.problem = EventProblem(.nameTooLong, detail: "too long")
        try queue.append([bad, Self.event(2)][...])
        #expect(queue.books.deadLettered == 1)
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        try queue.purge()
        await queue.salvage()
        #expect(queue.books.deadLettered == 1 && queue.books.letters == 0 && queue.books.depth == 0 && queue.books.isBalanced)
        #expect(queue.books.drops.byReason == ["purged": 1])
        queue.close()
    }

    @Test("a letter that is found as the oldest and not by its number, when the quota drops it, is damage as well (I11, I12)")
    func oldestLetterThatIsNotFoundIsDamage() async throws {
        var quota = QueueQuota()
        (quota.maximumEvents, quota.policy) = (400, .dropOldest)
        let queue = try makeLettersThatAreNotFound(quota) { _ in 0 }
        try queue.append([Self.event(401)][...])
        #expect(asides() == ["queue.sqlite.damaged-1"])
        await queue.salvage()
        #expect(queue.books.letters == 400 && queue.books.depth == 1 && queue.books.isBalanced)
        try queue.append([Self.event(402)][...])
        #expect(queue.books.letters == 398 && queue.books.depth == 2 && queue.books.isBalanced)
        #expect(queue.books.drops.byReason == ["quota_dead_letter": 2])
        queue.close()
    }

    @Test("an event that a salvage finds with changed bytes is told: by the flush behind it, once, and to the server (I11, I12)")
    func changedEventIsReported() async throws {
        let first = try TestClient(directory: directory)
        try await first.track(0..<20)
        try await first.client.queue.database.write { try $0.execute(sql: "UPDATE queue SET check_sum = 1 - check_sum WHERE row = 3") }
        await first.client.shutdown(within: .zero)
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let test = try TestClient(directory: directory)
        await test.client.queue.salvage()
        #expect(await test.client.flush() == FlushReport(stored: 20, duplicates: 0, deadLettered: 1, remaining: 0))
        let told = try #require(test.transport.batches.flatMap(\.scanned.events).last)
        #expect(String(decoding: told.properties, as: UTF8.self).contains(#""$dead_lettered":1"#))
        #expect(await test.client.status().damage?.deadLettered == 1)
        #expect(await test.client.flush().deadLettered == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "who is not known any more, since the page that said so is damaged, is told, whenever that is met (I11, R56)",
        arguments: [true, false])
    func lostIdentityIsTold(isMetAtOpening: Bool) async throws {
        for page in ["identity", "session"] {
            let directory = TemporaryDirectory()
            let file = directory.path + "/queue/queue.sqlite"
            let first = try TestClient(directory: directory)
            try first.client.login("ann")
            try await first.track(0..<20)
            let root = try await first.client.queue.database.read {
                try Int.fetchOne($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name = ?", arguments: [page])
            }
            await first.client.shutdown(within: .zero)
            var bytes = try Data(contentsOf: URL(fileURLWithPath: file))
            let start = (try #require(root) - 1) * 4_096
            bytes.replaceSubrange(start..<start + 4_096, with: Data(repeating: 0xFF, count: 4_096))
            try bytes.write(to: URL(fileURLWithPath: file + (isMetAtOpening ? ".damaged-1" : "")))
            if isMetAtOpening { try FileManager.default.removeItem(atPath: file) }
            let log = RecordedLog()
            let test = try TestClient(directory: directory) { $0.logger = Logger(label: "test") { _ in log } }
            let isLost = page == "identity"
            #expect(log.lines.contains { $0.contains("Whom events concern cannot be read") } == isLost)
            #expect(test.client.hasLostIdentity == isLost && (test.client.distinctID == "ann") == !isLost)
            #expect(await test.client.flush().stored > 20)
            await test.client.shutdown(within: .zero)
        }
    }

    @Test("an older file than the one that says who it was is no reason to tell (R56)")
    func identityOfAnyFileIsEnough() async throws {
        let first = try TestClient(directory: directory)
        try first.client.login("ann")
        await first.client.shutdown(within: .zero)
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-2")
        try Data(repeating: 0xEE, count: 20_000).write(to: URL(fileURLWithPath: file + ".damaged-1"))
        let test = try TestClient(directory: directory)
        #expect(test.client.distinctID == "ann" && !test.client.hasLostIdentity)
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "a file that cannot be opened at the start may say who it was: that is told, and believed once it can be (R56)",
        arguments: [nil, "bob"])
    func identityIsFoundLater(login: String?) async throws {
        let first = try TestClient(directory: directory)
        try first.client.resetAnonymousID()
        try first.client.login("ann")
        let anonymous = first.client.anonymousID
        await first.client.shutdown(within: .zero)
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let disk = FaultyDisk(file + ".damaged-1")
        disk.cutOff(at: 0, [.open])
        let test = try TestClient(directory: directory)
        #expect(test.client.hasLostIdentity && test.client.loginID == nil && test.client.anonymousID != anonymous)
        if let login { try test.client.login(login) }
        disk.fail(nil)
        _ = await test.client.flush()
        #expect(test.client.loginID == login ?? "ann" && (test.client.anonymousID == anonymous) == (login == nil))
        await test.client.shutdown(within: .zero)
        let next = try TestClient(directory: directory)
        #expect(next.client.loginID == login ?? "ann" && !next.client.hasLostIdentity)
        await next.client.shutdown(within: .zero)
    }

    /// - Parameter change: Of the first key of an inner page: rows behind it are looked for on the page behind theirs.
    private func makeLettersThatAreNotFound(_ quota: QueueQuota = .unlimited, change: (UInt8) -> UInt8) throws -> EventQueue {
        let queue = try open(quota: quota)
        try queue.append((1...400).map { Self.event($0) }[...])
        let batch = try queue.nextBatch(limit: 400, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .deadLetter(reason: "r", detail: "d")) }, time: 0)
        let root = try queue.reading { db in
            try #require(try Int.fetchOne(db, sql: "SELECT rootpage FROM sqlite_schema WHERE name = 'dead_letters'"))
        }
        try queue.readPagesAnew()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let page = (root - 1) * 4_096
        #expect(bytes[page] == 0x05, "control: an inner page")
        let cell = page + Int(bytes[page + 12]) << 8 + Int(bytes[page + 13])
        bytes[cell + 4] = change(bytes[cell + 4])
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        return queue
    }
}
