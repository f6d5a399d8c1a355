import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Spools: clients that find the queue taken", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct SpoolTests {
    let directory = TemporaryDirectory()

    func open(_ transport: ScriptedTransport = ScriptedTransport()) throws -> TestClient {
        try TestClient(directory: directory, transport: transport) { $0.whenQueueIsTaken = .spool }
    }

    var spools: [QueueDirectory] { (try? QueueDirectory(path: directory.path + "/queue").spools()) ?? [] }

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

    @Test("what becomes of a spool's event is told as another's, which it is: one id can be given in both (I12)")
    func spooledEventIsNotTheOwnOne() async throws {
        let main = try open()
        let spool = try open()
        let id = try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        try await main.client.trackDurably("own", id: id)
        let (all, own) = (main.client.deliveries(), main.client.ownDeliveries(bufferLimit: 9))
        main.transport.script { batch in .success(batch.receipt { _ in batch.names == ["own"] ? .stored : .conflict }) }
        _ = await main.client.flush()
        await main.client.shutdown(within: .zero)
        var told: ([EventDelivery], [EventDelivery]) = ([], [])
        for await delivery in all { told.0.append(delivery) }
        for await delivery in own { told.1.append(delivery) }
        #expect(told.0 == [.stored(id), .rejected(id, reason: "conflict", detail: "")] && told.1 == [.stored(id)])
    }

    @Test("a damaged row of a spool's file that was set aside is told when it becomes a dead letter (I11, I12)")
    func buriedSpooledEventIsTold() async throws {
        let main = try open()
        let spool = try open()
        let id = try await spool.client.trackDurably("spooled")
        let place = spool.client.queue.directory
        try await spool.client.queue.database.write { try $0.execute(sql: "UPDATE queue SET check_sum = check_sum + 1") }
        await spool.client.shutdown(within: .zero)
        try FileManager.default.moveItem(atPath: place.databasePath, toPath: place.databasePath + ".damaged-1")
        let deliveries = main.client.deliveries()
        _ = await main.client.flush()
        await main.client.shutdown(within: .zero)
        var told: [EventDelivery] = []
        for await delivery in deliveries { told.append(delivery) }
        #expect(told.first == .rejected(id, reason: DamagedRows.reason, detail: DamagedRows.detail))
        #expect(told.count == 2, "and the event that tells of it")
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

    @Test("nor does one whose damaged file cannot be read (I15)")
    func unreadableSpoolHoldsUpNoOther() async throws {
        let main = try open()
        let spools = [try open(), try open()]
        for spool in spools { try await spool.client.trackDurably("spooled") }
        for spool in spools { await spool.client.shutdown(within: .zero) }
        let aside = try #require(self.spools.first).databasePath + ".damaged-1"
        try FileManager.default.createDirectory(atPath: aside, withIntermediateDirectories: true)
        let report = await main.client.flush()
        #expect(main.transport.batches.flatMap(\.names).contains("spooled") && report.failure != nil)
        #expect(self.spools.map(\.databasePath) == [aside.replacingOccurrences(of: ".damaged-1", with: "")])
        try FileManager.default.removeItem(atPath: aside)
        for _ in 1...2 { _ = await main.client.flush() }
        #expect(self.spools.isEmpty && main.transport.batches.flatMap(\.names).filter { $0 == "spooled" }.count == 2)
        await main.client.shutdown(within: .zero)
    }

    @Test("dead letters and counts of a spool go into no file that no later client finds: it stays (I1, I12)")
    func spoolStaysWhereTheMainFileIsGone() async throws {
        let main = try open()
        let spool = try TestClient(directory: directory) {
            $0.whenQueueIsTaken = .spool
            $0.enrichers = [{ $0.name == "dropped" ? nil : $0 }]
        }
        try await spool.client.trackDurably(String(repeating: "n", count: 201))
        #expect(spool.client.track("dropped") == nil)
        await spool.client.shutdown(within: .zero)
        for suffix in ["", "-wal", "-shm"] {
            try? FileManager.default.removeItem(atPath: main.client.queue.directory.databasePath + suffix)
        }
        #expect(await main.client.flush().failure != nil)
        #expect(spools.count == 1)
        await main.client.shutdown(within: .zero)
        let next = try open()
        _ = await next.client.flush()
        let status = await next.client.status()
        #expect(spools.isEmpty && status.deadLettered == 1 && status.dropped["enricher"] == 1, "\(status)")
        await next.client.shutdown(within: .zero)
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

    @Test("an opt-out beside the queue that cannot be written holds as long as its process all the same (D16)")
    func unwrittenOptOutHoldsInASpool() async throws {
        let (queue, moved) = (directory.path("queue"), directory.path("moved"))
        let main = try open()
        let spool = try open()
        try FileManager.default.moveItem(atPath: queue, toPath: moved)
        #expect(throws: IdentityError.self) { try spool.client.optOut() }
        try FileManager.default.moveItem(atPath: moved, toPath: queue)
        for _ in 0..<2 { #expect(spool.client.track("refused") == nil && spool.client.isOptedOut) }
        #expect(main.client.track("taken") != nil)
        try spool.client.optIn()
        #expect(spool.client.track("taken") != nil)
        await spool.client.shutdown(within: .zero)
        await main.client.shutdown(within: .zero)
    }

    @Test("a client beside the queue does not know what the others hold when it ends")
    func spoolDoesNotSpeakForOthers() async throws {
        let main = try open()
        let spool = try open()
        #expect(await spool.client.shutdown(within: .seconds(1)) == ShutdownReport(stored: 0, lost: 0, mayLeaveMore: true))
        #expect(await main.client.shutdown(within: .seconds(1)) == ShutdownReport(stored: 0, lost: 0))
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
