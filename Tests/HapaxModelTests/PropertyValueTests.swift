import HapaxModel
import Testing

@Suite("Property values from JSON", .endsWhenItHangs)
struct PropertyValueTests {
    @Test(
        "every kind of value is read as what it says",
        arguments: [
            ("null", .null), ("true", .bool(true)), (" false ", .bool(false)), ("0", .integer(0)), ("-7", .integer(-7)),
            ("9223372036854775807", .integer(.max)), ("1.5", .double(1.5)), ("1e3", .double(1_000)), ("-0.0", .double(-0.0)),
            ("9007199254740993.0", .number("9007199254740993.0")), ("123456789012345678901", .number("123456789012345678901")),
            ("0.12345678901234567890", .double(0.12345678901234568)),
            (#""a\u00e9\n""#, "a\u{E9}\n"), (#""""#, ""), ("[]", []), ("[ ]", []), ("{ }", .object([:])),
            (#"[1,[true,null], {"k" : "v"} ]"#, [1, [true, nil], ["k": "v"]]),
            (#"{"a":{"b":[1,2]},"":3}"#, ["a": ["b": [1, 2]], "": 3]),
            (#"{ "a" : 1 , "b" : [ 1 , 2 ] }"#, ["a": 1, "b": [1, 2]]),
        ] as [(String, PropertyValue)])
    func valuesAreRead(text: String, value: PropertyValue) throws {
        #expect(try PropertyValue(json: text) == value)
    }

    @Test("the last of repeated keys wins, however it is written (I3)")
    func lastKeyWins() throws {
        #expect(try PropertyValue(json: #"{"a":1,"b":2,"a":3}"#) == ["a": 3, "b": 2])
        #expect(try PropertyValue(json: #"{"a":1,"\u0061":2}"#) == ["a": 2])
    }

    @Test(
        "what is no value, no single one, or none that an event may hold is refused",
        arguments: [
            "", " ", "nul", "tru", "1 2", "1,2", "[1", #"{"a":}"#, #"{"a" 1}"#, "1}", #"1},"event":"f","properties":{"a":2"#, "NaN", "01",
            "1e400",
            #""\u0000""#,
            String(repeating: "[", count: 40) + String(repeating: "]", count: 40),
        ])
    func restIsRefused(text: String) {
        #expect(throws: EventProblem.self) { try PropertyValue(json: text) }
    }
}
