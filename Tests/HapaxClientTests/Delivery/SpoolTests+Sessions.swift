import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Apps whose session is open when they end beside the main queue.
extension SpoolTests {
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
        #expect(await main.client.flush() == FlushReport(stored: 1, duplicates: 0, deadLettered: 0, remaining: 0), "one call does it")
        #expect(main.transport.batches.flatMap(\.names) == ["$AppEnd"] && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("where the queue has no room for the end of a session, it stays, counts as no loss, and holds no other spool up (I12, I15)")
    func sessionWaitsForRoom() async throws {
        let main = try TestClient(directory: directory) { $0.quota.maximumEvents = 1 }
        main.client.track("")
        try await main.client.writer.barrier()
        let spools = [try open(), try open()]
        for spool in spools { try await spool.client.trackDurably("beside") }
        try spools[0].client.queue.save(EventQueue.OpenSession(start: .derived(name: "$AppStart", key: "1"), lastActivity: 5_000))
        for spool in spools { await spool.client.shutdown(within: .zero) }
        for stored in [2, 0] { #expect(await main.client.flush().stored == stored) }
        #expect(self.spools.count == 1 && main.transport.batches.flatMap(\.names) == ["beside", "beside"])
        #expect(await main.client.status().dropped.isEmpty)
        #expect(try main.client.deadLetters.purge([1]) == 1)
        #expect(await main.client.flush().stored == 1 && self.spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("a client that takes over a spool while it is shut down leaves the end of its session to the next one")
    func sessionOutlivesAShutdown() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("inside")
        try spool.client.queue.save(EventQueue.OpenSession(start: .derived(name: "$AppStart", key: "1"), lastActivity: 5_000))
        let second = try open()
        try await second.client.trackDurably("behind")
        for client in [spool.client, second.client] { await client.shutdown(within: .zero) }
        #expect(await main.client.shutdown(within: .seconds(60)) == ShutdownReport(stored: 0, lost: 0, mayLeaveMore: true))
        #expect(main.transport.batches.flatMap(\.names).sorted() == ["behind", "inside"] && spools.count == 1)
        let next = try open()
        for _ in 0..<2 { #expect(await next.client.flush().failure == nil) }
        #expect(next.transport.batches.flatMap(\.names) == ["$AppEnd"] && spools.isEmpty)
        await next.client.shutdown(within: .zero)
    }

    @Test("an opt-out, and its end, through a client beside the queue reach the one that holds it with its next commit (D16)")
    func optOutBesideTheQueueIsFollowed() async throws {
        let main = try open()
        let spool = try open()
        try spool.client.optOut()
        #expect(spool.client.isOptedOut && spool.client.track("refused") == nil)
        // It is in its hands already when the client learns of it.
        try await main.client.trackDurably("taken")
        #expect(main.client.isOptedOut && main.client.track("refused") == nil)
        try spool.client.optIn()
        main.clock.advance(by: .seconds(1))
        while main.client.isOptedOut { await Task.yield() }
        try await main.client.trackDurably("taken again")
        #expect(await main.client.flush().stored == 2)
        for client in [spool.client, main.client] { await client.shutdown(within: .zero) }
    }

    @Test("to somebody who has opted out no end of a session is owed: it goes with its spool, and counts as refused (D16, I12)")
    func optOutEndsASession() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("inside")
        try spool.client.queue.save(EventQueue.OpenSession(start: .derived(name: "$AppStart", key: "1"), lastActivity: 5_000))
        await spool.client.shutdown(within: .zero)
        try main.client.optOut()
        #expect(await main.client.flush().failure == nil)
        #expect(main.transport.batches.flatMap(\.names) == ["inside"] && spools.isEmpty)
        #expect(await main.client.status().dropped == [DropReason.optedOut.rawValue: 1])
        await main.client.shutdown(within: .zero)
    }
}
