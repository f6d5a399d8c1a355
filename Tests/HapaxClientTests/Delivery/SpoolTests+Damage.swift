import Foundation
import GRDB
import HapaxModel
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
}
