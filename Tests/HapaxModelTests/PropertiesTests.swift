import Foundation
import HapaxModel
import Testing

@Suite("Properties from plain variables", .endsWhenItHangs)
struct PropertiesTests {
    private enum Plan: String, PropertyValueConvertible { case pro }

    @Test("every type that can stand for a value, and what it stands for (R55)")
    func valuesAreConverted() throws {
        let id = try #require(UUID(uuidString: "01980000-0000-7000-8000-000000000002"))
        let cases: [(any PropertyValueConvertible, PropertyValue)] = [
            ("text", "text"), ("text".dropFirst(), "ext"), (true, true), (Int8(-1), -1), (Int16(2), 2), (Int32(3), 3),
            (Int64.min, .integer(.min)),
            (UInt8(4), 4), (UInt16(5), 5), (UInt32.max, 4_294_967_295), (UInt(6), 6), (UInt64(7), 7),
            (UInt64.max, .number("18446744073709551615")),
            (0.1, 0.1), (Float(0.1), 0.1), (CGFloat(1.5), 1.5), (Decimal(3), .number("3")), (Date(timeIntervalSince1970: 1.2345), 1_235),
            (try #require(URL(string: "https://a.example/b?c")), "https://a.example/b?c"), (id, "01980000-0000-7000-8000-000000000002"),
            (try #require(EventID(uuidString: "01980000-0000-7000-8000-000000000002")), "01980000-0000-7000-8000-000000000002"),
            ([1, 2], [1, 2]), (Set([10, 9, 1]), [1, 10, 9]), (["a": [true]], ["a": [true]]), (Plan.pro, "pro"),
            (["a": 1, "b": "c"] as Properties, ["a": 1, "b": "c"]), (PropertyValue.null, nil),
        ]
        for (value, expected) in cases { #expect(value.propertyValue == expected) }
        #expect(Date(timeIntervalSince1970: .infinity).propertyValue == .double(.infinity))
    }

    @Test("nil leaves a name out, null is null, and of a repeated name the last value counts, in the text as well")
    func literalsAreRead() throws {
        let (missing, there): (String?, Int?) = (nil, 7)
        let properties: Properties = ["a": 1, "missing": missing, "there": there, "null": PropertyValue.null, "a": 2, "gone": nil]
        #expect(
            properties == ["there": 7, "null": PropertyValue.null, "a": 2]
                && properties.hashValue == Properties(properties.byName).hashValue)
        #expect(properties.count == 3 && properties["a"] == 2 && properties["missing"] == nil)
        let id = try #require(EventID(uuidString: "01980000-0000-7000-8000-000000000002"))
        let text = String(
            decoding: Event(id: id, name: "e", time: 1, distinctID: "u", properties: properties).encoded().bytes, as: UTF8.self)
        #expect(text.hasSuffix(#""properties":{"a":2,"null":null,"there":7}}"#))
    }

    @Test("what is set and laid over wins, by any type that can stand for a value")
    func propertiesChange() {
        var properties: Properties = ["a": 1, "b": 1]
        properties["a"] = "text"
        properties["c"] = Date(timeIntervalSince1970: 1)
        properties["b"] = nil
        properties.merge(["c": 2, "d": 3])
        #expect(properties == ["a": "text", "c": 2, "d": 3] && properties.merging([:]) == properties && !properties.isEmpty)
    }

    @Test("an encodable value gives its members; what is no object is a problem, which is kept and told apart (I12)")
    func encodableValuesAreRead() {
        struct Order: Encodable { var id = "A-17", at = Date(timeIntervalSince1970: 0.9996), count = UInt64.max }
        struct Unencodable: Encodable { func encode(to encoder: any Encoder) throws { throw CancellationError() } }
        #expect(Properties(encoding: Order()) == ["id": "A-17", "at": 1_000, "count": UInt64.max])
        for problem in [Properties(encoding: [1]).problem, Properties(encoding: Unencodable()).problem] {
            #expect(problem?.reason == .invalidProperties)
        }
        #expect(Properties(encoding: [1]) != [:])
        var merged: Properties = ["a": 1]
        merged.merge(Properties(encoding: [1]))
        #expect(merged.problem != nil && merged["a"] == 1)
    }
}
