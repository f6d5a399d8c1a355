import Foundation
import HapaxModel
import Testing

/// What is found in a request's body, and that a bad event costs only itself (I8).
@Suite(.endsWhenItHangs)
struct ScannedBodyTests {
    private static let good = EventText().text
    private static let other = EventText(["event_id": "\"\(EventText.otherIDText)\""]).text

    private func read(_ text: String) throws -> ScannedBody {
        try ScannedBody(json: Array(text.utf8)[...])
    }

    // MARK: - Forms

    @Test func envelopesAndBareArraysAreRead() throws {
        #expect(try read("{\"events\":[\(Self.good)]}").events.count == 1)
        #expect(
            try read(" [ \(Self.good) , \(Self.other) ] \n").events.map(\.id?.description) == [EventText.idText, EventText.otherIDText])
        #expect(try read("[]").events.isEmpty)
        #expect(try read("{\"events\":[]}").events.isEmpty)
        #expect(try read(#"{"\u0065vents":[]}"#).events.isEmpty)
    }

    @Test("S15: a byte order mark in front is skipped") func byteOrderMarkIsSkipped() throws {
        #expect(try read("\u{FEFF}[\(Self.good)]").events.map(\.problem) == [nil])
        #expect(try ScannedBody(lines: Array("\u{FEFF}\(Self.good)\n\(Self.other)".utf8)[...]).events.map(\.problem) == [nil, nil])
    }

    @Test("S15: events sent as if they were a batch are told how they are sent", arguments: [good, good + "\n" + other])
    func eventInPlaceOfABatchIsNamed(text: String) {
        #expect(#expect(throws: BodyProblem.self) { try read(text) }?.detail.contains("application/x-ndjson") == true)
        #expect(#expect(throws: BodyProblem.self) { try read("{}") }?.detail == "events is missing")
    }

    @Test func linesAreReadEachByItself() throws {
        let text = "\n\(Self.good)\r\n  \n{broken\n\(Self.other)"
        let body = try ScannedBody(lines: Array(text.utf8)[...])
        #expect(body.events.map(\.problem?.reason) == [nil, .invalidJSON, nil])
        #expect(body.events.map(\.id?.description) == [EventText.idText, nil, EventText.otherIDText])
        #expect(try ScannedBody(lines: []).events.isEmpty)
    }

    @Test(
        "the whole body is refused, and nothing of it stored",
        arguments: [
            "", " ", "1", "null", "\"x\"", "{}", "{\"events\":null}", "{\"events\":{}}", "{\"events\":1}", "{\"events\":[]",
            "{\"events\":[]}x",
            "{\"events\":[]}{}", "[]]", "[", "{", "{\"events\":[],\"events\":[]}", "{\"events\":[],}", "{\"events\" []}",
            "{\"x\":nope,\"events\":[]}",
            "{\"x\":[1,\"events\":[]}", "{x:1,\"events\":[]}", "{\"batch_id\":,\"events\":[]}", "{\"refused\":{\"a\" 1},\"events\":[]}",
            "{\"refused\":{\"a\":1,\"events\":[]}", "\u{FEFF}\u{FEFF}[]",
        ])
    func unreadableBodyIsRefused(text: String) {
        #expect(throws: BodyProblem.self) { try read(text) }
    }

    // MARK: - Envelope

    @Test func envelopeFieldsAreTakenOut() throws {
        let envelope = try read(
            """
            {"events":[],"created":4711,"refused": { "queue_full" : 3 , "opted_out":1 },"install_id":"\(EventText.idText.uppercased())",
             "sent_at":5,"batch_id":"\(EventText.otherIDText)","unknown":{"events":[1]}}
            """
        ).envelope
        #expect(
            envelope
                == EventBatch.Envelope(
                    batchID: EventID(uuidString: EventText.otherIDText), sentAt: 5, installID: EventID(uuidString: EventText.idText),
                    created: 4711,
                    refused: ["queue_full": 3, "opted_out": 1]))
    }

    @Test(
        "DESIGN: an unusable optional field is ignored, never refused",
        arguments: [
            #""batch_id":1"#, #""batch_id":"nonsense""#, #""batch_id":null"#, #""batch_id":{"a":[1]}"#,
            #""batch_id":"00000000-0000-0000-0000-000000000000""#, #""install_id":[]"#, #""install_id":true"#, #""sent_at":-1"#,
            #""sent_at":253402300800000"#, #""sent_at":1.5"#, #""sent_at":"5""#, #""sent_at":1e999"#, #""created":-1"#,
            #""created":99999999999999999999"#, #""created":null"#, #""refused":1"#,
            #""report_version":0"#, #""report_version":"1""#, #""acknowledged":-1"#, #""held":{}"#, #""held":[1]"#, #""held":[[1]]"#,
            #""held":[[2,1]]"#,
            #""held":[[-1,1]]"#, #""held":[[1,2,3]]"#, #""held":[[1,1],[1,1.5]]"#, #""held":[["1","2"]]"#, #""removed":[[1,2]]"#,
            #""removed":[[1,2,3]]"#, #""removed":[[1,2,"a","b"]]"#, #""removed":[[1,2,null]]"#, #""refused":[]"#, #""refused":{"a":-1}"#,
            #""refused":{"a":"x"}"#, #""refused":{"a":{"b":1}}"#, #""refused":{"a":1e999}"#,
            #""batch_id":"\u0000""#,
            #""batch_id":"\ud800""#, #""unknown":"\udc00""#, #""unknown":1e400"#,
        ])
    func unusableFieldIsIgnored(field: String) throws {
        let body = try read("{\(field),\"events\":[\(Self.good)],\(field)}")
        #expect(body.envelope == EventBatch.Envelope())
        #expect(body.events.map(\.problem) == [nil])
    }

    @Test func deepWideAndLongOptionalFieldsAreIgnored() throws {
        for value in [
            EventText.nested(33), EventText.nested(5_000), EventText.object(keys: 257), String(repeating: "1", count: 65),
            "{\"a\":\(EventText.nested(40))}",
        ] {
            for key in ["unknown", "batch_id", "held", "removed", "refused"] {
                let body = try read("{\"\(key)\":\(value),\"events\":[\(Self.good)]}")
                #expect(body.envelope.batchID == nil)
                #expect(body.events.map(\.problem) == [nil])
            }
        }
    }

    @Test func dropReasonsAreBounded() throws {
        for (count, expected) in [(31, 31), (32, 32), (33, 32)] {
            let refused = (0..<count).map { "\"r\($0)\":1" }.joined(separator: ",")
            #expect(try read("{\"refused\":{\(refused)},\"events\":[]}").envelope.refused.count == expected)
        }
        let long = String(repeating: "x", count: 201)
        #expect(try read("{\"refused\":{\"\(long)\":1,\"a\":2},\"events\":[]}").envelope.refused == ["a": 2])
    }

    @Test("what an install says of itself is read in any layout, and its ranges are bounded (I13)")
    func whatAnInstallSaysIsRead() throws {
        let said = try read(
            #"{"held" : [ [ 9 , 9 ] ,[12,14]],"removed":[[1,2,"pur\u0067ed"]],"refused":{"quota_full":3},"report_version":7,"acknowledged":8,"events":[]}"#
        ).envelope
        #expect(
            said
                == EventBatch.Envelope(
                    reportVersion: 7, acknowledged: 8, held: [9...9, 12...14], removed: [.init(1...2, reason: "purged")],
                    refused: ["quota_full": 3]))
        for (count, expected) in [(999, 999), (1_000, 1_000), (1_001, 1_000)] {
            let held = (0..<count).map { "[\($0),\($0)]" }.joined(separator: ",")
            let gone = (0..<count).map { "[\($0),\($0),\"r\"]" }.joined(separator: ",")
            let envelope = try read("{\"held\":[\(held)],\"removed\":[\(gone)],\"events\":[]}").envelope
            #expect(envelope.held.count == expected && envelope.removed.count == expected)
        }
        let long = String(repeating: "x", count: 201)
        #expect(try read("{\"removed\":[[1,2,\"\(long)\"]],\"events\":[]}").envelope.removed == [])
    }

    // MARK: - I8

    @Test(
        "I8: a bad event in the middle costs only itself",
        arguments: [
            "1", "null", "\"x\"", "[]", "[[{}]]", "{}", "{\"event_id\":}", "{\"a\":01}", "{\"a\":\"\t\"}", "{\"a\":\"\\x\"}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":[1,}", "{nope}", "nope", "-", "{\"a\":\"}]{[\\\"\",}", "{\"a\":{\"b\":[{]}}", "",
        ])
    func badEventCostsOnlyItself(bad: String) throws {
        for form in ["[\(Self.good),\(bad),\(Self.other)]", "{\"events\":[\(Self.good),\(bad),\(Self.other)]}"] {
            // Brackets that do not pair leave no way to find the next event: the whole body is refused.
            if bad.contains("[{]") || bad.contains("[1,}") {
                #expect(throws: BodyProblem.self) { try read(form) }
                continue
            }
            let body = try read(form)
            #expect(body.events.map { $0.problem == nil } == [true, false, true], "\(bad)")
            #expect(body.events.map(\.id?.description) == [EventText.idText, nil, EventText.otherIDText], "\(bad)")
        }
    }

    @Test("I8: an event that is no object does not take its neighbour's id")
    func neighbourKeepsItsID() throws {
        for bad in ["1", "null", "nope", "\"x\"", "[1]"] {
            let body = try read("[\(bad),\(Self.good)]")
            #expect(body.events.map(\.id?.description) == [nil, EventText.idText])
        }
    }

    @Test func wireOfEachEventIsExactlyItsOwn() throws {
        let bad = "{\"a\": nope }"
        let body = try read("[ \(Self.good) ,\(bad), \(Self.other)]")
        #expect(body.events.map { String(decoding: $0.wire, as: UTF8.self) } == [Self.good, bad, Self.other])
    }

    @Test("mismatched brackets refuse the whole body", arguments: ["{\"a\":[}", "{]", "[}", "{\"a\":\"", "{\"a\":[1}]", "{{}", "[[]"])
    func mismatchedBracketsRefuseTheBody(bad: String) {
        #expect(throws: BodyProblem.self) { try read("[\(Self.good),\(bad),\(Self.other)]") }
    }

    @Test func eventsBesideARefusedOneKeepTheirOutcomeForEachKindOfProblem() throws {
        let refused: [(EventText, EventProblem.Reason)] = [
            (EventText(["event_id": nil]), .missingID), (EventText(["time": "-1"]), .invalidTime),
            (EventText.properties("{\"k\":\(EventText.nested(31))}"), .tooDeep),
            (EventText.properties(EventText.object(keys: 257)), .tooManyKeys),
            (EventText.properties("{\"k\":1e999}"), .invalidNumber), (EventText.properties(#"{"k":"\u0000"}"#), .nulCharacter),
            (EventText.properties("{\"k\":\"\(String(repeating: "x", count: 40_000))\"}"), .eventTooLarge),
        ]
        let texts = refused.flatMap { [$0.0.text, Self.other] }
        let body = try read("[\(texts.joined(separator: ","))]")
        #expect(body.events.map(\.problem?.reason) == refused.flatMap { [$0.1, nil] })
    }
}
