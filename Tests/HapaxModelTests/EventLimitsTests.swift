import HapaxModel
import Testing

/// Every limit of docs/protocol.md at n−1, n and n+1: what is allowed, what is refused, and by which name.
@Suite(.endsWhenItHangs)
struct EventLimitsTests {
    @Test("the limits are those of docs/protocol.md")
    func valuesArePinned() {
        #expect(EventLimits.maximumTime == 253_402_300_799_999)
        #expect(EventLimits.maximumNameBytes == 200)
        #expect(EventLimits.maximumDistinctIDBytes == 200)
        #expect(EventLimits.maximumEventBytes == 32_768)
        #expect(EventLimits.maximumDepth == 32)
        #expect(EventLimits.maximumKeysPerObject == 256)
        #expect(EventLimits.maximumNumberCharacters == 64)
        #expect(EventLimits.maximumEventsPerBatch == 1_000)
        #expect(EventLimits.maximumBodyBytes == 1_048_576)
        #expect(EventLimits.maximumDecompressedBodyBytes == 8_388_608)
        #expect(EventLimits.maximumClientBatchBytes == 524_288)
    }

    @Test(arguments: [
        ("-1", false), ("0", true), ("1", true), ("253402300799998", true), ("253402300799999", true), ("253402300800000", false),
        ("9223372036854775807", false), ("9223372036854775808", false), ("-9223372036854775808", false), ("1.5", false), ("1e-3", false),
        ("\"1\"", false), ("null", false), ("true", false), ("[]", false), ("-0", true), ("00", false),
        ("99999999999999999999999999999999999999999999999999999999999999", false),
    ])
    func timeIsAMillisecondUpToTheYear9999(text: String, isAllowed: Bool) {
        let event = EventText(["time": text])
        #expect(event.problem == (isAllowed ? nil : text == "00" ? .invalidJSON : .invalidTime))
        if isAllowed { #expect(event.scanned.time == Int64(text)) }
    }

    @Test(arguments: [
        ("-1", false), ("0", true), ("9223372036854775806", true), ("9223372036854775807", true), ("9223372036854775808", false),
        ("18446744073709551617", false), ("1.5", false), ("\"1\"", false), ("true", false),
    ])
    func sequenceIsNotNegativeAndFitsInABigint(text: String, isAllowed: Bool) {
        let event = EventText(["sequence": text])
        #expect(event.problem == (isAllowed ? nil : .invalidSequence))
        #expect(event.scanned.sequence == (isAllowed ? Int64(text) : nil))
    }

    @Test func absentAndNullSequenceAreNone() {
        #expect(EventText().scanned.sequence == nil)
        #expect(EventText(["sequence": "null"]).problem == nil)
        #expect(EventText(["sequence": "null"]).scanned.sequence == nil)
    }

    @Test(arguments: [("event", EventProblem.Reason.nameTooLong), ("distinct_id", .distinctIDTooLong)])
    func textLimitsCountUnescapedBytes(key: String, reason: EventProblem.Reason) {
        for unit in ["x", #"\n"#, #"\u0041"#] {
            #expect(EventText([key: "\"\(String(repeating: unit, count: 199))\""]).problem == nil)
            #expect(EventText([key: "\"\(String(repeating: unit, count: 200))\""]).problem == nil)
            #expect(EventText([key: "\"\(String(repeating: unit, count: 201))\""]).problem == reason)
        }
        // Two bytes as UTF-8, six as an escape.
        for unit in ["é", #"\u00e9"#] {
            #expect(EventText([key: "\"\(String(repeating: unit, count: 100))\""]).problem == nil)
            #expect(EventText([key: "\"\(String(repeating: unit, count: 100))x\""]).problem == reason)
        }
        // Four bytes, as UTF-8 and as a pair of escapes.
        for unit in ["😀", #"\ud83d\ude00"#] {
            #expect(EventText([key: "\"\(String(repeating: unit, count: 50))\""]).problem == nil)
            #expect(EventText([key: "\"\(String(repeating: unit, count: 50))x\""]).problem == reason)
        }
    }

    @Test(arguments: [("event", EventProblem.Reason.invalidName), ("distinct_id", .invalidDistinctID)])
    func emptyTextIsNoText(key: String, reason: EventProblem.Reason) {
        for value in ["\"\"", "1", "null", "{}", "[\"x\"]", "false"] { #expect(EventText([key: value]).problem == reason) }
        #expect(EventText([key: "\" \""]).problem == nil)
    }

    @Test func eventBytesAreCountedFromBraceToBrace() {
        let overhead = EventText(["properties": "\"\""]).bytes.count - 2 + 8
        for (excess, reason) in [(-1, nil), (0, nil), (1, EventProblem.Reason.eventTooLarge)] {
            let filler = String(repeating: "x", count: EventLimits.maximumEventBytes - overhead + excess)
            let event = EventText.properties("{\"k\":\"\(filler)\"}")
            #expect(event.bytes.count == EventLimits.maximumEventBytes + excess)
            #expect(event.problem == reason)
            // White space around it belongs to the line or the array.
            #expect(scan("  \(event.text) \r\n").problem?.reason == reason)
        }
    }

    @Test("nesting of objects, of arrays and of both, inside properties and in an unknown field")
    func depthIsCountedFromTheEvent() {
        for (depth, reason) in [(31, nil), (32, nil), (33, EventProblem.Reason.tooDeep), (34, .tooDeep), (300, .tooDeep)] {
            // The event is the first level, its properties the second.
            let arrays = "{\"k\":\(EventText.nested(depth - 2))}"
            let objects = EventText.nested(depth - 1, open: "{\"k\":", close: "}", inner: "1")
            #expect(EventText.properties(arrays).problem == reason, "\(depth)")
            #expect(EventText.properties(objects).problem == reason, "\(depth)")
            #expect(EventText(["unknown": EventText.nested(depth - 1)]).problem == reason, "\(depth)")
        }
        // As often closed as opened: wide is not deep.
        #expect(EventText.properties("{\"k\":[\(Array(repeating: "[[]]", count: 500).joined(separator: ","))]}").problem == nil)
    }

    @Test func keysAreCountedInEachObject() {
        for (keys, reason) in [(255, nil), (256, nil), (257, EventProblem.Reason.tooManyKeys)] {
            #expect(EventText.properties(EventText.object(keys: keys)).problem == reason)
            #expect(EventText.properties("{\"k\":[1,\(EventText.object(keys: keys))]}").problem == reason)
            #expect(EventText(["unknown": EventText.object(keys: keys)]).problem == reason)
            // The event itself; five keys are there already.
            let more = (0..<(keys - 5)).map { "\"u\($0)\":0" }.joined(separator: ",")
            #expect(scan(EventText().text.dropLast() + ",\(more)}").problem?.reason == reason)
            // Repeated keys count each time.
            let repeated = Array(repeating: "\"k\":0", count: keys).joined(separator: ",")
            #expect(EventText.properties("{\(repeated)}").problem == reason)
        }
        // The count starts again in each object.
        let half = EventText.object(keys: 200)
        #expect(EventText.properties("{\"a\":\(half),\"b\":\(half),\"c\":[\(half),\(half)]}").problem == nil)
    }

    @Test func numbersHaveSixtyFourCharacters() {
        for (count, reason) in [(63, nil), (64, nil), (65, EventProblem.Reason.invalidNumber)] {
            for number in [
                String(repeating: "9", count: count), "-" + String(repeating: "1", count: count - 1),
                "0." + String(repeating: "3", count: count - 2), "1e" + String(repeating: "0", count: count - 2),
            ] {
                #expect(EventText.properties("{\"n\":\(number)}").problem == reason, "\(number)")
                #expect(EventText(["unknown": number]).problem == reason, "\(number)")
            }
        }
        #expect(EventText.properties("{\"n\":\(String(repeating: "1", count: 30_000))}").problem == .invalidNumber)
    }

    @Test func numbersAreFiniteAsADouble() {
        for number in ["1e308", "1.7976931348623157e308", "-1e308", "5e-324", "1e-400", "1e-1000", "0e1000", "0.0E+1000"] {
            #expect(EventText.properties("{\"n\":\(number)}").problem == nil, "\(number)")
        }
        for number in ["1e309", "1.7976931348623159e308", "-1e309", "1e999", "1e-1001", "0e1001", "1e99999999999999999999"] {
            #expect(EventText.properties("{\"n\":\(number)}").problem == .invalidNumber, "\(number)")
        }
    }

    @Test func aBatchHoldsAThousandEvents() throws {
        for (count, isAllowed) in [(999, true), (1_000, true), (1_001, false)] {
            let array = "[" + Array(repeating: EventText().text, count: count).joined(separator: ",") + "]"
            let lines = Array(repeating: EventText().text, count: count).joined(separator: "\n")
            if isAllowed {
                #expect(try ScannedBody(json: Array(array.utf8)[...]).events.count == count)
                #expect(try ScannedBody(json: Array("{\"events\":\(array)}".utf8)[...]).events.count == count)
                #expect(try ScannedBody(lines: Array(lines.utf8)[...]).events.count == count)
            } else {
                let refusals = [
                    #expect(throws: BodyProblem.self) { try ScannedBody(json: Array(array.utf8)[...]) },
                    #expect(throws: BodyProblem.self) { try ScannedBody(json: Array("{\"events\":\(array)}".utf8)[...]) },
                    #expect(throws: BodyProblem.self) { try ScannedBody(lines: Array(lines.utf8)[...]) },
                ]
                #expect(refusals.map { $0?.code } == [.tooManyEvents, .tooManyEvents, .tooManyEvents])
            }
        }
    }

    @Test func sentAtHasTheLimitsOfTime() throws {
        for (text, value) in [
            ("0", 0), ("253402300799999", 253_402_300_799_999), ("253402300800000", nil), ("-1", nil), ("1.5", nil), ("\"1\"", nil),
        ] as [(String, Int64?)] {
            #expect(try ScannedBody(json: Array("{\"sent_at\":\(text),\"events\":[]}".utf8)[...]).envelope.sentAt == value)
        }
    }

    @Test func anExplanationIsCutAtItsLimit() {
        for count in [199, 200, 201, 5_000] {
            let problem = EventProblem(.refusedByStore, detail: String(repeating: "x", count: count))
            #expect(problem.detail.utf8.count == min(count, EventLimits.maximumDetailBytes))
        }
        // Never in the middle of a character.
        let wide = EventProblem(.refusedByStore, detail: "x" + String(repeating: "é", count: 200))
        #expect(wide.detail == "x" + String(repeating: "é", count: 99))
    }
}
