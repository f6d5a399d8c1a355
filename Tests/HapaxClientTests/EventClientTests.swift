import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("EventClient (R1–R17, I6, I7, I12)")
struct EventClientTests {
    @Test(
        "a malformed URL is refused with a typed error (R3)",
        arguments: [
            "https//:host", "", "host:8080", "ftp://host", "http://", "http://user:secret@host", "http://host?key=1", "http://host/#part",
            "http://host:65536", "http://host:0",
        ])
    func malformedURLIsRefused(server: String) {
        #expect(throws: StartError.malformedURL) { try TestClient { $0.server = server } }
    }

    @Test("an empty key, or one that would break the header, is refused (R1)", arguments: ["", "a b", "a\r\nX: y", "ключ"])
    func unusableKeyIsRefused(key: String) {
        #expect(throws: StartError.invalidKey) { try TestClient { $0.writeKey = key } }
    }

    @Test("a second client on the same queue is refused (R2)")
    func secondClientIsRefused() throws {
        let first = try TestClient()
        #expect(throws: StartError.queueTaken) { try TestClient(directory: first.directory) }
    }

    @Test("tracked events arrive in order with ids, times and sequences fixed at the call (R8, R55, R58, D5)")
    func eventsArriveAsTracked() async throws {
        let test = try TestClient()
        let first = test.client.track("one", properties: ["n": 1])
        test.clock.advance(by: .seconds(1))
        let second = test.client.track("two", time: 5, distinctID: "u2")
        let report = await test.client.flush()
        #expect(report == FlushReport(stored: 2, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        let batch = try #require(test.transport.batches.first)
        #expect(batch.ids == [first, second])
        #expect(batch.scanned.events.map(\.time) == [ManualClock.start, 5])
        #expect(batch.sequences == [1, 2])
        #expect(batch.scanned.events.map { String(decoding: $0.distinctID, as: UTF8.self) } == ["somebody", "u2"])
        #expect(batch.scanned.envelope.installID == test.client.queue.installID)
        #expect(batch.scanned.envelope.created == 2)
        #expect(batch.scanned.envelope.waiting == 2)
        #expect(batch.request.url == "http://127.0.0.1:1/v1/events")
        #expect(batch.request.headers.contains { $0.name == "Authorization" && $0.value == "Bearer test-key" })
    }

    @Test("a wall clock that is set back rewrites no time and inverts no order, now or when the server is asked again (D15, I7, R58)")
    func clockChangeRewritesNothing() async throws {
        let test = try TestClient()
        test.client.track("one")
        test.clock.moveWallClock(by: .seconds(-3_600))
        test.client.track("two")
        // A server whose clock tells another time.
        test.transport.script { _ in .success(TransportAnswer(status: 503, headers: ["date": "Thu, 01 Jan 2037 00:00:00 GMT"])) }
        _ = await test.client.flush()
        test.clock.moveWallClock(by: .seconds(7_200))
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 2)
        for batch in test.transport.batches {
            #expect(batch.names == ["one", "two"] && batch.sequences == [1, 2])
            #expect(batch.scanned.events.map(\.time) == [ManualClock.start, ManualClock.start - 3_600_000])
        }
        #expect(test.transport.batches.count == 2)
    }

    @Test("three policies upload without being asked: by count, by interval, on entering the background (R18)")
    func threePoliciesUpload() async throws {
        let test = try TestClient {
            $0.uploadsAutomatically = true
            $0.flushBulkSize = 2
            $0.immediateEvents = []
        }
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        try await test.track(0..<1)
        await test.transport.requests(1)
        await test.client.delivery.restBegins()
        try await test.track(1..<2)
        test.clock.advance(by: .seconds(15))
        await test.transport.requests(2)
        await test.client.delivery.restBegins()
        test.client.handle(.didEnterBackground)
        await test.transport.requests(3)
        #expect(test.transport.batches.map(\.names) == [["$AppStart", "event 0"], ["event 1"], ["$AppEnd"]])
    }

    @Test("nothing is uploaded until asked, or a policy says so (R17)")
    func storingAloneSendsNothing() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        try await test.track(0..<99)
        #expect(test.transport.batches.isEmpty)
        try await test.track(99..<100)
        await test.transport.requests(2)
        #expect(test.transport.batches.map(\.ids.count) == [50, 50])
    }

    @Test("the count is checked after the commit: an upload finds all of it (R19, D4)")
    func countTriggersAfterStoring() async throws {
        let test = try TestClient {
            $0.uploadsAutomatically = true
            $0.flushBulkSize = 1
        }
        test.client.track("only")
        await test.transport.requests(1)
        #expect(test.transport.batches[0].names == ["only"])
    }

    @Test("the periodic timer uploads, and there is one (R21)")
    func timerUploads() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        try await test.track(0..<1)
        test.client.scheduler.startTimer()
        #expect(test.clock.pending == [.seconds(15)])
        test.clock.advance(by: .seconds(15))
        await test.transport.requests(1)
        #expect(test.clock.pending == [.seconds(15)])
    }

    @Test("setting a different interval uploads now and restarts the timer (R22)")
    func newIntervalUploads() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        try await test.track(0..<1)
        test.client.flushInterval = .seconds(15)
        #expect(test.transport.batches.isEmpty)
        test.client.flushInterval = .seconds(60)
        await test.transport.requests(1)
        #expect(test.clock.pending == [.seconds(60)])
        #expect(test.client.flushInterval == .seconds(60))
    }

    @Test("an immediate event uploads at once (R25)")
    func immediateEventUploads() async throws {
        let test = try TestClient { $0.uploadsAutomatically = true }
        test.client.track("$AppStart")
        await test.transport.requests(1)
        #expect(test.transport.batches[0].names == ["$AppStart"])
    }

    @Test("an upload that hangs never delays storing (R15, R16)")
    func hangingUploadDoesNotDelayStoring() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.track("first")
        async let report = test.client.flush()
        await test.transport.requests(1)
        for index in 0..<100 { try await test.client.trackDurably("event \(index)") }
        #expect(await test.client.status().depth == 101)
        _ = await test.client.shutdown(within: .zero)
        #expect(await report.failure != nil)
    }

    @Test("16 threads while answers are awaited: uploaded strictly in order, without a gap (R8, R9, I7)")
    func manyThreadsKeepOrder() async throws {
        let test = try TestClient { $0.mailboxCapacity = 100_000 }
        let client = test.client
        _ = await onThreads(16) { thread in
            for _ in 0..<100 { client.track("thread \(thread)") }
        }
        let report = await test.client.flush()
        #expect(report.stored == 1_600)
        let sequences = test.transport.batches.flatMap(\.sequences)
        #expect(sequences == Array(1...1_600))
        let ids = test.transport.batches.flatMap(\.ids)
        #expect(ids == ids.sorted(), "ids are made in the same critical section")
    }

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
        let test = try TestClient { $0.durability = durability }
        let id = try await test.client.trackDurably("paid", properties: ["amount": 12])
        let copy = TemporaryDirectory()
        try FileManager.default.removeItem(atPath: copy.path)
        try FileManager.default.copyItem(atPath: test.directory.path + "/queue", toPath: copy.path)
        let queue = try EventQueue(
            directory: QueueDirectory(path: copy.path), durability: durability, newInstallID: .derived(name: "i", key: "new"))
        #expect(try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0).events.map(\.id) == [id])
        queue.close()
    }

    @Test("a commit that fails throws, and the event is delivered all the same once it succeeds; a retry under its id is the same event")
    func failedCommitThrowsAndDeliversLater() async throws {
        let test = try TestClient()
        let id = EventID.derived(name: "order", key: "1")
        try test.refuseCommits(true)
        await #expect(throws: TrackError.self) { try await test.client.trackDurably("order", id: id) }
        #expect(await test.client.status().storageFailure != nil)
        try test.refuseCommits(false)
        async let again = test.client.trackDurably("order", id: id)
        await test.clock.scheduled(1)
        test.clock.advance(by: .seconds(5))
        #expect(try await again == id)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.flatMap(\.sequences) == [1])
    }

    @Test("while another process holds the write lock, every durable call throws once its commit has failed, and no event is lost")
    func heldWriteLockTellsEveryone() async throws {
        let test = try TestClient()
        var raw = GRDB.Configuration()
        raw.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: test.directory.path + "/queue/queue.sqlite", configuration: raw)
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

    @Test("the queue's files are readable by their owner only")
    func filesAreTheOwners() async throws {
        let test = try TestClient()
        try await test.track(0..<1)
        let path = test.directory.path + "/queue"
        for (file, mode) in [("", 0o700), ("/queue.sqlite", 0o600), ("/queue.sqlite-wal", 0o600), ("/queue.lock", 0o600)] {
            let attributes = try FileManager.default.attributesOfItem(atPath: path + file)
            #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == mode, "\(file)")
        }
    }

    @Test("events that break a limit, or that JSON cannot hold, become dead letters with their reason and sequence (I12)")
    func unfitEventsBecomeDeadLetters() async throws {
        let test = try TestClient()
        test.client.track(String(repeating: "n", count: 201))
        test.client.track("good")
        test.client.track("infinite", properties: ["x": .double(.infinity)])
        test.client.track("large", properties: ["x": .string(String(repeating: "x", count: 40_000))])
        test.client.track("late", time: -1)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.flatMap(\.names) == ["good"])
        let letters = try test.client.deadLetters.list()
        #expect(letters.map(\.reason) == ["name_too_long", "invalid_number", "event_too_large", "invalid_time"])
        let status = await test.client.status()
        #expect(status.tracked == 5 && status.deadLettered == 4 && status.stored == 1)
        #expect(status.isBalanced)
    }

    @Test("after shutdown track returns nil and the durable call throws (I12)")
    func shutDownClientRefuses() async throws {
        let test = try TestClient()
        try await test.track(0..<2)
        let report = await test.client.shutdown(within: .seconds(5))
        #expect(report == ShutdownReport(stored: 0, lost: 0))
        #expect(test.transport.batches.map(\.ids.count) == [2])
        #expect(test.client.track("late") == nil)
        await #expect(throws: TrackError.refused(.shutDown)) { try await test.client.trackDurably("late") }
    }

    @Test("what is asked after shutdown returns and says so (D7)")
    func callsAfterShutdownReturn() async throws {
        let test = try TestClient()
        try await test.track(0..<2)
        _ = await test.client.shutdown(within: .zero)
        #expect(await test.client.flush() == FlushReport(stored: 0, duplicates: 0, deadLettered: 0, remaining: 2, failure: .shutDown))
        await #expect(throws: TrackError.shutDown) { try await test.client.waitUntilStored() }
        #expect(await test.client.shutdown(within: .zero).lost == 0)
        #expect(await test.client.status().depth == 2)
    }

    @Test("shutdown ends an upload that hangs at its limit and keeps the events (D6, D7, R38)")
    func shutdownIsBounded() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        try await test.track(0..<3)
        async let report = test.client.shutdown(within: .seconds(2))
        await test.transport.requests(1)
        await test.clock.scheduled(1)
        test.clock.advance(by: .seconds(2))
        #expect(await report == ShutdownReport(stored: 3, lost: 0, failure: .shutDown))
    }

    @Test("shutdown leaves a commit that is stuck behind another process's lock, at its limit (D7, R38)")
    func shutdownLeavesWhatIsStuck() async throws {
        let test = try TestClient()
        try await test.track(0..<3)
        let locked = Gate()
        let unlock = Gate()
        let holder = Task { [queue = test.client.queue] in
            try await blocking {
                try queue.database.writeWithoutTransaction { _ in
                    locked.open()
                    unlock.blockUntilOpen()
                }
            }
        }
        try await blocking { locked.blockUntilOpen() }
        test.client.track("stuck")
        #expect(await test.client.status().depth == 3, "a status does not wait for the commit")
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(3)
        test.clock.advance(by: .milliseconds(600))
        #expect(await report == ShutdownReport(stored: 3, lost: 1))
        unlock.open()
        try await holder.value
    }

    @Test("shutdown with a store that never succeeds says what is lost")
    func shutdownCountsWhatIsLost() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        test.client.track("lost")
        await test.clock.scheduled(1)
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(2)
        test.clock.advance(by: .milliseconds(500))
        #expect(await report == ShutdownReport(stored: 0, lost: 1))
    }

    @Test("descriptions of failures hold no key and no payload (I14)")
    func failuresAreSecretive() async throws {
        let test = try TestClient(
            transport: ScriptedTransport { _ in .success(TransportAnswer(status: 500, body: Array("test-key secret".utf8))) })
        test.client.track("secret")
        let failure = try #require(await test.client.flush().failure)
        #expect(failure == .status(500, code: nil))
        #expect(!"\(failure)".contains("test-key") && !"\(failure)".contains("secret"))
    }
}
