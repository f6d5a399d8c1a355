import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// What a durable call promises, and the same id tracked again.
extension EventClientTests {
    @Test("events survive the end of the client and are sent by the next (R14, I6); sequences go on (I7)")
    func nextClientSends() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        try await first.track(0..<3)
        #expect(await first.client.shutdown(within: .zero) == ShutdownReport(stored: 3, lost: 0))
        let second = try TestClient(directory: directory)
        second.client.track("later")
        #expect(await second.client.flush().stored == 4)
        #expect(second.transport.batches.flatMap(\.sequences) == [1, 2, 3, 4])
    }

    @Test("a durable call returns after the commit: a copy of the files taken then holds the event (I6)", arguments: Durability.allCases)
    func durableEventIsOnDisk(durability: Durability) async throws {
        let test = try TestClient { $0.queue.durability = durability }
        let id = try await test.client.trackDurably("paid", properties: ["amount": 12])
        let copy = TemporaryDirectory()
        try FileManager.default.removeItem(atPath: copy.path)
        try FileManager.default.copyItem(atPath: test.directory.path + "/queue", toPath: copy.path)
        #expect(try QueueContents(copy.path).files.map(\.waiting) == [[id]])
    }

    /// What a power cut leaves then is shown by ``PowerCutTests``; this is what SQLite is told
    /// (https://www.sqlite.org/pragma.html#pragma_synchronous).
    @Test(
        "`power` flushes the log at each commit, `process` leaves that to the system (I6)",
        arguments: [(Durability.process, 1), (.power, 2)])
    func durabilityReachesSQLite(durability: Durability, synchronous: Int) throws {
        let test = try TestClient { $0.queue.durability = durability }
        let database = try test.client.file.database
        #expect(try database.writeWithoutTransaction { try Int.fetchOne($0, sql: "PRAGMA synchronous") } == synchronous)
        #expect(try database.writeWithoutTransaction { try String.fetchOne($0, sql: "PRAGMA journal_mode") } == "wal")
    }

    @Test("a commit that fails throws, and the event is delivered all the same once it succeeds; a retry under its id is the same event")
    func failedCommitThrowsAndDeliversLater() async throws {
        let test = try TestClient()
        let id = EventID.derived(name: "order", key: "1")
        try test.refuseCommits(true)
        await #expect(throws: TrackError.self) { try await test.client.trackDurably("order", id: id) }
        let failing = await test.client.status()
        #expect(failing.storageFailure != nil && failing.inMemory == 1 && failing.depth == 0)
        try test.refuseCommits(false)
        async let again = test.client.trackDurably("order", id: id)
        await test.clock.scheduled(1)
        test.clock.advance(by: .seconds(5))
        #expect(try await again == id)
        let stored = await test.client.status()
        #expect(stored.storageFailure == nil && stored.inMemory == 0 && stored.depth == 1)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.flatMap(\.sequences) == [1])
    }

    @Test("a durable call for an event that is in memory already returns once that is on disk (I6)")
    func repeatedEventIsAwaited() async throws {
        let test = try TestClient()
        let id = EventID.derived(name: "order", key: "1")
        try test.refuseCommits(true)
        test.client.track("order", id: id)
        await test.clock.scheduled(1)
        async let depth = { [client = test.client] in
            try await client.trackDurably("order", id: id)
            return client.file.counters.waiting
        }()
        // Time to return too early; without it the test would only see less.
        for _ in 0..<100 { await Task.yield() }
        try test.refuseCommits(false)
        test.clock.advance(by: .seconds(5))
        #expect(try await depth == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("an event on its way to the dead letters does not keep its id from one that can be stored (I1)")
    func deadLetterGivesItsIDBack() async throws {
        let test = try TestClient()
        let id = EventID.derived(name: "order", key: "1")
        try test.refuseCommits(true)
        test.client.track(String(repeating: "n", count: 201), id: id)
        // The first attempt has failed: nobody takes the mailbox before the next.
        await test.clock.scheduled(1)
        try test.refuseCommits(false)
        async let stored = test.client.trackDurably("order", id: id)
        // Until the letter is stored; the event's own commit needs no clock.
        while await test.client.status().deadLettered == 0 {
            test.clock.advance(by: .seconds(5))
            await Task.yield()
        }
        #expect(try await stored == id)
        #expect(await test.client.status().depth == 1)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.flatMap(\.names) == ["order"])
    }

    @Test("a full mailbox refuses: track returns nil, the durable call throws, both are counted (I12, I13)", arguments: [false, true])
    func fullMailboxRefuses(isFullOfBytes: Bool) async throws {
        let test = try TestClient {
            if isFullOfBytes { $0.queue.mailboxBytes = 1_000 } else { $0.queue.mailboxCapacity = 1 }
        }
        try test.refuseCommits(true)
        let properties: Properties = ["fill": String(repeating: "x", count: 500)]
        #expect(test.client.track("first", properties: properties) != nil)
        // Its commit has failed.
        await test.clock.scheduled(1)
        #expect(test.client.track("second", properties: properties) == nil)
        await #expect(throws: TrackError.refused(.mailboxFull)) { try await test.client.trackDurably("third", properties: properties) }
        let status = await test.client.status()
        #expect(status.created == 0 && status.inMemory == 1 && status.dropped == ["mailbox_full": 2])
    }

    @Test("while another process holds the write lock, every durable call throws once its commit has failed, and no event is lost")
    func heldWriteLockTellsEveryone() async throws {
        let test = try TestClient()
        var raw = GRDB.Configuration()
        raw.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: test.directory.path + "/queue/1.sqlite", configuration: raw)
        try await other.writeWithoutTransaction { try $0.execute(sql: "BEGIN IMMEDIATE") }
        let failures = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<1_500 {
                group.addTask {
                    do throws(TrackError) { _ = try await test.client.trackDurably("e") } catch { return true }; return false
                }
            }
            return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
        #expect(failures == 1_500)
        try await other.writeWithoutTransaction { try $0.execute(sql: "ROLLBACK") }
        await test.clock.scheduled(1)
        test.clock.advance(by: .seconds(5))
        #expect(await test.client.flush().stored == 1_500)
    }

    @Test("tracking a queued id again keeps the first and takes no sequence (R12), also after a restart; once delivered it is a new event")
    func queuedIDIsTrackedOnce() async throws {
        let directory = TemporaryDirectory()
        let id = EventID.derived(name: "order", key: "1")
        let first = try TestClient(directory: directory)
        #expect(first.client.track("order", properties: ["first": true], id: id) == id)
        #expect(first.client.track("order", properties: ["first": false], id: id) == id)
        _ = await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: directory)
        #expect(try await second.client.trackDurably("order", id: id) == id)
        #expect(await second.client.flush().stored == 1)
        let body = String(decoding: second.transport.batches[0].body, as: UTF8.self)
        #expect(body.contains(#""first":true"#))
        #expect(await second.client.status().created == 1)
        second.client.track("order", id: id)
        _ = await second.client.flush()
        #expect(second.transport.batches.map(\.sequences) == [[1], [2]])
    }

    @Test("another event under an id that waits is told as a conflict, as the server would; the first one is delivered (R12, I1, I3)")
    func conflictIsTold() async throws {
        let shown = Locked<[String]>([])
        let test = try TestClient { configuration in
            configuration.debug.isOn = true
            configuration.debug.output = { text in shown.withLock { $0.append(text) } }
        }
        let deliveries = test.client.deliveries()
        let id = try await test.client.trackDurably("order", properties: ["number": 1])
        for number in 1...2 {
            #expect(try await test.client.trackDurably("order", properties: ["number": number], id: id) == id)
        }
        try await test.client.trackDurably("order", properties: ["number": 1], id: id, distinctID: "somebody else")
        let status = await test.client.status()
        #expect(status.depth == 1 && status.deadLettered == 2 && status.created == 3 && status.isBalanced && status.dropped.isEmpty)
        #expect(shown.withLock { $0.filter { $0.hasPrefix("dead letter: conflict") }.count } == 2)
        #expect(shown.withLock { $0.count } == 3, "what is kept nowhere is not shown")
        #expect(await test.client.flush().stored == 1)
        await test.client.shutdown(within: .zero)
        var told: [EventDelivery] = []
        for await delivery in deliveries { told.append(delivery) }
        // C15
        let conflicts = ["properties.number", "distinct_id"].map { name in
            EventDelivery.rejected(id, reason: "conflict", detail: "another event waits under this id: it differs in \(name)")
        }
        #expect(told == conflicts + [.stored(id)])
        #expect(String(decoding: test.transport.batches[0].body, as: UTF8.self).contains(#""number":1"#))
    }

    @Test(
        "under an id that waits the value counts, as at the server, not how it is written; a conflict names the first differences (C15, C16, I3)"
    )
    func valuesAreCompared() async throws {
        let test = try TestClient()
        let id = try #require(EventID(uuidString: "019a0000-0000-7000-8000-000000000001"))
        func store(_ properties: String) throws -> Int {
            try test.client.parts.store([ImportedEvent(id: id, time: 1, bytes: SameContent.event("\(id)", properties))]).deadLettered
        }
        for same in [#"{"a":1,"b":"x"}"#, #"{"a":1.0,"b":"x"}"#, #"{"b":"x","a":1}"#, #"{"a":10e-1,"\u0062":"\u0078"}"#] {
            #expect(try store(same) == 0, "\(same)")
        }
        let others: KeyValuePairs = [
            #"{"a":2,"b":"x"}"#: "properties.a", #"{"a":1}"#: "properties.b",
            #"{"a":1,"b":"x","c":0,"d":0,"e":0,"f":0,"g":0,"h":0}"#:
                "properties.c, properties.d, properties.e, properties.f, properties.g, 1 more",
        ]
        for (other, _) in others { #expect(try store(other) == 1, "\(other)") }
        let deadLetters = try await test.client.deadLetters.list()
        #expect(deadLetters.map(\.detail) == others.map { "another event waits under this id: it differs in " + $0.value })
        #expect(await test.client.flush().stored == 1)
    }

    @Test("ids that are tracked again and again while they are delivered take a sequence only with an event that is sent (R12, I7)")
    func repeatedIDsLeaveNoGap() async throws {
        let test = try TestClient()
        let ids = (1...3).compactMap { EventID(uuidString: "019a0000-0000-7000-8000-00000000000\($0)") }
        await withTaskGroup(of: Void.self) { group in
            for id in ids + ids {
                group.addTask { for _ in 0..<150 { _ = try? await test.client.trackDurably("same", id: id) } }
            }
            group.addTask { for _ in 0..<150 { _ = await test.client.flush() } }
        }
        _ = await test.client.flush()
        let status = await test.client.status()
        #expect(Set(test.transport.batches.flatMap(\.sequences)).count == Int(status.created), "no sequence is missing")
        #expect(status.duplicates == 0 && status.depth == 0 && status.isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("an event that took the place of one over a limit waits under its id: tracking it again takes no sequence (R12, I7)")
    func requeuedIDWaits() async throws {
        let test = try TestClient()
        let id = try #require(EventID(uuidString: "019a0000-0000-7000-8000-000000000001"))
        // Of one group.
        test.client.writer.intake.withLock { intake in
            for name in [String(repeating: "n", count: 201), "fixed"] {
                _ = intake.admit(name: name, properties: [:], id: id, time: 1, distinctID: nil, now: 1)
            }
        }
        test.client.writer.wake()
        try await test.client.writer.barrier()
        try await test.client.trackDurably("fixed", id: id)
        try await test.client.trackDurably("fixed", id: id)
        let status = await test.client.status()
        #expect(status.created == 2 && status.depth == 1 && status.duplicates == 0 && status.isBalanced)
        #expect(status.deadLettered == 1)
        #expect(await test.client.flush().stored == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("the same after a restart; the first one's id still waits then, so that a third takes no sequence either (R12)")
    func conflictIsToldAfterARestart() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        let id = try await first.client.trackDurably("order")
        await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: directory)
        for name in ["other", String(repeating: "x", count: 201), "order"] { try await second.client.trackDurably(name, id: id) }
        let deadLetters = try await second.client.deadLetters.list()
        #expect(deadLetters.map(\.reason) == ["conflict", "name_too_long"])
        let status = await second.client.status()
        #expect(status.created == 3 && status.depth == 1 && status.deadLettered == 2 && status.isBalanced)
    }

    @Test("tracking again what track returned takes no sequence, stored or not, also after a restart (R12, I7)")
    func ownIDIsTrackedOnce() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        let id = try #require(first.client.track("order"))
        #expect(first.client.track("order", id: id) == id)
        #expect(try await first.client.trackDurably("order", id: id) == id)
        #expect(first.client.track("order", id: id) == id)
        _ = await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: directory)
        #expect(try await second.client.trackDurably("order", id: id) == id)
        second.client.track("next")
        #expect(await second.client.flush().stored == 2)
        #expect(second.transport.batches.flatMap(\.sequences) == [1, 2])
    }
}
