import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What a damaged spool has lost is told: by whom, when, and once.
extension SpoolTests {
    @Test("a flush waits until the event that tells of a spool's damage is stored, and delivers it (R13, I11)")
    func reportOfASpoolIsDelivered() async throws {
        let main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        try FileManager.default.moveItem(atPath: place.databasePath, toPath: place.databasePath + ".damaged-1")
        let mayStore = Gate()
        main.transport.script { [client = main.client] batch in
            if batch.names == ["spooled"] {
                client.writer.whenStored { mayStore.blockUntilOpen() }
                await mayStore.waitForArrivals(1)
            }
            return .success(batch.receipt())
        }
        async let report = main.client.flush()
        while main.client.writer.intake.withLock({ $0.uncommitted.events == 0 }) { await Task.yield() }
        // Time for a flush that would not wait.
        for _ in 0..<1_000 { await Task.yield() }
        mayStore.open()
        #expect(await report == FlushReport(stored: 2, duplicates: 0, deadLettered: 0, remaining: 0))
        #expect(main.transport.batches.map(\.names) == [["spooled"], [QueueDamage.eventName]])
        await main.client.shutdown(within: .zero)
    }

    enum Refusal: CaseIterable { case shutdown, optOut, quota, none }

    @Test(
        "what a damaged spool has lost is told by the main queue's next start, if its client takes no event then; that counts nothing (I11, I12)",
        arguments: Refusal.allCases)
    func damageIsToldLater(refusal: Refusal) async throws {
        var main = try TestClient(directory: directory) { if refusal == .quota { $0.quota.maximumEvents = 1 } }
        if refusal == .quota { try await main.client.trackDurably(String(repeating: "n", count: 201)) }
        let spool = try open()
        let place = spool.client.queue.directory
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        try Data("noise".utf8).write(to: URL(fileURLWithPath: place.databasePath))
        if refusal == .optOut { try main.client.optOut() }
        if refusal == .shutdown {
            await main.client.shutdown(within: .seconds(10))
        } else {
            for _ in 1...2 { _ = await main.client.flush() }
        }
        #expect(spools.isEmpty)
        #expect(main.transport.batches.flatMap(\.names) == (refusal == .none ? [QueueDamage.eventName] : []))
        #expect(main.client.queue.books.drops.byReason == [:], "the user's events alone are counted")
        if refusal == .quota { #expect(try main.client.deadLetters.purge([1]) == 1) }
        if refusal == .optOut { try main.client.optIn() }
        for isFirst in [true, false] {
            await main.client.shutdown(within: .zero)
            main = try TestClient(directory: directory)
            _ = await main.client.flush()
            let isTold = isFirst && refusal != .none
            #expect(main.transport.batches.flatMap(\.names) == (isTold ? [QueueDamage.eventName] : []))
        }
        await main.client.shutdown(within: .zero)
    }

    @Test(
        "what is still to be told of a spool outlives damage that its adopter meets while it runs, can that be read or not (I11, I12)",
        arguments: [true, false])
    func untoldDamageOutlivesTheNext(isReadable: Bool) async throws {
        var main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        try Data("noise".utf8).write(to: URL(fileURLWithPath: place.databasePath))
        try main.client.optOut()
        for _ in 1...2 { _ = await main.client.flush() }
        #expect(spools.isEmpty)
        let queue = main.client.queue
        let database = try queue.database
        if !isReadable {
            for suffix in ["", "-wal"] {
                try Data(count: 9_000).write(to: URL(fileURLWithPath: queue.directory.databasePath + suffix), options: [])
            }
        }
        #expect(try queue.takesOver(from: database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        _ = await main.client.flush()
        try main.client.optIn()
        await main.client.shutdown(within: .zero)
        main = try open()
        _ = await main.client.flush()
        let told = main.transport.batches.flatMap(\.scanned.events).map { String(decoding: $0.properties, as: UTF8.self) }
        #expect(told.count == 2 && told.filter { $0.contains(#""$lost":"#) }.count == 1, "\(told)")
        await main.client.shutdown(within: .zero)
    }

    @Test("so does what a damaged file was still to tell of an older one, though a purge forgets what it held (I11, I12)")
    func untoldDamageOutlivesAPurge() async throws {
        var main = try open()
        try await main.track(0..<10)
        try main.client.optOut()
        let queue = main.client.queue
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        _ = await main.client.flush()
        await main.client.shutdown(within: .zero)
        let file = queue.directory.databasePath
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-2")
        let next = try EventQueue(
            directory: queue.directory, durability: .process, newInstallID: .derived(name: "install", key: "next"))
        try next.purge()
        next.close()
        main = try open()
        try main.client.optIn()
        await main.client.shutdown(within: .zero)
        main = try open()
        for _ in 1...2 { _ = await main.client.flush() }
        #expect(main.transport.batches.flatMap(\.names) == [QueueDamage.eventName, QueueDamage.eventName])
        await main.client.shutdown(within: .zero)
    }

    @Test("what is to be told of a spool is not taken over into a file that is gone: the next client of the main queue tells (I11, I12)")
    func untoldDamageNeedsAFile() async throws {
        var main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        try Data("noise".utf8).write(to: URL(fileURLWithPath: place.databasePath))
        for suffix in ["", "-wal"] { try FileManager.default.removeItem(atPath: main.client.queue.directory.databasePath + suffix) }
        for _ in 1...2 {
            #expect(await main.client.flush().failure == .queue(StorageFailure(DatabaseError(resultCode: .SQLITE_READONLY_DBMOVED))))
        }
        #expect(spools.count == 1)
        await main.client.shutdown(within: .zero)
        main = try open()
        for _ in 1...2 { _ = await main.client.flush() }
        #expect(main.transport.batches.flatMap(\.names) == [QueueDamage.eventName] && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("a spool with damage of which the server was not told stays, though nothing waits in it (I11)")
    func untoldDamageKeepsTheSpool() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("spooled")
        let queue = spool.client.queue
        // Of which nothing is lost, and no drop is to be told.
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        try spool.client.optOut()
        for _ in 1...2 { _ = await spool.client.flush() }
        #expect(spool.transport.batches.flatMap(\.names) == ["spooled"] && queue.books.drops.byReason.isEmpty)
        await spool.client.shutdown(within: .zero)
        #expect(spools.count == 1)
        try main.client.optIn()
        for _ in 1...2 { _ = await main.client.flush() }
        #expect(spools.isEmpty && main.transport.batches.flatMap(\.names).contains(QueueDamage.eventName))
        await main.client.shutdown(within: .zero)
    }

    @Test(
        "a spool that is damaged twice: what the first damage cost is not forgotten with the second (I11, I12)",
        arguments: ["dropped", "damaged_files"])
    func secondDamageForgetsNothing(table: String) async throws {
        let main = try open()
        let lost = try await makeSpoolWithLosses()
        main.transport.script { _ in .failure(.cut) }
        _ = await main.client.flush()
        let place = try #require(spools.first)
        let page = try await DatabaseQueue(path: place.databasePath).read { db in
            try #require(try Int.fetchOne(db, sql: "SELECT rootpage FROM sqlite_schema WHERE name = ?", arguments: [table]))
        }
        try DamagedPage.make(in: place.databasePath, page: page - 1)
        try Data().write(to: URL(fileURLWithPath: place.databasePath + "-wal"))
        main.transport.script { .success($0.receipt()) }
        for _ in 1...2 { _ = await main.client.flush() }
        let told = main.transport.batches.flatMap(\.scanned.events).filter { $0.name == Array(QueueDamage.eventName.utf8)[...] }
            .map { String(decoding: $0.properties, as: UTF8.self) }
        if table == "dropped" {
            #expect(told.contains { $0.contains(#""$lost":\#(lost)"#) }, "\(told)")
            #expect(told.contains { !$0.contains(#""$lost":"#) }, "nobody knows what else: \(told)")
        } else {
            #expect(main.client.queue.books.drops.byReason["damaged"] == lost)
        }
        await main.client.shutdown(within: .zero)
    }

    @Test("what a damaged spool has lost is told by the client that adopts it, in its books and to the server (I11, I12)")
    func lossesOfASpoolAreTold() async throws {
        let main = try open()
        let lost = try await makeSpoolWithLosses()
        _ = await main.client.flush()
        let status = await main.client.status()
        #expect(status.dropped["damaged"] == lost && status.isBalanced && status.deadLettered == 1)
        _ = await main.client.flush()
        #expect(main.transport.batches.flatMap(\.names).filter { $0 == "$QueueDamaged" }.count == 1)
        #expect(QueueDirectory(path: directory.path + "/queue").filesSetAsideBeside.count == 1)
        await main.client.shutdown(within: .zero)
    }

    @Test("what a damaged spool has lost is counted once, when it goes, also if its dead letters can be moved only later (I12)")
    func lossesAreToldThoughLettersStay() async throws {
        let main = try open()
        let lost = try await makeSpoolWithLosses()
        let database = try main.client.queue.database
        try await database.writeWithoutTransaction {
            try $0.execute(sql: "CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.dead_letters BEGIN SELECT RAISE(ABORT, 'no'); END")
        }
        #expect(await main.client.flush().failure != nil)
        #expect(spools.count == 1)
        try await database.writeWithoutTransaction { try $0.execute(sql: "DROP TRIGGER refuse") }
        #expect(await main.client.flush().failure == nil)
        let status = await main.client.status()
        #expect(status.dropped["damaged"] == lost && status.isBalanced && status.deadLettered == 1 && spools.isEmpty)
        _ = await main.client.flush()
        #expect(main.transport.batches.flatMap(\.names).filter { $0 == "$QueueDamaged" }.count == 1)
        await main.client.shutdown(within: .zero)
    }

    @Test("dead letters that a damaged spool has lost are told as such; no event is missing for them (I11, I12)")
    func lostLettersOfASpoolAreTold() async throws {
        let main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        try await spool.client.trackDurably("spooled")
        try await spool.client.trackDurably(String(repeating: "n", count: 201))
        _ = await spool.client.shutdown(within: .zero)
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: place.databasePath)))
        let letter = try #require(bytes.firstRange(of: Array("name_too_long".utf8))).lowerBound / 4_096 * 4_096
        for index in letter + 1..<letter + 64 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(fileURLWithPath: place.databasePath))
        try Data().write(to: URL(fileURLWithPath: place.databasePath + "-wal"))
        _ = await main.client.flush()
        let books = main.client.queue.books
        #expect(books.drops.byReason == ["damaged_dead_letter": 1] && books.adopted == 0 && books.discarded == 0 && books.isBalanced)
        await main.client.shutdown(within: .zero)
    }

    /// Leaves a spool with a dead letter and a page of events that nobody can read.
    ///
    /// - Returns: How many events are lost.
    private func makeSpoolWithLosses() async throws -> Int64 {
        let spool = try open()
        let place = spool.client.queue.directory
        for number in 1...40 {
            try await spool.client.trackDurably("spooled \(number)", properties: ["fill": .string(String(repeating: "x", count: 300))])
        }
        try await spool.client.trackDurably(String(repeating: "n", count: 201))
        _ = await spool.client.shutdown(within: .zero)
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: place.databasePath)))
        let leaf = try #require((1..<bytes.count / 4_096).first { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 }) * 4_096
        for index in leaf + 1..<leaf + 200 { bytes[index] = 0xFF }
        let lost = try Data(contentsOf: URL(fileURLWithPath: place.databasePath))[leaf + 4]
        try Data(bytes).write(to: URL(fileURLWithPath: place.databasePath))
        try Data().write(to: URL(fileURLWithPath: place.databasePath + "-wal"))
        return Int64(lost)
    }
}
