import Foundation
import Testing

@testable import HapaxModel

@Suite("What makes two events the same (I3)", .timeLimit(.minutes(3)), .endsWhenItHangs)
struct FingerprintTests {
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

    /// Lines of fingerprint, name, distinct_id and properties, made by another program from the definition in docs/protocol.md.
    private static func vectors() throws -> [(value: Int64, name: String, distinctID: String, properties: String)] {
        try String(decoding: Golden.bytes("fingerprints.txt"), as: UTF8.self).split(separator: "\n").map { line in
            let parts = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            return (try #require(Int64(parts[0])), parts[1], parts[2], parts[3])
        }
    }

    private static func fingerprint(_ name: String, _ distinctID: String, _ properties: String) -> Fingerprint {
        Fingerprint(name: Array(name.utf8)[...], distinctID: Array(distinctID.utf8)[...], properties: Array(properties.utf8)[...])
    }

    @Test("fingerprints are the same on every machine and in every version: vectors made by another program")
    func fingerprintsArePinned() throws {
        let vectors = try Self.vectors()
        #expect(vectors.count == 28)
        for vector in vectors {
            let text = #"{"event_id":"\#(EventText.idText)","event":"e","time":0,"distinct_id":"d","properties":\#(vector.properties)}"#
            #expect(EventScanner.check(Array(text.utf8)) == nil, "\(vector.properties)")
            #expect(Self.fingerprint(vector.name, vector.distinctID, vector.properties).value == vector.value, "\(vector.properties)")
        }
    }

    @Test(
        "the value counts, not how it is written: order, white space, escapes, number forms, repeated keys",
        arguments: [
            [#"{"amount":12.5}"#, #"{"amount":12.50}"#, #"{"amount":125e-1}"#, #"{"amount":0.00125E+4}"#, #"{ "\u0061mount" : 1.25e1 }"#],
            [#"{"a":1,"b":[{}]}"#, #"{"b":[{ }],"a":1.0}"#, #"{"a":7,"b":2,"a":10e-1,"b":[ { } ]}"#],
            [#"{"z":0}"#, #"{"z":-0}"#, #"{"z":-0.00e9}"#], [#"{"s":"é/\n"}"#, #"{"s":"\u00e9\/\u000a"}"#], [#"{}"#, "{ }"],
        ])
    func waysToWriteTheSameAreOne(texts: [String]) {
        #expect(Set(texts.map { Self.fingerprint("n", "d", $0).value }).count == 1)
    }

    @Test("what differs in kind, place or one bit has another fingerprint")
    func differencesAreSeen() {
        let texts = [
            "{}", #"{"a":null}"#, #"{"a":false}"#, #"{"a":0}"#, #"{"a":"0"}"#, #"{"a":""}"#, #"{"a":[]}"#, #"{"a":{}}"#, #"{"a":[[]]}"#,
            #"{"a":[1,2]}"#, #"{"a":[2,1]}"#, #"{"a":[12]}"#, #"{"a":1,"b":2}"#, #"{"a":2,"b":1}"#, #"{"a":{"b":2}}"#, #"{"a.b":2}"#,
            #"{"a":9007199254740993}"#, #"{"a":9007199254740992}"#, #"{"a":1e1000}"#, #"{"a":-1}"#, #"{"a":1}"#, #"{"a":10}"#,
            #"{"a":"e\u0301"}"#, #"{"a":"é"}"#,
        ]
        let prints =
            texts.map { Self.fingerprint("n", "d", $0).value }
            + [("nd", ""), ("", "nd"), ("d", "n")].map { Self.fingerprint($0, $1, "{}").value }
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
        #expect(!Self.fingerprint("n", "d", written).hasPlainKeys)
        #expect(String(decoding: PlainKeys.rewritten(Array(written.utf8)[...], hasRepeats: true), as: UTF8.self) == plain)
        #expect(Self.fingerprint("n", "d", plain).value == Self.fingerprint("n", "d", written).value)
    }

    @Test("an object with 256 keys at each of 31 depths is plain, and rewriting it changes nothing")
    func largestObjectIsPlain() {
        let keys = (0..<255).map { "\"k\($0)\":\($0)" }.joined(separator: ",")
        let text = String(repeating: "{\(keys),\"n\":", count: 30) + "{\(keys)}" + String(repeating: "}", count: 30)
        #expect(Self.fingerprint("n", "d", text).hasPlainKeys)
        #expect(PlainKeys.rewritten(Array(text.utf8)[...], hasRepeats: true) == Array(text.utf8))
    }
}
