import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("EventClient (R1–R17, I6, I7, I12)", .endsWhenItHangs)
struct EventClientTests {
    @Test(
        "a malformed URL is refused with a typed error (R3)",
        arguments: [
            "https//:host", "", "host:8080", "ftp://host", "http://", "http://user:secret@host", "http://user@host", "http://host?key=1",
            "http://host/#part",
            "http://host:65536", "http://host:99999999999999999999", "http://host:0", "http://exämple.org", "http://host/a b",
        ])
    func malformedURLIsRefused(server: String) {
        #expect(throws: StartError.malformedURL) { try TestClient { $0.server = EventClient.Configuration.url(server) } }
    }

    private struct Order: Encodable {
        var number = "A-17"
        var paid = Date(unixMilliseconds: 1_763_680_000_123)
        var lines = [1, 2]
        var coupon: String?
    }

    @Test("properties of a type of one's own are its members; what is no object is a dead letter, and no throw that anybody forgets (I12)")
    func encodablePropertiesAreTracked() async throws {
        let test = try TestClient()
        test.client.track("order_paid", encoding: Order())
        try await test.client.trackDurably("order_paid", encoding: Order(lines: []))
        test.client.track("order_paid", encoding: [1, 2])
        try await test.client.trackDurably("order_paid", encoding: Double.nan)
        let deadLetters = try await test.client.deadLetters.list()
        #expect(deadLetters.map(\.reason) == ["invalid_properties", "invalid_properties"])
        // C19: what was tracked is not lost.
        let kept = deadLetters.map { String(decoding: $0.event, as: UTF8.self) }
        #expect(kept[0].hasSuffix(#""properties":[1,2]}"#) && kept[1].hasSuffix(#""properties":"\"nan\""}"#))
        #expect(try await test.client.deadLetters.retry().unfit == 2)
        _ = await test.client.flush()
        let sent = test.transport.batches.flatMap(\.scanned.events).compactMap(\.properties).map { String(decoding: $0, as: UTF8.self) }
        #expect(
            sent == ["[1,2]", "[]"].map { #"{"lines":\#($0),"number":"A-17","paid":1763680000123}"# }, "in the order of their names")
    }

    @Test(
        "a distinct id for all events that no event may have is refused, and not each event (I12)",
        arguments: ["", "a\0b", String(repeating: "x", count: 201)])
    func unusableDistinctIDIsRefused(id: String) throws {
        #expect(throws: StartError.invalidDistinctID) { try TestClient { $0.distinctID = id } }
        #expect(throws: Never.self) { try TestClient { $0.distinctID = String(repeating: "x", count: 200) } }
    }

    @Test("an empty key, or one that would break the header, is refused (R1)", arguments: ["", "a b", "a\r\nX: y", "ключ"])
    func unusableKeyIsRefused(key: String) {
        #expect(throws: StartError.invalidKey) { try TestClient { $0.writeKey = key } }
    }

    @Test("two clients on one directory have a file each, and send their own events as installs of their own (R2)")
    func clientsAreEquals() async throws {
        let first = try TestClient()
        let second = try TestClient(directory: first.directory)
        try await first.track(1...2)
        try await second.track(3...3)
        #expect(await first.client.flush().stored == 2)
        #expect(await second.client.flush().stored == 1)
        let installs = [first, second].compactMap { $0.transport.batches.first?.scanned.envelope.installID }
        #expect(Set(installs).count == 2)
        #expect(second.transport.batches.map(\.names) == [["event 3"]] && second.client.file.number == 2)
    }

    @Test("tracked events arrive in order with ids, times and sequences fixed at the call (R8, R55, R58, D5)")
    func eventsArriveAsTracked() async throws {
        let test = try TestClient()
        let first = test.client.track("one", properties: ["n": 1])
        test.clock.advance(by: .seconds(1))
        let second = test.client.track("two", time: Date(unixMilliseconds: 5), distinctID: "u2")
        let report = await test.client.flush()
        #expect(report == FlushReport(stored: 2, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        let batch = try #require(test.transport.batches.first)
        #expect(batch.ids == [first, second])
        #expect(batch.scanned.events.map(\.time) == [TestClock.start, 5])
        #expect(batch.sequences == [1, 2])
        #expect(batch.scanned.events.map { String(decoding: $0.distinctID, as: UTF8.self) } == ["somebody", "u2"])
        #expect(batch.scanned.envelope.installID == test.client.file.counters.installID)
        #expect(batch.scanned.envelope.created == 2)
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
            #expect(batch.scanned.events.map(\.time) == [TestClock.start, TestClock.start - 3_600_000])
        }
        #expect(test.transport.batches.count == 2)
        test.client.track("three")
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches[2].scanned.events.map(\.time) == [TestClock.start + 3_600_000])
    }

    @Test("16 threads while answers are awaited: uploaded strictly in order, without a gap (R8, R9, I7)")
    func manyThreadsKeepOrder() async throws {
        let test = try TestClient { $0.queue.mailboxCapacity = 100_000 }
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

    @Test("the queue's files are readable by their owner only")
    func filesAreTheOwners() async throws {
        let test = try TestClient()
        try await test.track(0..<1)
        let path = test.directory.path + "/queue"
        for (file, mode) in [("", 0o700), ("/1.sqlite", 0o600), ("/1.sqlite-wal", 0o600), ("/1.lock", 0o600)] {
            let attributes = try FileManager.default.attributesOfItem(atPath: path + file)
            #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == mode, "\(file)")
        }
    }

    @Test("events that break a limit, or that JSON cannot hold, become dead letters with their reason and sequence (I12)")
    func unfitEventsBecomeDeadLetters() async throws {
        let test = try TestClient()
        test.client.track(String(repeating: "n", count: 201))
        test.client.track("good")
        test.client.track("infinite", properties: ["x": Double.infinity])
        test.client.track("large", properties: ["x": String(repeating: "x", count: 40_000)])
        test.client.track("late", time: Date(unixMilliseconds: -1))
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.flatMap(\.names) == ["good"])
        let deadLetters = try await test.client.deadLetters.list()
        #expect(deadLetters.map(\.reason) == ["name_too_long", "invalid_number", "event_too_large", "invalid_time"])
        let status = await test.client.status()
        #expect(status.created == 5 && status.deadLettered == 4 && status.stored == 1)
        #expect(status.isBalanced)
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
