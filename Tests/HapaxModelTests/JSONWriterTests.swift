import Foundation
import TestSupport
import Testing

@testable import HapaxModel

/// The one writer of the wire, against Foundation's reader.
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
            #expect(readBack([text: .string(text)]) == [text: .string(text)], "U+\(String(scalar.value, radix: 16))")
        }
    }

    @Test(arguments: [Int64.min, -1, 0, 1, 9_007_199_254_740_993, .max])
    func integersAreExact(number: Int64) {
        #expect(readBack(["n": .integer(number)]) == ["n": .integer(number)])
    }

    @Test(arguments: [
        0.0, -0.0, 0.1, 1.0 / 3, 1e15, 1e16, 1e17, 123_456_789.125, .leastNonzeroMagnitude, .leastNormalMagnitude, .greatestFiniteMagnitude,
        -1e-7, 1e22,
        .pi,
    ])
    func doublesAreExact(number: Double) throws {
        let expected = Int64(exactly: number).map { PropertyValue.integer($0) } ?? .double(number)
        #expect(readBack(["n": .double(number)]) == ["n": expected])
        let event = try #require(EventID(EventText.idText)).event(properties: ["n": .double(number)])
        #expect(EventScanner.check(event.encoded().bytes) == nil)
    }

    @Test(arguments: [Double.nan, .infinity, -.infinity, .signalingNaN])
    func whatJSONCannotHoldIsNamed(number: Double) throws {
        let encoded = try #require(EventID(EventText.idText)).event(properties: ["a": 1, "n": .array([.double(number)])]).encoded()
        #expect(encoded.unencodable?.reason == .invalidNumber)
        // It is JSON all the same, so that the dead letters can keep it.
        #expect(EventScanner.check(encoded.bytes) == nil)
    }

    @Test func nestingWithoutEndIsCutAndNamed() throws {
        var value = PropertyValue.integer(1)
        for level in 0..<10_000 { value = level.isMultiple(of: 2) ? .array([value]) : .object(["k": value]) }
        let encoded = try #require(EventID(EventText.idText)).event(properties: ["deep": value]).encoded()
        #expect(encoded.unencodable?.reason == .tooDeep)
        #expect(EventScanner.check(encoded.bytes)?.reason == .tooDeep)
        #expect(throws: Never.self) { try JSONSerialization.jsonObject(with: Data(encoded.bytes)) }
    }

    @Test("depth 32 is written whole and allowed, 33 is written whole and refused")
    func depthIsWrittenAsItIs() throws {
        for (depth, reason) in [(31, nil), (32, nil), (33, EventProblem.Reason.tooDeep)] {
            // The event and its properties are two levels.
            var value = PropertyValue.integer(1)
            for _ in 0..<(depth - 2) { value = [value] }
            let encoded = try #require(EventID(EventText.idText)).event(properties: ["k": value]).encoded()
            #expect(encoded.unencodable == nil)
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

    @Test("random properties come back equal through Foundation and pass our own check")
    func randomPropertiesComeBack() throws {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededRandom(seed: seed)
        for round in 0..<500 {
            let properties = Self.randomProperties(depth: 0, &random)
            #expect(readBack(properties) == .object(properties), "seed \(seed), round \(round)")
            let encoded = try #require(EventID(EventText.idText)).event(properties: properties).encoded()
            let scanned = EventScanner.scan(encoded.bytes[...])
            let hasNUL = String(decoding: encoded.bytes, as: UTF8.self).contains(#"\u0000"#)
            #expect(scanned.problem?.reason == (hasNUL ? .nulCharacter : nil), "seed \(seed), round \(round)")
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
        default: .object(randomProperties(depth: depth, &random))
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
