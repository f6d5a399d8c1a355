import Foundation
import Testing

@testable import HapaxModel

@Suite(.endsWhenItHangs)
struct EventIDTests {
    private let text = "0199a385-187b-7abc-8def-0123456789ab"

    @Test func textIsReadAndWrittenInLowerCase() throws {
        let id = try #require(EventID(uuidString: text))
        #expect(id.description == text)
        #expect(EventID(uuidString: text.uppercased()) == id)
        #expect(id.high == 0x0199_a385_187b_7abc)
        #expect(id.low == 0x8def_0123_4567_89ab)
    }

    @Test("nil, max, braces, missing or moved hyphens, other digits and other lengths are refused")
    func unusableTextIsRefused() {
        let refused = [
            "", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "{\(text)}", "urn:uuid:\(text)", String(text.dropLast()), text + "0", text + "\n", " " + text,
            text.replacing("-", with: ""), "0199a385187b-7abc-8def-0123456789ab-", "0199a38-5187b-7abc-8def-0123456789ab",
            "0199a385-187b-7abc-8def-0123456789ag", "0199a385-187b-7abc-8def-0123456789a\u{FF11}", "0199a385-187b-7abc-8def-0123456789é",
            "0199a385–187b-7abc-8def-0123456789ab", String(repeating: "-", count: 36),
        ]
        for text in refused { #expect(EventID(uuidString: text) == nil, "\(text)") }
    }

    @Test func onlyNilAndMaxAreRefusedAmongBits() {
        #expect(EventID(high: 0, low: 0) == nil)
        #expect(EventID(high: .max, low: .max) == nil)
        #expect(EventID(high: 0, low: 1)?.description == "00000000-0000-0000-0000-000000000001")
        #expect(EventID(high: 1, low: 0) != nil)
        #expect(EventID(high: .max, low: .max - 1)?.description == "ffffffff-ffff-ffff-ffff-fffffffffffe")
        #expect(EventID(high: .max - 1, low: .max) != nil)
    }

    @Test func bytesGoThereAndBack() throws {
        let id = try #require(EventID(uuidString: text))
        #expect(id.bytes == [1, 0x99, 0xa3, 0x85, 0x18, 0x7b, 0x7a, 0xbc, 0x8d, 0xef, 1, 0x23, 0x45, 0x67, 0x89, 0xab])
        #expect(EventID(bytes: id.bytes) == id)
        #expect(EventID(bytes: id.bytes.dropLast()) == nil)
        #expect(EventID(bytes: Array(id.bytes.reversed()).lazy.reversed()) == id)
        #expect(EventID(bytes: id.bytes + [0]) == nil)
        #expect(EventID(bytes: [UInt8](repeating: 0, count: 16)) == nil)
        #expect(EventID(bytes: [UInt8](repeating: 255, count: 16)) == nil)
    }

    @Test("the order is that of the bytes, as in the stores")
    func orderIsThatOfTheBytes() throws {
        let ids = try [
            "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-8000-000000000000", "00000000-0000-0001-0000-000000000000",
            "7fffffff-0000-0000-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-fffffffffffe",
        ].map { try #require(EventID(uuidString: $0)) }
        #expect(ids.shuffled().sorted() == ids)
        #expect(ids.map(\.bytes) == ids.map(\.bytes).sorted { $0.lexicographicallyPrecedes($1) })
    }

    @Test func codableIsItsText() throws {
        let id = try #require(EventID(uuidString: text))
        #expect(try JSONEncoder().encode([id]) == Data(#"["\#(text)"]"#.utf8))
        #expect(try JSONDecoder().decode([EventID].self, from: Data(#"["\#(text.uppercased())"]"#.utf8)) == [id])
        #expect(throws: DecodingError.self) { try JSONDecoder().decode([EventID].self, from: Data(#"["x"]"#.utf8)) }
    }

    @Test("a version counts only with the variant of RFC 9562")
    func versionNeedsTheVariant() throws {
        let seven = try #require(EventID(uuidString: text))
        #expect(seven.version == 7)
        #expect(seven.unixMilliseconds == 0x0199_a385_187b)
        let otherVariant = try #require(EventID(uuidString: "0199a385-187b-7abc-cdef-0123456789ab"))
        #expect(otherVariant.unixMilliseconds == nil)
        let four = try #require(EventID(uuidString: "0199a385-187b-4abc-8def-0123456789ab"))
        #expect(four.unixMilliseconds == nil && !four.isDerived)
        let eight = try #require(EventID(uuidString: "0199a385-187b-8abc-8def-0123456789ab"))
        #expect(eight.isDerived && eight.unixMilliseconds == nil)
        #expect(try #require(EventID(uuidString: "0199a385-187b-8abc-0def-0123456789ab")).isDerived == false)
    }

    @Test("a day is a pure function of the id: dated from 2024 to 2099, undated otherwise (docs/architecture.md, The store)")
    func bucketIsTheDayOrOneOfSixteen() throws {
        func id(_ milliseconds: UInt64, last: UInt64 = 0) throws -> EventID {
            try #require(EventID(high: milliseconds << 16 | 0x7000, low: 0b10 << 62 | last))
        }
        #expect(try id(1_704_067_200_000).bucket == 19_723)
        #expect(try id(1_704_067_199_999).bucket == -1)
        #expect(try id(4_102_444_799_999).bucket == 47_481)
        #expect(try id(4_102_444_800_000).bucket == -1)
        #expect(try id(1_763_680_000_123).bucket == 20_412)
        #expect(try id(0, last: 0x1F).bucket == -16)
        #expect(try id((1 << 48) - 1, last: 0xFE).bucket == -15)
        #expect(try #require(EventID(uuidString: "0199a385-187b-4abc-8def-0123456789a3")).bucket == -4)
        #expect(try #require(EventID(uuidString: "0199a385-187b-7abc-cdef-0123456789a3")).bucket == -4)
        for last in UInt64(0)..<256 {
            #expect(try id(5, last: last).bucket == -1 - Int32(last % 16))
        }
    }

    @Test("derived ids are the same on every machine and in every version: vectors made by another program")
    func derivedIDsArePinned() {
        let vectors = [
            ("order_paid", "4711", "2cf27717-2f4f-8220-90fb-8668c288b1c9"),
            ("order_pai", "d4711", "5e3b78e6-2478-83ca-a401-303f9a9d7220"),
            ("order_paid", "4712", "73f104fd-5db5-8b74-abae-5e81e5a0c611"),
            ("", "", "bdd81583-09c2-8661-9b9a-8723709e965c"),
            ("é", "日本語", "9d5a9c2b-01f1-8061-ae49-ed9fe7126b5c"),
            ("a", "b\0c", "a46a6db5-8b74-8bf0-ba91-bd3f788e7824"),
        ]
        for (name, key, expected) in vectors {
            let id = EventID.derived(name: name, key: key)
            #expect(id.description == expected)
            #expect(id.isDerived)
            #expect(id.bucket < 0)
        }
    }
}
