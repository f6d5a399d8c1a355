import HapaxModel
import Testing

@Suite("Where in an event a problem is (C10)", .endsWhenItHangs)
struct EventPathTests {
    @Test(
        "C10: what a value is refused for names its place",
        arguments: [
            (#"{"a":1,"price":1e9999}"#, .invalidNumber, "properties.price"),
            (#"{"cart":[{"a":[1,2],"b":"}"},{"b":"x\u0000"}]}"#, .nulCharacter, "properties.cart[1].b"),
            (#"{"a":{"\"b\u0000":1}}"#, .nulCharacter, #"properties.a.\"b\u0000"#),
            (#"{"a":["\ud800"]}"#, .loneSurrogate, "properties.a[0]"),
            (#"{"a":{"b":\#(EventText.nested(31))}}"#, .tooDeep, "properties.a.b"),
            (#"{"o":{\#((0...256).map { "\"\($0)\":0" }.joined(separator: ","))}}"#, .tooManyKeys, "properties.o"),
            (#"{"small":1,"blob":"\#(String(repeating: "x", count: 40_000))","c":2}"#, .eventTooLarge, "properties.blob takes 40009"),
        ] as [(String, EventProblem.Reason, String)])
    func placeIsNamed(properties: String, reason: EventProblem.Reason, place: String) throws {
        let problem = try #require(EventText.properties(properties).scanned.problem)
        #expect(problem.reason == reason && problem.detail.contains(place), "\(problem)")
    }

    @Test("C10: so it is for what JSON cannot hold, in an event's own properties, in shared ones and in an encoded value")
    func placeOfWhatCannotBeWritten() throws {
        struct Order: Encodable {
            var lines = [Line()]
            struct Line: Encodable { var price = Double.nan }
        }
        func detail(_ properties: Properties, over base: Properties = [:]) -> String? {
            Event(id: .derived(name: "e", key: ""), name: "e", time: 0, distinctID: "u", properties: properties)
                .encoded(over: EncodedProperties(base)).problem?.detail
        }
        #expect(detail(["a": ["b": [1, Double.nan]] as Properties]) == "a number is not finite: properties.a.b[1]")
        #expect(detail(["z": 1], over: ["a": 1, "x": ["y": Double.infinity]]) == "a number is not finite: properties.x.y")
        #expect(detail(Properties(encoding: Order())) == "the value cannot be encoded as JSON: properties.lines[0].price")
    }
}
