import Foundation
import GRDB
import HapaxModel
import TestSupport
import HapaxSQLite
import Testing

@testable import HapaxClient

@Suite("Spools: clients that find the queue taken", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct SpoolTests {
    private let directory = TemporaryDirectory()

    private func open(_ transport: ScriptedTransport = ScriptedTransport()) throws -> TestClient {
        try TestClient(directory: directory, transport: transport) { $0.whenQueueIsTaken = .spool }
    }

    private var spools: [QueueDirectory] { (try? QueueDirectory(path: directory.path + "/queue").spools()) ?? [] }

    @Test("the second client stores beside the first, as another install")
    func takenQueueIsSpooled() async throws {
        let main = try open()
        let spool = try open()
        #expect(await main.client.status().isSpool == false)
        #expect(await spool.client.status().isSpool)
        #expect(main.client.queue.installID != spool.client.queue.installID)
        try await spool.client.trackDurably("spooled")
        #expect(spools.count == 1)
    }

    @Test("the main client's flush delivers a spool that nobody works on, as its own install, then removes it")
    func abandonedSpoolIsAdopted() async throws {
        let main = try open()
        let spool = try open()
        let install = spool.client.queue.installID
        let id = try await spool.client.trackDurably("spooled")
        _ = await spool.client.shutdown(within: .zero)
        #expect(spools.count == 1)
        let report = await main.client.flush()
        #expect(report.stored == 1)
        #expect(spools.isEmpty)
        let batch = try #require(main.transport.batches.first)
        #expect(batch.ids == [id])
        #expect(batch.scanned.envelope.installID == install)
    }

    @Test("spools that cannot be listed are not none: flush says so, and delivers what it can (I1)")
    func unlistableSpoolsAreTold() async throws {
        let main = try open()
        try await main.client.trackDurably("mine")
        try Data().write(to: URL(fileURLWithPath: main.client.queue.directory.spoolPath))
        let report = await main.client.flush()
        #expect(report.stored == 1 && report.failure == .queue(StorageFailure(errno: ENOTDIR)))
        #expect(main.client.queue.directory.holdsMore)
        await main.client.shutdown(within: .zero)
    }

    @Test("a session that ended with its process beside the main queue gets its end from the one that takes over, once")
    func sessionOfASpoolIsEnded() async throws {
        let main = try open()
        let start = EventID.derived(name: "$AppStart", key: "1")
        let spool = try open()
        try await spool.client.trackDurably("inside")
        // As a crash leaves it.
        try spool.client.queue.save(EventQueue.OpenSession(start: start, lastActivity: 5_000))
        await spool.client.shutdown(within: .zero)
        main.transport.script { _ in .success(TransportAnswer(status: 503, headers: [:], body: [])) }
        for _ in 0..<2 { #expect(await main.client.flush().failure != nil) }
        let stored = Locked<[EventID]>([])
        main.transport.script { batch in
            stored.withLock { $0 += batch.ids }
            return .success(batch.receipt())
        }
        for _ in 0..<2 { #expect(await main.client.flush().failure == nil) }
        #expect(stored.withLock { $0 }.filter { $0 == SessionMarker.endID(start) }.count == 1)
        #expect(stored.withLock { $0 }.count == 2 && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("a spool whose events are delivered stays for the end of its session, also if its owner ends in order")
    func openSessionKeepsASpool() async throws {
        let main = try open()
        let spool = try open()
        spool.client.handle(.didFinishLaunching(inBackground: false))
        spool.client.handle(.didBecomeActive)
        try await spool.client.waitUntilStored()
        while await spool.client.flush().remaining > 0 {}
        await spool.client.shutdown(within: .zero)
        #expect(spools.count == 1)
        for _ in 0..<2 { #expect(await main.client.flush().failure == nil) }
        #expect(main.transport.batches.flatMap(\.names) == ["$AppEnd"] && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("a client that takes over a spool while it is shut down leaves the end of its session to the next one")
    func sessionOutlivesAShutdown() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("inside")
        try spool.client.queue.save(EventQueue.OpenSession(start: .derived(name: "$AppStart", key: "1"), lastActivity: 5_000))
        await spool.client.shutdown(within: .zero)
        #expect(await main.client.shutdown(within: .seconds(60)).stored == 0)
        #expect(main.transport.batches.flatMap(\.names) == ["inside"] && spools.count == 1)
        let next = try open()
        for _ in 0..<2 { #expect(await next.client.flush().failure == nil) }
        #expect(next.transport.batches.flatMap(\.names) == ["$AppEnd"] && spools.isEmpty)
        await next.client.shutdown(within: .zero)
    }

    @Test("a spool that its owner removes while others have their turn is no failure")
    func removedSpoolIsNoFailure() async throws {
        let main = try open()
        let spools = [try open(), try open()]
        for spool in spools { try await spool.client.trackDurably("spooled") }
        for spool in spools { await spool.client.shutdown(within: .zero) }
        let last = try #require(self.spools.last)
        main.transport.script { batch in
            last.removeFiles()
            return .success(batch.receipt())
        }
        let report = await main.client.flush()
        #expect(report.stored == 1 && report.failure == nil)
        await main.client.shutdown(within: .zero)
    }

    @Test("a spool that cannot be used is told by every flush, and holds up no other (I12, I15)")
    func unusableSpoolIsTold() async throws {
        let main = try open()
        let spools = [try open(), try open()]
        for spool in spools { try await spool.client.trackDurably("spooled") }
        for spool in spools { await spool.client.shutdown(within: .zero) }
        let path = try #require(self.spools.first).databasePath
        try await DatabaseQueue(path: path).write { try $0.execute(sql: "INSERT INTO grdb_migrations VALUES ('99 from the future')") }
        for stored in [1, 0] {
            let report = await main.client.flush()
            #expect(report.stored == stored && report.failure == .queue(StorageFailure(NewerSchema())))
        }
        #expect(self.spools.count == 1)
        await main.client.shutdown(within: .zero)
    }

    @Test("nobody's events concern the same install beside a taken queue as in it (R56)")
    func spoolTakesTheAnonymousID() throws {
        let main = try TestClient(directory: directory) { $0.distinctID = nil }
        let spool = try TestClient(directory: directory) {
            $0.distinctID = nil
            $0.whenQueueIsTaken = .spool
        }
        #expect(spool.client.distinctID == main.client.distinctID && spool.client.distinctID == main.client.queue.installID.description)
    }

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
        #expect(queue.removeIfEmpty() && place.isSalvaged("queue.sqlite.damaged-1"))
        #expect(place.filesSetAside.count == 1, "never deleted (D17)")
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
        #expect(report.stored == 30 && report.failure == nil)
        #expect(Set(main.transport.batches.flatMap(\.ids)) == Set((1...30).map { EventID.derived(name: "spooled", key: "\($0)") }))
        #expect(place.filesSetAside.count == 1 && spools.isEmpty)
        #expect(await main.client.flush().stored == 1 && main.transport.batches.last?.names == ["$QueueDamaged"])
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
        #expect(books.dropped == ["damaged_dead_letter": 1] && books.adopted == 0 && books.discarded == 0 && books.isBalanced)
        await main.client.shutdown(within: .zero)
    }

    @Test("a spool whose owner was killed before it had a queue is removed")
    func spoolWithoutAQueueIsRemoved() async throws {
        let main = try open()
        let place = QueueDirectory(path: directory.path + "/queue").spool(named: "01900000-0000-7000-8000-000000000000")
        try FileManager.default.createDirectory(atPath: place.path, withIntermediateDirectories: true)
        #expect(main.client.queue.directory.holdsMore, "nobody knows")
        #expect(await main.client.flush().failure == nil)
        #expect(!FileManager.default.fileExists(atPath: place.path) && !main.client.queue.directory.holdsMore)
        await main.client.shutdown(within: .zero)
    }

    @Test("a client that stores beside the queue refuses from the moment on at which whoever holds the queue has opted out (D16)")
    func spoolFollowsTheOptOut() async throws {
        let main = try open()
        let spool = try open()
        #expect(spool.client.track("before") != nil)
        try main.client.optOut()
        #expect(spool.client.track("after") == nil && spool.client.isOptedOut)
        try main.client.optIn()
        #expect(spool.client.track("again") != nil)
        await spool.client.shutdown(within: .zero)
        await main.client.shutdown(within: .zero)
    }

    @Test("a running client that uploads by itself adopts a spool at its next interval, and respects a backoff (I15, I16)")
    func runningClientAdopts() async throws {
        let main = try TestClient(directory: directory) {
            $0.whenQueueIsTaken = .spool
            $0.uploadsAutomatically = true
        }
        _ = await main.client.adopter?.adopt()
        let spool = try open()
        let id = try await spool.client.trackDurably("spooled")
        _ = await spool.client.shutdown(within: .zero)
        main.transport.script { _ in .failure(.cannotConnect) }
        main.clock.advance(by: .seconds(15))
        await main.transport.requests(1)
        // The end of what is under way, whichever call began it.
        #expect(await main.client.adopter?.adopt().failure == .transport(.cannotConnect))
        #expect(spools.count == 1)
        main.transport.script { .success($0.receipt()) }
        let refused = main.transport.batches.count
        main.clock.advance(by: .seconds(600))
        await main.transport.requests(refused + 1)
        _ = await main.client.adopter?.adopt()
        #expect(spools.isEmpty)
        #expect(main.transport.batches.last?.ids == [id])
    }

    @Test("a spool whose client lives is left alone")
    func livingSpoolIsLeft() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("spooled")
        #expect(await main.client.flush().stored == 0)
        #expect(spools.count == 1)
        #expect(await spool.client.flush().stored == 1)
    }

    @Test("a spool that could not be delivered stays whole, and the others are not tried (I5, I16)")
    func undeliveredSpoolStays() async throws {
        let main = try open(ScriptedTransport { _ in .failure(.cannotConnect) })
        for _ in 0..<3 {
            let spool = try open()
            try await spool.client.trackDurably("spooled")
            _ = await spool.client.shutdown(within: .zero)
        }
        #expect(await main.client.flush().failure == .transport(.cannotConnect))
        #expect(spools.count == 3)
        #expect(main.transport.batches.count == 1)
        main.transport.script { .success($0.receipt()) }
        #expect(await main.client.flush().stored == 3)
        #expect(spools.isEmpty)
    }

    @Test("a spool's dead letters go to the main queue before it is removed (I1)")
    func deadLettersAreMoved() async throws {
        let main = try open(ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) })
        let spool = try open()
        let id = try await spool.client.trackDurably("refused")
        _ = await spool.client.shutdown(within: .zero)
        #expect(await main.client.flush().deadLettered == 1)
        #expect(try main.client.deadLetters.list().map(\.eventID) == [id])
        #expect(spools.isEmpty)
        #expect(await main.client.status().isBalanced)
    }

    @Test("an emptied spool is removed by its own client, one that holds something is not")
    func ownSpoolIsRemovedWhenEmpty() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("delivered")
        #expect(await spool.client.flush().stored == 1)
        _ = await spool.client.shutdown(within: .zero)
        #expect(spools.isEmpty)
        let other = try open()
        try await other.client.trackDurably("kept")
        _ = await other.client.shutdown(within: .zero)
        #expect(spools.count == 1)
        _ = await main.client.shutdown(within: .zero)
    }

    @Test("many at once all store, and one flush delivers everything once")
    func manyClientsAtOnce() async throws {
        let main = try open()
        let ids = await withTaskGroup(of: EventID?.self) { group in
            for index in 0..<12 {
                group.addTask {
                    guard let test = try? open() else { return nil }
                    let id = try? await test.client.trackDurably("cron \(index)")
                    _ = await test.client.shutdown(within: .zero)
                    return id
                }
            }
            return await group.reduce(into: [EventID]()) { if let id = $1 { $0.append(id) } }
        }
        #expect(ids.count == 12)
        #expect(await main.client.flush().stored == 12)
        #expect(main.transport.batches.flatMap(\.ids).sorted() == ids.sorted())
        #expect(spools.isEmpty)
    }
}
