import Foundation
import Testing

@testable import HapaxModel

/// I5: a receipt frees events only if it is the complete answer to exactly the batch that was sent.
@Suite(.endsWhenItHangs)
struct ReceiptTests {
    private let batch: EventID
    private let ids: [EventID]
    private let receipt: Receipt

    init() throws {
        var generator = UUIDv7Generator()
        batch = generator.next(unixMilliseconds: 1)
        ids = (0..<4).map { _ in generator.next(unixMilliseconds: 2) }
        receipt = Receipt(
            batchID: batch, received: 4, stored: 2,
            results: [
                .init(index: 1, eventID: ids[1], outcome: .duplicate),
                .init(index: 3, eventID: ids[3], outcome: .rejected, reason: "invalid_time", detail: "d"),
            ])
    }

    private func verdicts(_ change: (inout Receipt) -> Void) -> [Receipt.Result]? {
        var changed = receipt
        change(&changed)
        return changed.verdicts(for: batch, sent: ids)
    }

    @Test func completeReceiptGivesEachEventItsVerdict() throws {
        let verdicts = try #require(receipt.verdicts(for: batch, sent: ids))
        #expect(verdicts.map(\.outcome) == [.stored, .duplicate, .stored, .rejected])
        #expect(verdicts.map(\.eventID) == ids)
        #expect(verdicts.map(\.index) == [0, 1, 2, 3])
        #expect(verdicts[3].reason == "invalid_time")
    }

    @Test func resultsMayComeInAnyOrder() {
        #expect(verdicts { $0.results.reverse() }?.map(\.outcome) == [.stored, .duplicate, .stored, .rejected])
    }

    @Test func emptyBatchHasAnEmptyReceipt() {
        #expect(Receipt(batchID: batch, received: 0, stored: 0, results: []).verdicts(for: batch, sent: []) == [])
    }

    @Test("I5: each condition broken in turn is a refusal")
    func eachBrokenConditionIsARefusal() throws {
        let foreign = try #require(EventID(uuidString: EventText.idText))
        let broken: [(String, (inout Receipt) -> Void)] = [
            ("no batch id", { $0.batchID = nil }),
            ("another batch", { $0.batchID = foreign }),
            ("an event's id as batch id", { $0.batchID = ids[0] }),
            ("fewer received", { $0.received = 3 }),
            ("more received", { $0.received = 5 }),
            ("none received", { $0.received = 0 }),
            ("fewer stored", { $0.stored = 1 }),
            ("more stored", { $0.stored = 3 }),
            ("negative stored", { $0.stored = -1 }),
            ("more stored than received", { $0.stored = 6 }),
            ("counts that meet at the end of the range", { ($0.received, $0.stored) = (.max, .max - 2) }),
            ("counts below the range", { ($0.received, $0.stored) = (.min, .max) }),
            ("a result missing", { $0.results.removeLast() }),
            ("a result too many", { $0.results.append(.init(index: 0, eventID: ids[0], outcome: .duplicate)) }),
            ("index too large", { $0.results[1].index = 4 }),
            ("index at the end of the range", { $0.results[1].index = .max }),
            ("index negative", { $0.results[1].index = -1 }),
            ("index repeated", { $0.results[1] = $0.results[0] }),
            ("id of another event", { $0.results[0].eventID = ids[0] }),
            ("no id", { $0.results[0].eventID = nil }),
            ("stored among those not stored", { $0.results[0].outcome = .stored }),
        ]
        for (name, change) in broken { #expect(verdicts(change) == nil, "\(name)") }
        // A right one for other events.
        #expect(receipt.verdicts(for: foreign, sent: ids) == nil)
        #expect(receipt.verdicts(for: batch, sent: ids.reversed()) == nil)
        #expect(receipt.verdicts(for: batch, sent: Array(ids.dropLast())) == nil)
        #expect(receipt.verdicts(for: batch, sent: []) == nil)
    }

    @Test("DESIGN: an outcome that is not known means retry", arguments: ["quarantined", "", "Stored", "STORED", "duplicate "])
    func unknownOutcomeIsRetry(name: String) throws {
        let json = String(decoding: receipt.encoded(), as: UTF8.self).replacing("\"duplicate\"", with: "\"\(name)\"")
        let read = try Receipt(json: Array(json.utf8))
        #expect(read.verdicts(for: batch, sent: ids)?[1].outcome == .retry)
    }

    @Test func encodedReceiptIsReadBack() throws {
        #expect(try Receipt(json: receipt.encoded()) == receipt)
        var text = receipt
        text.results[1].detail = "\"\\\n\0é😀"
        #expect(try Receipt(json: text.encoded()) == text)
    }

    @Test func unknownFieldsAndOtherOrderAreRead() throws {
        let json = """
            {"x":[{"results":1}],"results":[{"detail":null,"outcome":"conflict","event_id":"\(ids[0].description.uppercased())","index":0,"y":1}],
             "stored":3,"received":4,"batch_id":"\(batch)"}
            """
        let read = try Receipt(json: Array(json.utf8))
        #expect(read.verdicts(for: batch, sent: ids)?.map(\.outcome) == [.conflict, .stored, .stored, .stored])
    }

    @Test(
        "I5: what is no receipt is unknown",
        arguments: [
            "", "null", "1", "[]", "{}", "<html><body>Please log in</body></html>", "{\"batch_id\":null}",
            #"{"batch_id":"x","received":1,"stored":1,"results":[]}"#, #"{"batch_id":null,"received":"1","stored":1,"results":[]}"#,
            #"{"batch_id":null,"received":1.5,"stored":1,"results":[]}"#,
            #"{"batch_id":null,"received":99999999999999999999,"stored":1,"results":[]}"#,
            #"{"batch_id":null,"received":1,"stored":1}"#, #"{"batch_id":null,"received":1,"stored":1,"results":null}"#,
            #"{"batch_id":null,"received":1,"stored":0,"results":[{"index":0,"event_id":null}]}"#,
            #"{"batch_id":null,"received":1,"stored":0,"results":[{"index":0,"event_id":"x","outcome":"retry"}]}"#,
            #"{"batch_id":null,"received":1,"stored":1,"results":[]}x"#,
        ])
    func foreignAnswerIsNoReceipt(text: String) {
        #expect(throws: (any Error).self) { try Receipt(json: Array(text.utf8)) }
    }

    @Test("I5: a receipt cut at any byte is unknown")
    func cutReceiptIsNoReceipt() {
        let whole = receipt.encoded()
        for length in 0..<whole.count {
            #expect(throws: (any Error).self) { try Receipt(json: Array(whole[..<length])) }
        }
    }

    @Test func deepAnswerDoesNotEndTheProcess() {
        let deep = "{\"x\":\(EventText.nested(200_000)),\"batch_id\":null,\"received\":0,\"stored\":0,\"results\":[]}"
        #expect(throws: (any Error).self) { try Receipt(json: Array(deep.utf8)) }
    }

    @Test func countsFollowTheResults() {
        #expect(receipt.duplicates == 1)
        #expect(receipt.rejected == 1)
    }

    @Test("control: a rule that looks at the counts alone would take a foreign receipt")
    func countsAloneAreNotEnough() throws {
        var foreign = receipt
        foreign.batchID = EventID(uuidString: EventText.idText)
        foreign.results[0].eventID = ids[0]
        #expect(foreign.received == ids.count && foreign.stored + foreign.results.count == ids.count)
        #expect(foreign.verdicts(for: batch, sent: ids) == nil)
    }
}
