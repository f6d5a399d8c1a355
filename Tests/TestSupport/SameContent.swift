/// JSON objects by which every place that compares events by value is tried: the queue, a group, and both stores (I3).
package enum SameContent {
    /// In each line one value, written in several ways.
    package static let ways = [
        [#"{"amount":12.5}"#, #"{"amount":12.50}"#, #"{"amount":125e-1}"#, #"{"amount":0.00125E+4}"#, #"{ "\u0061mount" : 1.25e1 }"#],
        [#"{"a":1,"b":[{}]}"#, #"{"b":[{ }],"a":1.0}"#, #"{"a":7,"b":2,"a":10e-1,"b":[ { } ]}"#],
        [#"{"z":0}"#, #"{"z":-0}"#, #"{"z":-0.00e9}"#], [#"{"s":"é/\n"}"#, #"{"s":"\u00e9\/\u000a"}"#], [#"{}"#, "{ }"],
        [#"{"a":1e308}"#, #"{"a":10e307}"#], [#"{"a":[1e-300,{"k":1,"k":null}]}"#, #"{"a":[0.1e-299,{"\u006b":null}]}"#],
    ]

    /// No two of them are the same.
    package static let others = [
        "{}", #"{"a":null}"#, #"{"a":false}"#, #"{"a":0}"#, #"{"a":"0"}"#, #"{"a":""}"#, #"{"a":[]}"#, #"{"a":{}}"#, #"{"a":[[]]}"#,
        #"{"a":[1,2]}"#, #"{"a":[2,1]}"#, #"{"a":[12]}"#, #"{"a":1,"b":2}"#, #"{"a":2,"b":1}"#, #"{"a":{"b":2}}"#, #"{"a.b":2}"#,
        #"{"a":9007199254740993}"#, #"{"a":9007199254740992}"#, #"{"a":1e300}"#, #"{"a":-1}"#, #"{"a":1}"#, #"{"a":10}"#,
        #"{"a":"e\u0301"}"#, #"{"a":"é"}"#,
    ]

    /// An event with such properties.
    package static func event(_ id: String, _ properties: String) -> [UInt8] {
        Array(#"{"event_id":"\#(id)","event":"e","time":1,"distinct_id":"u","properties":\#(properties)}"#.utf8)
    }
}
