import Foundation
import GRDB
import HapaxModel
import MetricsTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// Damage that a client meets while it runs.
extension QueueDamageTests {
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

    @Test("a salvage has a thread of its own: on the language's pool it would stop the host's tasks (D7)")
    func salvageStopsNobodyElse() async throws {
        let queue = try open()
        try queue.append((1...60).map { Self.event($0) }[...])
        try spoil(queue)
        try queue.append([Self.event(62)][...])
        let label = Locked("")
        var observer = DamageObserver()
        observer.salvaged = { _, _ in label.withLock { $0 = Self.queueLabel } }
        queue.observeDamage(observer)
        await queue.salvage()
        #expect(label.withLock { $0 } == "hapax.salvage")
        queue.close()
    }

    /// Of the dispatch queue that runs this. On Linux the module does not declare it.
    private static var queueLabel: String {
        typealias Function = @convention(c) (OpaquePointer?) -> UnsafePointer<CChar>?
        guard let symbol = dlsym(nil, "dispatch_queue_get_label") else { return "?" }
        return unsafeBitCast(symbol, to: Function.self)(nil).map { String(cString: $0) } ?? ""
    }

    @Test("damage met by an upload's own read: that upload takes what was salvaged, and does not call the queue empty (I11, I15)")
    func uploadThatMeetsDamageGoesOn() async throws {
        let test = try TestClient(directory: directory)
        try await test.track(0..<200)
        try spoil(test.client.queue)
        let report = await test.client.flush()
        #expect(report.stored > 150 && report.remaining <= 1 && asides().count == 1, "but for the event that tells of it")
        await test.client.shutdown(within: .zero)
    }

    @Test("an event lost with a damaged file is taken again from its caller; one that was salvaged is not doubled (R12, I11)")
    func retriesAreTaken() async throws {
        let test = try TestClient(directory: directory)
        let ids = (1...200).map { EventID.derived(name: "order", key: "\($0)") }
        for id in ids {
            _ = try await test.client.trackDurably("order", properties: ["fill": .string(String(repeating: "x", count: 300))], id: id)
        }
        try spoil(test.client.queue)
        _ = await test.client.flush()
        for id in ids {
            _ = try await test.client.trackDurably("order", properties: ["fill": .string(String(repeating: "x", count: 300))], id: id)
        }
        for _ in 0..<3 { _ = await test.client.flush() }
        #expect(Set(ids).isSubset(of: Set(test.transport.batches.flatMap(\.ids))), "every order arrived")
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("damage met by the start's own reads: an event that is lost with it is taken again from its caller (R12, I11)")
    func retriesAreTakenAfterADamagedStart() async throws {
        let ids = (1...200).map { EventID.derived(name: "order", key: "\($0)") }
        let fill = Properties(dictionaryLiteral: ("fill", .string(String(repeating: "x", count: 300))))
        let first = try TestClient(directory: directory)
        for id in ids { first.client.track("order", properties: fill, id: id) }
        await first.client.shutdown(within: .zero)
        let page = try await DatabaseQueue(path: file).read { db in
            try #require(try Int.fetchOne(db, sql: "SELECT rootpage FROM sqlite_schema WHERE name = 'identity'"))
        }
        try DamagedPage.make(in: file, at: ids[99])
        // As after a clean end: nothing is checked when it opens.
        try FileManager.default.removeItem(atPath: file + "-wal")
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.seek(toOffset: UInt64((page - 1) * QueueRoom.pageBytes))
        try handle.write(contentsOf: Data(repeating: 0xEE, count: QueueRoom.pageBytes))
        try handle.close()

        let test = try TestClient(directory: directory)
        #expect(asides().count == 1, "met before there was a client to tell")
        _ = await test.client.flush()
        let lost = ids.filter { !test.transport.batches.flatMap(\.ids).contains($0) }
        #expect(!lost.isEmpty)
        for id in lost { test.client.track("order", properties: fill, id: id) }
        _ = await test.client.flush()
        #expect(Set(ids).isSubset(of: Set(test.transport.batches.flatMap(\.ids))), "every order arrived")
        await test.client.shutdown(within: .zero)
    }

    @Test("what a salvage makes a dead letter is told to subscribers and metrics, once (I12)")
    func buriedEventsAreTold() async throws {
        let metrics = TestMetrics()
        let test = try TestClient(directory: directory) { $0.metricsFactory = metrics }
        let (all, own) = (test.client.deliveries(), test.client.ownDeliveries(bufferLimit: 9))
        let id = try #require(EventID("019a0000-0000-7000-8000-000000000001"))
        let changed = try await test.track(1...2)
        try await test.client.trackDurably("first", id: id)
        try await test.client.queue.database.write {
            try $0.execute(sql: "UPDATE queue SET check_sum = check_sum + 1 WHERE event_id = ?", arguments: [Data(changed[0].bytes)])
        }
        #expect(try test.client.queue.takesOver(from: test.client.queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        try await test.client.trackDurably("second", id: id)
        #expect(await test.client.flush().failure == nil)
        await test.client.shutdown(within: .zero)
        var told: [EventDelivery] = []
        for await delivery in all { told.append(delivery) }
        #expect(
            told.filter { if case .rejected = $0 { true } else { false } } == [
                .rejected(changed[0], reason: DamagedRows.reason, detail: DamagedRows.detail),
                .rejected(id, reason: PreparedEvent.conflict.reason, detail: PreparedEvent.conflict.detail),
            ])
        for reason in ["damaged", "conflict"] {
            #expect(try metrics.expectCounter("hapax.client.dead_letters", [("reason", reason)]).totalValue == 1)
        }
        // Who waits for news of the second must not take the first's for it.
        for await delivery in own { if case .rejected = delivery { Issue.record("\(delivery)") } }
    }

    @Test(
        "what a file held that was set aside goes before what was stored since, and is purged and counted with it (R9, D14)",
        arguments: [true, false])
    func salvageComesFirst(isPurged: Bool) async throws {
        let test = try TestClient(directory: directory) { $0.batchSize = 1 }
        try await test.track(1...3)
        #expect(try test.client.queue.takesOver(from: test.client.queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        try await test.track(4...4)
        if isPurged {
            // The event that tells of the damage may be among them.
            #expect(try await (4...5).contains(test.client.purge()))
            _ = await test.client.flush()
        } else {
            #expect(await test.client.flush().failure == nil)
        }
        let sent = test.transport.batches.flatMap(\.names).filter { $0.hasPrefix("event") }
        #expect(sent == (isPurged ? [] : (1...4).map { "event \($0)" }))
        await test.client.shutdown(within: .zero)
    }

    @Test("the event that tells of damage is taken once, however often it is told (I11)")
    func reportIsTakenOnce() async throws {
        let test = try TestClient(directory: directory)
        try test.refuseCommits(true)
        var ids = UUIDv7Generator()
        let id = ids.next(unixMilliseconds: 1)
        let observer = test.client.queue.damage.withLock { $0.observer }
        for _ in 1...2 { observer.salvaged(QueueDamage(file: "queue.sqlite.damaged-1"), id) }
        #expect(await test.client.status().inMemory == 1)
        try test.refuseCommits(false)
        try? await test.client.writer.barrier(retrying: true)
        await test.client.shutdown(within: .zero)
    }

    @Test("that nobody knows which ids wait is told before anything is stored in the file that takes over (R12)")
    func oldIDsAreForgottenFirst() throws {
        let queue = try open()
        let changes = Locked<[String]>([])
        let stored = DispatchSemaphore(value: 0)
        queue.observeWaitingIDs { change in
            switch change {
            case .forgotten:
                Thread.detachNewThread {
                    _ = try? queue.append([Self.event(1)][...])
                    stored.signal()
                }
                // Time enough for one who need not wait.
                if stored.wait(timeout: .now() + 0.1) == .success { stored.signal() }
                changes.withLock { $0.append("forgotten") }
            case .added: changes.withLock { $0.append("added") }
            case .removed: break
            }
        }
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        stored.wait()
        #expect(changes.withLock { $0 } == ["forgotten", "added"])
        queue.close()
    }

    @Test("what was salvaged waits under its id: its caller's retry is no second event (R12, I12)")
    func salvagedIDsAreKnown() async throws {
        let test = try TestClient(directory: directory, transport: ScriptedTransport { _ in .failure(.cut) })
        let ids = try await test.track(1...200)
        try DamagedPage.make(in: test.client.queue, at: ids[0])
        for _ in 0..<2 { #expect(await test.client.flush().failure != nil) }
        #expect(asides().count == 1)
        let waiting = try test.client.queue.waitingIDs()
        let created = await test.client.status().created
        for id in waiting { #expect(test.client.track("again", id: id) == id) }
        #expect(await test.client.status().created == created && waiting.count > 100)
        await test.client.shutdown(within: .zero)
    }
}
