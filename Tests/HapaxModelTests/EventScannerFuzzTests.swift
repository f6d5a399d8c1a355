import Foundation
import HapaxModel
import TestSupport
import Testing

/// Inputs that nobody thought of: nothing crashes, and Foundation's reader agrees about what is JSON.
@Suite(.endsWhenItHangs)
struct EventScannerFuzzTests {
    /// Something of everything, so that a mutation can hit anything.
    private static let rich = EventText([
        "event": #""caf\u00e9 \ud83d\ude00\n""#, "sequence": "41",
        "properties": #"{"a":[1,-2.5e3,0,true,false,null,"é😀",{"b":{},"c":[]}],"\"k":"\\\/","n":123456789012345678}"#,
    ])

    private static let envelope = """
        {"batch_id":"\(EventText.otherIDText)","sent_at":5,"refused":{"a":1},"x":[{}],"events":[\(rich.text),{"nope"},\(EventText().text)]}
        """

    @Test func eventCutAtAnyByteIsRefused() {
        let bytes = Self.rich.bytes
        #expect(EventScanner.check(bytes) == nil)
        for length in 0..<bytes.count {
            #expect(EventScanner.check(Array(bytes[..<length])) != nil, "\(length)")
        }
    }

    @Test func bodyCutAtAnyByteIsRefused() throws {
        let bytes = Array(Self.envelope.utf8)
        #expect(try ScannedBody(json: bytes[...]).events.count == 3)
        for length in 0..<bytes.count {
            #expect(throws: BodyProblem.self, "\(length)") { try ScannedBody(json: bytes[..<length]) }
        }
    }

    /// What Foundation reads, or nil. `JSONSerialization`, because the last of repeated keys wins there, too.
    private static func foundation(_ bytes: [UInt8]) -> [String: Any]? {
        (try? JSONSerialization.jsonObject(with: Data(bytes))) as? [String: Any]
    }

    /// Foundation on Linux takes a comma before a closing bracket, which RFC 8259 does not know: it has no opinion on these.
    private static func hasCommaBeforeEnd(_ bytes: [UInt8]) -> Bool {
        var afterComma = false
        for byte in bytes {
            if afterComma && (byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]")) { return true }
            if ![0x20, 0x09, 0x0A, 0x0D].contains(byte) { afterComma = byte == UInt8(ascii: ",") }
        }
        return false
    }

    @Test("mutated events: the same bytes are JSON for both, but for what docs/protocol.md refuses beyond JSON")
    func mutationsAgreeWithFoundation() {
        var random = SeededRandom.printed()
        var agreed = (valid: 0, invalid: 0)
        for round in 0..<30_000 {
            let bytes = random.mutated(Self.rich.bytes)
            let scanned = EventScanner.scan(bytes[...])
            let read = Self.foundation(bytes)
            let context = "seed \(random.seed), round \(round): \(String(decoding: bytes, as: UTF8.self))"
            switch scanned.problem?.reason {
            case nil:
                agreed.valid += 1
                #expect(read != nil, "\(context)")
                if let read { #expect(Self.isSame(scanned, read), "\(context)") }
            case .invalidJSON, .invalidUTF8, .notAnObject:
                agreed.invalid += 1
                #expect(read == nil || Self.hasCommaBeforeEnd(bytes), "\(context)")
            default:
                break
            }
        }
        // Enough of both, or the agreement means nothing.
        #expect(agreed.valid > 1_000 && agreed.invalid > 1_000)
    }

    private static func isSame(_ scanned: ScannedEvent, _ read: [String: Any]) -> Bool {
        guard let id = read["event_id"] as? String, let name = read["event"] as? String, let user = read["distinct_id"] as? String,
            let time = read["time"] as? NSNumber
        else { return false }
        guard EventID(uuidString: id) == scanned.id, Array(name.utf8) == Array(scanned.name), Array(user.utf8) == Array(scanned.distinctID),
            time.int64Value == scanned.time, (read["sequence"] as? NSNumber)?.int64Value == scanned.sequence
        else { return false }
        let properties = foundation(Array(scanned.properties)) as NSDictionary?
        return properties == (read["properties"] as? NSDictionary ?? [:])
    }

    @Test("mutated bodies never crash, and the events found lie in the body, in order and apart")
    func mutatedBodiesAreContained() {
        var random = SeededRandom.printed()
        for round in 0..<10_000 {
            let bytes = random.mutated(Array(Self.envelope.utf8))
            _ = try? ScannedBody(lines: bytes[...])
            guard let body = try? ScannedBody(json: bytes[...]) else { continue }
            var end = 0
            for event in body.events {
                #expect(event.wire.startIndex >= end && event.wire.endIndex <= bytes.count, "seed \(random.seed), round \(round)")
                end = event.wire.endIndex
                if event.problem == nil { #expect(EventScanner.check(Array(event.wire)) == nil, "seed \(random.seed), round \(round)") }
            }
        }
    }

    @Test func randomBytesNeverCrash() {
        var random = SeededRandom.printed()
        let alphabet = Array("{}[]\",:\\u0d8eE+-. \ntfn\u{1}é".utf8) + [0, 0x80, 0xC2, 0xED, 0xF4, 0xFF]
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0...40, using: &random)).map { _ in alphabet[Int.random(in: 0..<alphabet.count, using: &random)]
            }
            #expect(EventScanner.check(bytes) != nil)
            _ = try? ScannedBody(json: bytes[...])
        }
    }
}
