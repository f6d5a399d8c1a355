import TestSupport
import Testing

@testable import HapaxModel

@Suite("What makes two events the same (I3)", .endsWhenItHangs)
struct ValueHashTests {
    @Test("XXH64 gives the published values")
    func hashIsPinned() {
        let vectors: [(text: String, seed: UInt64, hash: UInt64)] = [
            ("", 0, 0xEF46_DB37_51D8_E999), ("a", 0, 0xD24E_C4F1_A98C_6E5B), ("abc", 0, 0x44BC_2CF5_AD77_0999),
            ("abc", 7, 0x9E75_5206_1566_76D7),
            (String(repeating: "0123456789", count: 10), 7, 0xA314_A8F8_5DA8_C7D1),
        ]
        for vector in vectors {
            let bytes = Array(vector.text.utf8)
            #expect(bytes.withUnsafeBytes { XXH64.hash($0, seed: vector.seed) } == vector.hash, "\(vector.text)")
        }
        let pair = withUnsafeBytes(of: (UInt64(5).littleEndian, UInt64.max.littleEndian)) { XXH64.hash($0, seed: 3) }
        #expect(XXH64.hash(5, .max, seed: 3) == pair)
    }

    private static func hash(_ name: String, _ distinctID: String, _ properties: String) -> ValueHash {
        ValueHash(name: Array(name.utf8)[...], distinctID: Array(distinctID.utf8)[...], properties: Array(properties.utf8)[...])
    }

    @Test("the value counts, not how it is written: order, white space, escapes, number forms, repeated keys", arguments: SameContent.ways)
    func waysToWriteTheSameAreOne(texts: [String]) {
        #expect(Set(texts.map { Self.hash("n", "d", $0).value }).count == 1)
    }

    @Test("what differs in kind, place or one bit has another hash")
    func differencesAreSeen() {
        let hashes =
            SameContent.others.map { Self.hash("n", "d", $0).value }
            + [("nd", ""), ("", "nd"), ("d", "n")].map { Self.hash($0, $1, "{}").value }
        #expect(Set(hashes).count == hashes.count)
    }

    @Test("events in the same bytes have one fingerprint, others another one: the parts do not run into each other")
    func fingerprintIsOfBytes() {
        func print(_ name: String, _ distinctID: String, _ properties: String, time: Int = 1) -> Int64 {
            let text =
                #"{"event_id":"\#(EventText.idText)","event":"\#(name)","time":\#(time),"distinct_id":"\#(distinctID)","properties":\#(properties)}"#
            return EventScanner.scan(Array(text.utf8)[...]).fingerprint
        }
        #expect(print("n", "d", "{}") == print("\\u006e", "d", "{}", time: 2))
        let prints = [print("n", "d", "{}"), print("nd", "d", "{}"), print("n", "nd", "{}"), print("d", "n", "{}"), print("n", "d", "{ }")]
        #expect(Set(prints).count == prints.count)
    }

    @Test(
        "repeated and escaped keys are rewritten: the last of each, without needless escapes; all else stays as it was written",
        arguments: [
            (#"{"a":1,"a":2.50}"#, #"{"a":2.50}"#), (#"{"\u0061":1}"#, #"{"a":1}"#), (#"{"a":1,"\u0061":[ 2 ]}"#, #"{"a":[2]}"#),
            (
                #"{ "x" : {"k":1,"b":"}","k":"\u00e9\"" } , "y":[{"k":1,"k":null},true,-1e5] }"#,
                #"{"x":{"b":"}","k":"\u00e9\""},"y":[{"k":null},true,-1e5]}"#
            ),
            (#"{"q\"\\\n":1,"\ud83e\uddfe":2}"#, #"{"q\"\\\n":1,"🧾":2}"#), (#"{"a":{"a":1,"a":{}},"a":{"a":2,"a":3}}"#, #"{"a":{"a":3}}"#),
        ])
    func keysAreRewritten(written: String, plain: String) {
        #expect(String(decoding: PlainKeys.plain(Array(written.utf8)[...]), as: UTF8.self) == plain)
        #expect(Self.hash("n", "d", plain).value == Self.hash("n", "d", written).value)
    }

    @Test("an object with 256 keys at each of 31 depths is plain, and rewriting it changes nothing")
    func largestObjectIsPlain() {
        let keys = (0..<255).map { "\"k\($0)\":\($0)" }.joined(separator: ",")
        let text = String(repeating: "{\(keys),\"n\":", count: 30) + "{\(keys)}" + String(repeating: "}", count: 30)
        #expect(PlainKeys.plain(Array(text.utf8)[...]) == Array(text.utf8)[...])
    }
}
