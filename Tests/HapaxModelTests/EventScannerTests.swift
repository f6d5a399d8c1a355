import Foundation
import HapaxModel
import Testing

/// What is taken out of one event, and why one is refused.
@Suite(.endsWhenItHangs)
struct EventScannerTests {
    @Test func fieldsAreTakenOutAndPropertiesLeftRaw() {
        let properties = #"{ "a" : [1, 2.50, {"b":"A\n"}], "z":null }"#
        let event = EventText(["event": #""caf\u00e9""#, "distinct_id": "\"u😀\"", "sequence": "41", "time": "17", "properties": properties])
        let scanned = event.scanned
        #expect(scanned.problem == nil)
        #expect(scanned.id == EventID(uuidString: EventText.idText))
        #expect(String(decoding: scanned.name, as: UTF8.self) == "café")
        #expect(String(decoding: scanned.distinctID, as: UTF8.self) == "u😀")
        #expect(scanned.time == 17)
        #expect(scanned.sequence == 41)
        #expect(Array(scanned.properties) == Array(properties.utf8))
        #expect(Array(scanned.wire) == event.bytes)
    }

    @Test func slicesOfALargerBufferAreReadInPlace() {
        let padding: [UInt8] = Array("xxxxx".utf8)
        let event = EventText(["properties": "{\"k\":1}"])
        let buffer = padding + event.bytes + padding
        let scanned = EventScanner.scan(buffer[padding.count..<padding.count + event.bytes.count])
        #expect(scanned.problem == nil)
        #expect(Array(scanned.wire) == event.bytes)
        #expect(Array(scanned.properties) == Array("{\"k\":1}".utf8))
        #expect(scanned.wire.startIndex == padding.count)
        #expect(Array(scanned.name) == Array("e".utf8))
    }

    @Test func fieldsComeInAnyOrderAndUnknownOnesAreIgnored() {
        let scanned = scan(
            """
            { "properties":{"event":"inner"}, "x":[{"event_id":1}], "distinct_id":"d",
              "time":3, "y":{"time":"z"}, "event":"e", "":0, "event_id":"\(EventText.idText)" }
            """)
        #expect(scanned.problem == nil)
        #expect(scanned.time == 3)
        #expect(Array(scanned.properties) == Array(#"{"event":"inner"}"#.utf8))
    }

    @Test func keysMayBeWrittenWithEscapes() {
        let scanned = scan(
            #"{"event\u005fid":"\#(EventText.idText.replacing("-", with: #"\u002d"#))","\u0065vent":"e","tim\u0065":1,"distinct_id":"d"}"#)
        #expect(scanned.problem == nil)
        #expect(scanned.id == EventID(uuidString: EventText.idText))
    }

    @Test("I3: the last of repeated keys wins, also over one that was wrong")
    func lastOfRepeatedKeysWins() {
        let scanned = scan(
            """
            {"event_id":"nonsense","event_id":"\(EventText.otherIDText)","event":"","event":"last","time":-1,"time":2,"distinct_id":7,
             "distinct_id":"d","sequence":-5,"sequence":6,"properties":[],"properties":{"k":1}}
            """)
        #expect(scanned.problem == nil)
        #expect(scanned.id == EventID(uuidString: EventText.otherIDText))
        #expect(Array(scanned.name) == Array("last".utf8))
        #expect(scanned.time == 2)
        #expect(scanned.sequence == 6)
        #expect(Array(scanned.properties) == Array("{\"k\":1}".utf8))
    }

    @Test(
        "I3: a last one that is wrong refuses the event",
        arguments: [
            ("event_id", "1", EventProblem.Reason.invalidID), ("event", "1", .invalidName), ("time", "\"x\"", .invalidTime),
            ("distinct_id", "[]", .invalidDistinctID), ("sequence", "-1", .invalidSequence), ("properties", "1", .invalidProperties),
        ])
    func wrongLastOneRefuses(key: String, value: String, reason: EventProblem.Reason) {
        let scanned = scan(EventText(["sequence": "1"]).text.dropLast() + ",\"\(key)\":\(value)}")
        #expect(scanned.problem?.reason == reason)
        if key == "event_id" { #expect(scanned.id == nil) }
    }

    @Test(
        "each required field is missed by its own name",
        arguments: [
            ("event_id", EventProblem.Reason.missingID), ("event", .missingName), ("time", .missingTime),
            ("distinct_id", .missingDistinctID),
        ])
    func missingFieldIsNamed(key: String, reason: EventProblem.Reason) {
        #expect(EventText([key: nil]).problem == reason)
    }

    @Test func absentAndNullPropertiesAreEmpty() {
        for event in [EventText(["properties": nil]), EventText(["properties": "null"])] {
            #expect(event.problem == nil)
            #expect(Array(event.scanned.properties) == Array("{}".utf8))
        }
        for value in ["[]", "1", "\"x\"", "true"] { #expect(EventText(["properties": value]).problem == .invalidProperties) }
    }

    @Test("only an object is an event", arguments: ["", " ", "1", "null", "\"x\"", "[]", "[{}]", "true"])
    func otherValuesAreNotAnEvent(text: String) {
        #expect(scan(text).problem?.reason == .notAnObject)
    }

    @Test(
        "RFC 8259 is read strictly",
        arguments: [
            "{", "{,}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":1 \"b\":2}", "{a:1}", "{'a':1}", "{\"a\":01}", "{\"a\":+1}",
            "{\"a\":.5}",
            "{\"a\":1.}", "{\"a\":1e}", "{\"a\":1e+}", "{\"a\":-}", "{\"a\":0x1}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":True}",
            "{\"a\":nul}",
            "{\"a\":nulll}", "{\"a\":[1,]}", "{\"a\":[,1]}", "{\"a\":[1 2]}", "{\"a\":[1}", "{\"a\":{]}", "{\"a\":\"x}", "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12\"}", "{\"a\":\"\\u12g4\"}", "{\"a\":\"\\", "{\"a\":\"\\u", "{\"a\":\"\\u123", "{\"a\":\"\t\"}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\u{1F}\"}", "{\"a\":\"\0\"}", "{/**/}", "{\u{A0}}", "\u{FEFF}{}", "{\"a\" 1}", "{\"a\"::1}",
            "{1:2}", "{\"a\":--1}", "{\"a\":1-}", "{\"a\":}}",
        ])
    func malformedJSONIsRefused(text: String) {
        let problem = scan(text).problem
        #expect(problem?.reason == (text.hasPrefix("{") ? .invalidJSON : .notAnObject))
    }

    @Test func nothingMayFollowTheEvent() {
        for suffix in ["}", ",", "//", "\0", "{}", "1", "\u{A0}"] {
            #expect(scan(EventText().text + suffix).problem?.reason == .invalidJSON)
        }
    }

    @Test func allWhiteSpaceAndAllEscapesAreRead() {
        let text =
            "\r\n\t {\t\"event_id\"\n:\r \"\(EventText.idText)\" ,\"event\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20AC\",\"time\":1,\"distinct_id\":\"d\" } "
        let scanned = scan(text)
        #expect(scanned.problem == nil)
        #expect(String(decoding: scanned.name, as: UTF8.self) == "\"\\/\u{8}\u{C}\n\r\t€")
    }

    @Test("PROMISES: U+0000 is refused wherever a string may stand", arguments: ["event", "distinct_id", "properties", "unknown", "key"])
    func nulIsRefused(place: String) {
        let event =
            switch place {
            case "properties": EventText.properties(#"{"k":["a\u0000"]}"#)
            case "key": EventText.properties(#"{"\u0000":1}"#)
            default: EventText([place: #""\u0000""#])
            }
        #expect(event.problem == .nulCharacter)
        #expect(event.scanned.id == EventID(uuidString: EventText.idText))
    }

    @Test(
        "PROMISES: lone surrogates are refused",
        arguments: [
            #"\ud800"#, #"\udbff"#, #"\udc00"#, #"\uDFFF"#, #"\ud800x"#, #"\ud800\n"#, #"\ud800\u0041"#, #"\ud800\ud800"#, #"\udc00\ud800"#,
            #"\ud83d\ude00\ude00"#, #"\ud800\"#,
        ])
    func loneSurrogatesAreRefused(text: String) {
        let reason = EventText.properties("{\"k\":\"\(text)\"}").problem
        #expect(reason == .loneSurrogate)
    }

    @Test func surrogatePairsAreRead() {
        for text in [#"\ud83d\ude00"#, #"\uD83D\uDE00"#, "😀"] {
            let scanned = EventText(["event": "\"\(text)\""]).scanned
            #expect(scanned.problem == nil)
            #expect(String(decoding: scanned.name, as: UTF8.self) == "😀")
        }
        #expect(String(decoding: EventText(["event": #""\ud800\udc00\udbff\udfff""#]).scanned.name, as: UTF8.self) == "\u{10000}\u{10FFFF}")
    }

    @Test(
        "Unicode 15, table 3-7: overlong forms, surrogates, values beyond U+10FFFF, cut and stray bytes",
        arguments: [
            [0x80], [0xBF], [0xC0, 0x80], [0xC0, 0xAF], [0xC1, 0xBF], [0xC2], [0xC2, 0x22], [0xC2, 0xC2], [0xE0, 0x80, 0xAF],
            [0xE0, 0x9F, 0xBF],
            [0xE1, 0x80], [0xE1, 0x80, 0x41], [0xED, 0xA0, 0x80], [0xED, 0xBF, 0xBF], [0xF0, 0x80, 0x80, 0xAF], [0xF0, 0x8F, 0xBF, 0xBF],
            [0xF1, 0x80, 0x80], [0xF1, 0x80, 0x80, 0x41], [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80],
            [0xF8, 0x88, 0x80, 0x80, 0x80], [0xFE],
            [0xFF],
        ] as [[UInt8]])
    func malformedUTF8IsRefused(sequence: [UInt8]) {
        for key in ["event", "unknown"] {
            let around = EventText([key: "\"\u{1}\""]).bytes.split(separator: 1)
            let scanned = scan(around[0] + sequence + around[1])
            #expect(scanned.problem?.reason == .invalidUTF8)
            #expect(scanned.id == EventID(uuidString: EventText.idText))
        }
    }

    @Test func theEdgesOfWellFormedUTF8AreRead() {
        for scalar in ["\u{80}", "\u{7FF}", "\u{800}", "\u{D7FF}", "\u{E000}", "\u{FFFF}", "\u{10000}", "\u{10FFFF}", "\u{7F}"] {
            let scanned = EventText(["event": "\"\(scalar)\""]).scanned
            #expect(scanned.problem == nil)
            #expect(Array(scanned.name) == Array(scalar.utf8))
        }
    }

    @Test(
        "the id of a refused event is found wherever it stands, the last one",
        arguments: [
            #"{"event_id":"0199a385-187b-7abc-8def-0123456789ab","event":}"#,
            #"{"event":,"event_id":"0199a385-187b-7abc-8def-0123456789ab"}"#,
            #"{"event_id":"0199a385-187b-7abc-8def-0123456789ac","x":nope,"event_id":"0199A385-187B-7ABC-8DEF-0123456789AB"}"#,
            #"{"x":{"event_id":"0199a385-187b-7abc-8def-0123456789ac"},"event\u005fid":"0199a385-187b-7abc-8def-0123456789ab","y":nope}"#,
            #"{"event_id":1,"x":nope,"event_id":"0199a385-187b-7abc-8def-0123456789ab"}"#,
        ])
    func idOfARefusedEventIsFound(text: String) {
        let scanned = scan(text)
        #expect(scanned.problem?.reason == .invalidJSON)
        #expect(scanned.id == EventID(uuidString: EventText.idText))
    }

    @Test(
        "no id is made up for a refused event",
        arguments: [
            "{\"event_id\":nope}", "{\"x\":{\"event_id\":\"\(EventText.idText)\"},nope}", "[\"event_id\":\"\(EventText.idText)\"]",
            "\"event_id\":\"\(EventText.idText)\"", "{\"event_id\":\"\(EventText.idText)\",\"event_id\":nope}",
            "1 {\"event_id\":\"\(EventText.idText)\"}",
        ])
    func noIDIsMadeUp(text: String) {
        #expect(scan(text).problem != nil)
        #expect(scan(text).id == nil)
    }

    @Test("I14: an explanation holds nothing of the event")
    func explanationsHoldNoContent() {
        let secret = "s3cret"
        for event in [
            EventText(["event": "\"\(String(repeating: secret, count: 60))\""]), EventText(["event_id": "\"\(secret)\""]),
            EventText(["time": "\"\(secret)\""]), EventText.properties("{\"\(secret)\":\(secret)}"),
            EventText(["properties": "\"\(secret)\""]),
        ] {
            #expect(event.scanned.problem != nil)
            #expect(event.scanned.problem?.detail.contains(secret) == false)
        }
    }

    @Test(
        "S15: a whole number is one however it is written",
        arguments: [
            ("1763679999000.0", 1_763_679_999_000), ("1.763679999e12", 1_763_679_999_000), ("17636799990000E-1", 1_763_679_999_000),
            ("0.0", 0), ("-0.0", 0), ("0e999", 0), ("0.00001e+5", 1),
            ("253402300799999.000000000000000000000000000000", 253_402_300_799_999),
            ("1.5", nil), ("1e-1", nil), ("1e19", nil), ("1e900", nil), ("9223372036854775808.0", nil), ("-1.0", nil),
            ("0.100000000000000000000000000001e1", nil),
        ] as [(String, Int64?)])
    func wholeNumbersAreTakenByValue(text: String, value: Int64?) {
        let event = EventText(["time": text, "sequence": text]).scanned
        #expect(event.problem == nil ? event.time == value && event.sequence == value : value == nil)
    }

    @Test(
        "S15: a time in another unit is refused with the unit that it looks like",
        arguments: [
            ("1763679999.25", "seconds"), ("1763679999000000", "microseconds"), ("1763679999000000000", "nanoseconds"),
            ("\"2026-01-01\"", "milliseconds"),
        ])
    func unitOfTimeIsNamed(text: String, unit: String) {
        #expect(EventText(["time": text]).scanned.problem?.detail.contains(unit) == true)
    }

    @Test func theClientsCheckIsTheServersScan() {
        #expect(EventScanner.check(EventText().bytes) == nil)
        #expect(EventScanner.check(EventText(["time": "-1"]).bytes)?.reason == .invalidTime)
        #expect(EventScanner.check([])?.reason == .notAnObject)
    }
}
