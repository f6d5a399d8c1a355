import Foundation
import GRDB
import HapaxModel
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxClient

/// Spools that are damaged, or of which only a part is left.
extension SpoolTests {
    @Test("a queue is not removed as empty while a damaged file may hold events (I1)")
    func unsalvagedQueueIsNotEmpty() async throws {
        let place = QueueDirectory(path: directory.path + "/alone")
        func open() throws -> EventQueue {
            try EventQueue(directory: place, durability: .process, newInstallID: .derived(name: "i", key: "a"), isSpool: true)
        }
        try open().close()
        try Data("noise".utf8).write(to: URL(fileURLWithPath: place.databasePath))
        let queue = try open()
        #expect(!queue.removeIfEmpty())
        await queue.salvage()
        // Without its mark it would be salvaged again by the next who finds it.
        let mark = place.databasePath + ".damaged-1.salvaged"
        try FileManager.default.removeItem(atPath: mark)
        try FileManager.default.createSymbolicLink(atPath: mark, withDestinationPath: directory.path + "/nowhere/mark")
        #expect(!queue.removeIfEmpty(), "it cannot be marked")
        try FileManager.default.removeItem(atPath: mark)
        #expect(queue.removeIfEmpty { _ in } && place.isSalvaged("queue.sqlite.damaged-1"))
        #expect(place.filesSetAside.count == 1, "never deleted (D17)")
    }

    @Test("a spool whose damage is met only when it would be removed as empty is kept and delivered (I1, I11)", arguments: [true, false])
    func damageMetAtRemovalKeepsTheSpool(isOwners: Bool) async throws {
        let transport = ScriptedTransport { _ in .failure(.cut) }
        let main = try TestClient(directory: directory, transport: transport)
        let spool = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
        let place = spool.client.queue.directory
        for number in 1...30 { spool.client.track("spooled \(number)") }
        try await spool.client.writer.barrier()
        if !isOwners { await spool.client.shutdown(within: .zero) }
        // The index that says whether there are rows: no delivery reads it.
        let index = try await DatabaseQueue(path: place.databasePath).read { db in
            try #require(
                try Int.fetchOne(db, sql: "SELECT rootpage FROM sqlite_schema WHERE name LIKE 'sqlite_autoindex_queue%'"))
        }
        if isOwners { try spool.client.queue.readPagesAnew() }
        try DamagedPage.make(in: place.databasePath, page: index - 1)
        if isOwners {
            let report = await spool.client.shutdown(within: .zero)
            #expect(report.stored == 30 || report.mayLeaveMore, "\(report)")
        } else {
            // As of a server that is down.
            #expect(await main.client.flush().failure != nil)
        }
        #expect(place.filesSetAside.count == 1, "control")
        transport.script { .success($0.receipt()) }
        for _ in 1...2 { _ = await main.client.flush() }
        let names = Set(transport.batches.dropFirst(isOwners ? 0 : 1).flatMap(\.names))
        #expect(names.isSuperset(of: (1...30).map { "spooled \($0)" }), "\(names.count)")
        #expect(!FileManager.default.fileExists(atPath: place.databasePath), "delivered, and gone")
        await main.client.shutdown(within: .zero)
    }

    @Test(
        "whichever page of a spool is damaged, and whenever that is met: each event arrives, is a dead letter, or is counted (I1, I11, I12)",
        arguments: [true, false], [true, false])
    func everyPageOfASpoolIsAccountedFor(isOwners: Bool, isServerUp: Bool) async throws {
        func makeSpool(in directory: TemporaryDirectory) async throws -> (main: TestClient, spool: TestClient) {
            let main = try TestClient(directory: directory)
            let spool = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
            for number in 1...30 {
                spool.client.track("spooled \(number)", properties: ["fill": .string(String(repeating: "x", count: 500))])
            }
            spool.client.track(String(repeating: "n", count: 1_000))
            try await spool.client.writer.barrier()
            try spool.client.queue.readPagesAnew()
            return (main, spool)
        }
        var page = 0
        var pages = 1
        while page < pages {
            let directory = TemporaryDirectory()
            let (main, spool) = try await makeSpool(in: directory)
            let place = spool.client.queue.directory
            if !isOwners { await spool.client.shutdown(within: .zero) }
            pages = try DamagedPage.pages(of: place.databasePath)
            try DamagedPage.make(in: place.databasePath, page: page)
            if isOwners {
                // Its own uploads fail, too, and meet what they read.
                spool.transport.script { _ in .failure(.cut) }
                if isServerUp { _ = await spool.client.flush() }
                await spool.client.shutdown(within: .zero)
            }
            let sent = Locked<Set<String>>([])
            if !isServerUp {
                main.transport.script { _ in .failure(.cut) }
                _ = await main.client.flush()
            }
            main.transport.script { batch in
                sent.withLock { $0.formUnion(batch.names.filter { $0.hasPrefix("spooled") }) }
                return .success(batch.receipt())
            }
            for _ in 1...4 { _ = await main.client.flush() }
            let books = main.client.queue.books
            let dropped = books.drops.byReason
            let letters = try main.client.deadLetters.list()
            let buried = letters.filter { $0.reason == DamagedRows.reason }.count
            let lost = dropped["damaged"] ?? 0
            let arrived = sent.withLock { $0.count }
            #expect(arrived + buried + Int(lost) >= 30, "page \(page): \(arrived) sent, \(buried) buried, \(dropped)")
            #expect(letters.count + Int(dropped["damaged_dead_letter"] ?? 0) >= 1, "page \(page): the letter, \(dropped)")
            #expect(books.isBalanced)
            await main.client.shutdown(within: .zero)
            page += 1
        }
        #expect(pages > 10)
    }

    @Test("a damaged spool is salvaged and delivered under its ids; only its damaged file stays, and is looked at once (I11)")
    func damagedSpoolIsSalvaged() async throws {
        let main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        for number in 1...30 {
            try await spool.client.trackDurably("spooled", id: .derived(name: "spooled", key: "\(number)"))
        }
        _ = await spool.client.shutdown(within: .zero)
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: place.databasePath)))
        // The free list's head in the header: SQLite finds it wrong, and every row can be read.
        for index in 32..<40 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(fileURLWithPath: place.databasePath))
        try Data().write(to: URL(fileURLWithPath: place.databasePath + "-wal"))
        let report = await main.client.flush()
        #expect(report.stored == 31 && report.failure == nil)
        let sent = main.transport.batches.dropLast().flatMap(\.ids)
        #expect(Set(sent) == Set((1...30).map { EventID.derived(name: "spooled", key: "\($0)") }))
        #expect(place.filesSetAside.count == 1 && spools.isEmpty)
        #expect(main.transport.batches.last?.names == ["$QueueDamaged"])
        #expect(await main.client.flush().stored == 0)
        #expect(FileManager.default.fileExists(atPath: place.path) && !FileManager.default.fileExists(atPath: place.databasePath))
        await main.client.shutdown(within: .zero)
    }

    @Test("a spool whose owner was killed between setting its file aside and making a new one is a spool all the same (I1)")
    func spoolWithoutAFileIsFound() async throws {
        let main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        let id = try await spool.client.trackDurably("spooled")
        _ = await spool.client.shutdown(within: .zero)
        try FileManager.default.moveItem(atPath: place.databasePath, toPath: place.databasePath + ".damaged-1")
        #expect(spools.count == 1)
        _ = await main.client.flush()
        #expect(main.transport.batches.first?.ids == [id] && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

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

    @Test("a spool of which only the log is left, beside a file that was salvaged, is a spool all the same (I1)")
    func spoolWithoutItsDatabaseIsFound() async throws {
        let main = try open()
        let spool = try open()
        let place = spool.client.queue.directory
        let id = try await spool.client.trackDurably("spooled")
        let log = try Data(contentsOf: URL(fileURLWithPath: place.databasePath + "-wal"))
        _ = await spool.client.shutdown(within: .zero)
        try FileManager.default.removeItem(atPath: place.databasePath)
        for (suffix, bytes) in [("-wal", log), (".damaged-1", Data("noise".utf8)), (".damaged-1.salvaged", Data())] {
            try bytes.write(to: URL(fileURLWithPath: place.databasePath + suffix))
        }
        #expect(spools.count == 1)
        _ = await main.client.flush()
        #expect(main.transport.batches.flatMap(\.ids).contains(id) && spools.isEmpty)
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
}
