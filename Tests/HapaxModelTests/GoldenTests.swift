import Foundation
import HapaxModel
import Testing

/// The wire of docs/protocol.md, byte for byte.
@Suite(.endsWhenItHangs)
struct GoldenTests {
    private let id = EventID(uuidString: "0199a385-187b-7abc-8def-0123456789ab")
    private let next = EventID(uuidString: "0199a385-187b-7abc-8def-0123456789ac")
    private let batch = EventID(uuidString: "0199a385-0000-7000-8000-000000000001")

    @Test func eventIsPinned() throws {
        let event = Event(
            id: try #require(id), name: "$AppStart", time: 1_763_679_999_000, distinctID: "u1", sequence: 41,
            properties: [
                "text": "\"\\/\u{8}\t\n\0\u{1F} é😀", "a": [:] as PropertyValue, "b": [] as PropertyValue, "$os": "Linux",
                "list": [nil, true, false, .integer(.min), 0.1, 1e300, -0.0] as PropertyValue,
            ])
        try Golden.expect(event.encoded().bytes, matches: "event.json")
        let smallest = Event(id: try #require(id), name: "e", time: 0, distinctID: "d")
        try Golden.expect(smallest.encoded().bytes, matches: "event-smallest.json")
    }

    @Test func envelopeIsPinned() throws {
        let events = [
            Event(id: try #require(id), name: "e", time: 0, distinctID: "d"),
            Event(id: try #require(next), name: "f", time: 1, distinctID: "d", sequence: 1, properties: ["k": 1]),
        ]
        let envelope = EventBatch.Envelope(
            batchID: batch, sentAt: 1_763_680_000_123, installID: EventID(uuidString: "0199a385-0000-7000-8000-000000000002"),
            reportVersion: 903,
            created: 4711, acknowledged: 40, held: [9...9, 12...14],
            removed: [.init(15...15, reason: "purged"), .init(20...22, reason: "a\"b")],
            refused: ["quota_full": 3, "opted_out": 1])
        try Golden.expect(
            EventBatch(envelope: envelope, events: events.map { $0.encoded().bytes }).encoded(), matches: "envelope.json")
        try Golden.expect(EventBatch(envelope: .init(), events: []).encoded(), matches: "envelope-smallest.json")
        let read = try ScannedBody(json: Golden.bytes("envelope.json")[...])
        #expect(read.envelope == envelope)
        #expect(read.events.map(\.id) == [id, next])
        #expect(read.events.allSatisfy { $0.problem == nil })
    }

    @Test func receiptIsPinned() throws {
        let receipt = Receipt(
            batchID: batch, received: 50, stored: 45,
            results: [
                .init(index: 3, eventID: id, outcome: .duplicate),
                .init(index: 7, eventID: next, outcome: .rejected, reason: "name_too_long", detail: "event is 301 bytes, limit 200"),
                .init(index: 8, eventID: EventID(uuidString: "0199a385-187b-7abc-8def-0123456789ad"), outcome: .conflict),
                .init(index: 9, eventID: EventID(uuidString: "0199a385-187b-7abc-8def-0123456789ae"), outcome: .expired),
                .init(index: 49, eventID: nil, outcome: .retry),
            ])
        try Golden.expect(receipt.encoded(), matches: "receipt.json")
        #expect(try Receipt(json: Golden.bytes("receipt.json")) == receipt)
        let smallest = Receipt(batchID: nil, received: 1, stored: 1, results: [])
        try Golden.expect(smallest.encoded(), matches: "receipt-smallest.json")
        #expect(try Receipt(json: Golden.bytes("receipt-smallest.json")) == smallest)
    }

    @Test func problemIsPinned() throws {
        let problem = RequestProblem(.bodyTooLarge, detail: "the body is 1048577 bytes, limit 1048576")
        try Golden.expect(problem.encoded(requestID: "r-1"), matches: "problem.json")
    }

    @Test("reasons, outcomes and codes keep their names and statuses")
    func namesArePinned() throws {
        let names =
            EventProblem.Reason.allCases.map { "reason \($0.rawValue)" } + Receipt.Outcome.allCases.map { "outcome \($0.rawValue)" }
            + RequestProblem.Code.allCases.map { "problem \($0.rawValue) \($0.status)" }
        try Golden.expect(Array(names.joined(separator: "\n").utf8), matches: "names.txt")
    }

    @Test("control: a difference of one byte is found and named")
    func differenceIsNamed() throws {
        var bytes = try Golden.bytes("event.json")
        #expect(Golden.difference(bytes, bytes) == nil)
        bytes[60] ^= 1
        #expect(try Golden.difference(bytes, Golden.bytes("event.json"))?.hasPrefix("from byte 60:") == true)
        bytes[60] ^= 1
        bytes.removeLast()
        #expect(try Golden.difference(bytes, Golden.bytes("event.json"))?.hasPrefix("from byte \(bytes.count):") == true)
    }
}
