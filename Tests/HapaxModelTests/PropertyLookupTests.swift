import HapaxModel
import Testing

@Suite("Looking into properties", .endsWhenItHangs)
struct PropertyLookupTests {
    private static let object = Array(
        #"{ "a" : 1, "a.b":"key", "a\u002ec":[ 1, {"x":2} ], "d":{"e":{"f":null}}, "g":1, "g":2, "":{"":3}, "é":4, "e\u0301":5 }"#.utf8)

    @Test(
        "A name is a key of that name, else a path; repeated keys: the last; keys are compared by their bytes",
        arguments: [
            ("a", "1"), ("a.b", #""key""#), ("a.c", #"[ 1, {"x":2} ]"#), ("d.e.f", "null"), ("d.e", #"{"f":null}"#), ("g", "2"),
            ("", #"{"":3}"#),
            (".", "3"), ("\u{E9}", "4"), ("e\u{301}", "5"), ("d.x", nil), ("d.e.f.g", nil), ("a.b.c", nil), ("x", nil), ("a.c.x", nil),
        ] as [(String, String?)])
    func valueIsFound(name: String, value: String?) {
        #expect(PropertyLookup.value(of: name, in: Self.object[...]).map { String(decoding: $0, as: UTF8.self) } == value)
    }

    @Test("Names and elements are listed as they stand")
    func namesAndElements() {
        #expect(
            PropertyLookup.names(in: Self.object[...]).map { String(decoding: $0, as: UTF8.self).utf8.count } == [
                1, 3, 3, 1, 1, 1, 0, 2, 3,
            ])
        #expect(PropertyLookup.names(in: Array("{}".utf8)[...]).isEmpty)
        let elements = PropertyLookup.elements(of: Array(#" [1 , "a,]", [2,{}],{"x":[]} ]"#.utf8)[...])
        #expect(elements.map { String(decoding: $0, as: UTF8.self) } == ["1", #""a,]""#, "[2,{}]", #"{"x":[]}"#])
    }
}
