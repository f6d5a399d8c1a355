import Foundation
import TestSupport
import Testing

@testable import HapaxModel

/// The one writer of the wire, against Foundation's reader.
@Suite(.endsWhenItHangs)
struct JSONWriterTests {
    private func readBack(_ properties: Properties) -> PropertyValue? {
        var writer = JSONWriter()
        writer.object(properties)
        #expect(writer.unencodable == nil)
        return ForeignReader.read(writer.bytes)
    }

    @Test func everyScalarBelow256AndTheEdgesAreReadBack() {
        let scalars = (0..<256).map { UInt32($0) } + [0x7FF, 0x800, 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
        for scalar in scalars.compactMap(Unicode.Scalar.init) {
            let text = "a\(Character(scalar))b"
            #expect(readBack([text: text]) == [text: .string(text)], "U+\(String(scalar.value, radix: 16))")
        }
    }

    @Test(arguments: [Int64.min, -1, 0, 1, 9_007_199_254_740_993, .max])
    func integersAreExact(number: Int64) {
        #expect(readBack(["n": number]) == ["n": .integer(number)])
    }

    @Test(arguments: [
        0.0, -0.0, 0.1, 1.0 / 3, 1e15, 1e16, 1e17, 123_456_789.125, .leastNonzeroMagnitude, .leastNormalMagnitude, .greatestFiniteMagnitude,
        -1e-7, 1e22,
        .pi,
    ])
    func doublesAreExact(number: Double) throws {
        let expected = Int64(exactly: number).map { PropertyValue.integer($0) } ?? .double(number)
        #expect(readBack(["n": number]) == ["n": expected])
        let event = try #require(EventID(uuidString: EventText.idText)).event(properties: ["n": number])
        #expect(EventScanner.check(event.encoded().bytes) == nil)
    }

    @Test(arguments: [Double.nan, .infinity, -.infinity, .signalingNaN])
    func whatJSONCannotHoldIsNamed(number: Double) throws {
        let encoded = try #require(EventID(uuidString: EventText.idText)).event(properties: ["a": 1, "n": [number]]).encoded()
        #expect(encoded.problem?.reason == .invalidNumber)
        // It is JSON all the same, so that the dead letters can keep it.
        #expect(EventScanner.check(encoded.bytes) == nil)
    }

    @Test("a number that neither 64 bits nor a double hold keeps its digits; a text that is none condemns its event (I3)")
    func numbersKeepTheirDigits() throws {
        let id = try #require(EventID(uuidString: EventText.idText))
        let cases: [(PropertyValue, text: String?)] = [
            (UInt64.max.propertyValue, "18446744073709551615"),
            (try #require(Decimal(string: "0.12345678901234567890")).propertyValue, nil),
            (.number("1e400"), nil), (.number("1}"), nil), (.number(""), nil), (.number("01"), nil), (.number("nan"), nil),
            (.number(String(repeating: "1", count: 64)), String(repeating: "1", count: 64)),
            (.number(String(repeating: "1", count: 65)), nil), (Decimal.nan.propertyValue, nil),
            (try #require(Decimal(string: "-12.50")).propertyValue, "-12.5"),
        ]
        for (value, text) in cases {
            let encoded = id.event(properties: ["n": value]).encoded()
            let isDecimal = value == .number("0.1234567890123456789")
            #expect((encoded.problem?.reason == .invalidNumber) == (text == nil && !isDecimal), "\(value)")
            #expect((try? JSONSerialization.jsonObject(with: Data(encoded.bytes))) != nil || value == .number("1e400"), "\(value)")
            if let text { #expect(String(decoding: encoded.bytes, as: UTF8.self).contains("\"n\":\(text)}")) }
        }
    }

    @Test func nestingWithoutEndIsCutAndNamed() throws {
        var value = PropertyValue.integer(1)
        for level in 0..<10_000 { value = level.isMultiple(of: 2) ? .array([value]) : .object(["k": value]) }
        let encoded = try #require(EventID(uuidString: EventText.idText)).event(properties: ["deep": value]).encoded()
        #expect(encoded.problem?.reason == .tooDeep)
        #expect(EventScanner.check(encoded.bytes)?.reason == .tooDeep)
        #expect(throws: Never.self) { try JSONSerialization.jsonObject(with: Data(encoded.bytes)) }
    }

    @Test("depth 32 is written whole and allowed, 33 is written whole and refused")
    func depthIsWrittenAsItIs() throws {
        for (depth, reason) in [(31, nil), (32, nil), (33, EventProblem.Reason.tooDeep)] {
            // The event and its properties are two levels.
            var value = PropertyValue.integer(1)
            for _ in 0..<(depth - 2) { value = [value] }
            let encoded = try #require(EventID(uuidString: EventText.idText)).event(properties: ["k": value]).encoded()
            #expect(encoded.problem?.reason == reason)
            #expect(EventScanner.check(encoded.bytes)?.reason == reason)
        }
    }

    @Test("the same event is always the same bytes: keys in order")
    func keysAreSorted() throws {
        let keys = (0..<100).map { "key\($0)" }
        var writer = JSONWriter()
        writer.object(Dictionary(uniqueKeysWithValues: keys.shuffled().map { ($0, PropertyValue.null) }))
        let text = String(decoding: writer.bytes, as: UTF8.self)
        #expect(text == "{" + keys.sorted().map { "\"\($0)\":null" }.joined(separator: ",") + "}")
    }

    @Test("what writing an event tells about its limits is what the scanner finds, at n − 1, n and n + 1 of each (I13)")
    func problemIsTheScanners() throws {
        let id = try #require(EventID(uuidString: EventText.idText))
        var events: [Event] = []
        for count in [0, 1, 199, 200, 201] {
            let text = String(repeating: "n", count: count)
            events.append(Event(id: id, name: text, time: 1, distinctID: "u"))
            events.append(Event(id: id, name: "e", time: 1, distinctID: text))
            events.append(Event(id: id, name: "\u{1F600}" + text.dropLast(3), time: 1, distinctID: "\"\\\n" + text.dropLast(2)))
        }
        for keys in [255, 256, 257] {
            let object = Dictionary(uniqueKeysWithValues: (0..<keys).map { ("k\($0)", PropertyValue.null) })
            events.append(Event(id: id, name: "e", time: 1, distinctID: "u", properties: Properties(object)))
            events.append(Event(id: id, name: "e", time: 1, distinctID: "u", properties: ["in": [object]]))
        }
        let room =
            EventLimits.maximumEventBytes - Event(id: id, name: "e", time: 1, distinctID: "u", properties: ["k": ""]).encoded().bytes.count
        for count in [room - 1, room, room + 1] {
            events.append(
                Event(id: id, name: "e", time: 1, distinctID: "u", properties: ["k": String(repeating: "x", count: count)]))
        }
        for time in [-1, 0, EventLimits.maximumTime, EventLimits.maximumTime + 1, .max, .min] {
            events.append(Event(id: id, name: "e", time: time, distinctID: "u"))
            events.append(Event(id: id, name: "e", time: 1, distinctID: "u", sequence: time))
        }
        for text in ["a\0b", "\0", "plain", "\u{1}", "\u{7F}", "12345678\0"] {
            events.append(Event(id: id, name: text, time: 1, distinctID: "u"))
            events.append(Event(id: id, name: "e", time: 1, distinctID: text, properties: [text: text]))
        }
        for number in [Double.greatestFiniteMagnitude, .leastNonzeroMagnitude, -0.0, 1e300, 123_456_789.123_456_78] {
            events.append(Event(id: id, name: "e", time: 1, distinctID: "u", properties: ["n": number, "i": Int64.min]))
        }
        var found: [EventProblem.Reason: Int] = [:]
        for event in events {
            let encoded = event.encoded()
            let problem = EventScanner.check(encoded.bytes)
            #expect(encoded.problem == problem)
            if let problem { found[problem.reason, default: 0] += 1 }
        }
        #expect(found.count >= 8, "the limits were met: \(found)")
    }

    @Test("properties laid over others are the same bytes as both joined; the own ones win (R57)")
    func layeredPropertiesAreJoined() throws {
        var random = SeededRandom(seed: 57)
        let names = [
            "", "$", "$os", "$os_version", "$lib", "a", "aaaaaaaa", "aaaaaaaab", "aaaaaaab", "ä", "z\u{0301}", "\u{1F600}", "b\"q",
            "12345678", "123456789",
        ]
        for round in 0..<300 {
            func some() -> Properties {
                var properties: Properties = [:]
                for name in names where Bool.random(using: &random) { properties[name] = .integer(Int64.random(in: 0...9, using: &random)) }
                if round % 10 == 0 { for number in 0..<40 { properties["key \(number)"] = [.integer(Int64(number))] } }
                return properties
            }
            let (base, own) = (some(), some())
            let id = try #require(EventID(uuidString: EventText.idText))
            let joined = Event(id: id, name: "e", time: 1, distinctID: "u", properties: base.merging(own)).encoded()
            let layered = Event(id: id, name: "e", time: 1, distinctID: "u", properties: own).encoded(over: EncodedProperties(base))
            #expect(layered.bytes == joined.bytes)
        }
    }

    @Test("what JSON cannot hold condemns an event only if the event has no own value for it (R57)")
    func overriddenPropertyDoesNotCondemn() throws {
        let id = try #require(EventID(uuidString: EventText.idText))
        let base = EncodedProperties(["price": Double.nan, "shop": "a"])
        func problem(_ own: Properties) -> EventProblem? {
            Event(id: id, name: "e", time: 1, distinctID: "u", properties: own).encoded(over: base).problem
        }
        #expect(problem([:])?.reason == .invalidNumber)
        #expect(problem(["price": 1.5]) == nil)
    }

    @Test("random properties come back equal through Foundation and pass our own check")
    func randomPropertiesComeBack() throws {
        var random = SeededRandom.printed()
        for round in 0..<500 {
            let properties = Self.randomProperties(depth: 0, &random)
            #expect(readBack(properties) == properties.propertyValue, "seed \(random.seed), round \(round)")
            let encoded = try #require(EventID(uuidString: EventText.idText)).event(properties: properties).encoded()
            let scanned = EventScanner.scan(encoded.bytes[...])
            let hasNUL = String(decoding: encoded.bytes, as: UTF8.self).contains(#"\u0000"#)
            #expect(scanned.problem?.reason == (hasNUL ? .nulCharacter : nil), "seed \(random.seed), round \(round)")
        }
    }

    private static func randomProperties(depth: Int, _ random: inout SeededRandom) -> Properties {
        var properties: Properties = [:]
        for _ in 0..<Int.random(in: 0...5, using: &random) {
            properties[randomText(&random)] = randomValue(depth: depth + 1, &random)
        }
        return properties
    }

    private static func randomValue(depth: Int, _ random: inout SeededRandom) -> PropertyValue {
        switch Int.random(in: 0..<(depth > 4 ? 5 : 7), using: &random) {
        case 0: .null
        case 1: .bool(Bool.random(using: &random))
        case 2: .integer(Int64(bitPattern: random.next()) >> Int64.random(in: 0..<64, using: &random))
        case 3: .double(Double.random(in: -1e6...1e6, using: &random))
        case 4: .string(randomText(&random))
        case 5: .array((0..<Int.random(in: 0...4, using: &random)).map { _ in randomValue(depth: depth + 1, &random) })
        default: randomProperties(depth: depth, &random).propertyValue
        }
    }

    private static func randomText(_ random: inout SeededRandom) -> String {
        let alphabet: [Character] = ["a", "Z", "0", " ", "\"", "\\", "/", "\n", "\u{1}", "\u{7F}", "é", "日", "😀", "{", "]", ",", "\0"]
        return String((0..<Int.random(in: 0...8, using: &random)).map { _ in alphabet[Int.random(in: 0..<alphabet.count, using: &random)] })
    }
}

extension EventID {
    fileprivate func event(properties: Properties) -> Event {
        Event(id: self, name: "e", time: 1, distinctID: "d", properties: properties)
    }
}
