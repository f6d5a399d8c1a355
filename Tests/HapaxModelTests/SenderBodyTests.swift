import Foundation
import HapaxModel
import TestSupport
import Testing

/// What becomes of the events of other vendors' SDKs, to the byte: ids and laid events are never changed.
@Suite("Other SDKs' bodies", .endsWhenItHangs)
struct SenderBodyTests {
    private struct Read {
        var laid: [String] = []
        var ids: [String] = []
        var reasons: [String?] = []
        var sentAt: Int64?
    }

    private func read(
        _ body: String, _ via: String = "segment", type: String = "track", _ door: SenderDoor = .public, arrival: Int64 = 1_000
    ) throws -> Read {
        let format = try #require(SenderFormat.all.first { $0.via == via })
        var (scan, read) = (SenderBody(Array(body.utf8), format, type: type, door, arrival: arrival), Read())
        while try scan.next({ fields, buffer, _ in
            read.laid.append(String(decoding: buffer, as: UTF8.self))
            read.ids.append(fields.id?.description ?? "")
            read.reasons.append(fields.problem?.reason.rawValue)
        }) {}
        read.sentAt = scan.envelope.sentAt
        return read
    }

    /// One event of a batch, laid; its id.
    private func event(_ event: String, _ door: SenderDoor = .public) throws -> (laid: String, id: String, reason: String?) {
        let read = try read(#"{"batch":[\#(event)]}"#, "segment", type: "track", door)
        return (read.laid.first ?? "", read.ids.first ?? "", read.reasons.first ?? nil)
    }

    @Test(
        "An event's fields become ours, the rest is kept under $via, what the transport writes anew is not (I3)",
        arguments: [
            (
                #"{"type":"track","event":"Paid","messageId":"order-17","userId":"u","anonymousId":"a","timestamp":"2026-11-29T12:00:00.5Z","properties":{"n":1},"context":{"ip":"1"},"sentAt":"x","_metadata":{"retryCount":2}}"#,
                #"{"event_id":"445214c4-a8b3-824c-bd1a-e7f5cb7b70f5","event":"Paid","time":1795953600500,"distinct_id":"u","properties":{"n":1,"$anonymous_id":"a","$via":{"context":{"ip":"1"},"id":"order-17","sdk":"segment"}}}"#
            ),
            (
                #"{"messageId":"0198d3b4-0000-7000-8000-000000000001","event":"e","anonymousId":"a","timestamp":1795953600500}"#,
                #"{"event_id":"0198d3b4-0000-7000-8000-000000000001","event":"e","time":1795953600500,"distinct_id":"a","properties":{"$via":{"sdk":"segment"}}}"#
            ),
            (
                #"{"messageId":"m","type":"page","name":"Home","userId":7,"properties":{ } }"#,
                #"{"event_id":"ID","event":"$page","time":1000,"distinct_id":"7","properties":{"$via":{"name":"Home","id":"m","sdk":"segment"}}}"#
            ),
            (
                #"{"messageId":"m","type":"group","userId":null,"anonymousId":"","traits":{"a":1},"properties":{"b":2},"sdk":"forged"}"#,
                #"{"event_id":"ID","event":"$group","time":1000,"distinct_id":"$unknown","properties":{"b":2,"$via":{"traits":{"a":1},"own":{"sdk":"forged"},"id":"m","sdk":"segment"}}}"#
            ),
            (
                #"{"messageId":"m","event":"Home","type":"screen","userId":"u","timestamp":"yesterday","originalTimestamp":"1970-01-01T00:00:02Z"}"#,
                #"{"event_id":"ID","event":"Home","time":2000,"distinct_id":"u","properties":{"$via":{"timestamp":"yesterday","type":"screen","id":"m","sdk":"segment"}}}"#
            ),
            (
                #"{"messageId":"m\u0000","event":"e","userId":"u","timestamp":2000,"originalTimestamp":3000}"#,
                #"{"event_id":"ID","event":"e","time":2000,"distinct_id":"u","properties":{"$via":{"originalTimestamp":3000,"id":"m\ufffd","sdk":"segment","repaired":1}}}"#
            ),
            (
                #"{"messageId":"m","event":"cut\ud83d","userId":"\ud83d\ude00\u0000"}"#,
                #"{"event_id":"ID","event":"cut\ufffd","time":1000,"distinct_id":"\ud83d\ude00\ufffd","properties":{"$via":{"id":"m","sdk":"segment","repaired":2}}}"#
            ),
        ])
    func fieldsBecomeOurs(event text: String, laid: String) throws {
        let event = try event(text)
        #expect(event.reason == nil)
        #expect(event.laid == laid.replacing("ID", with: event.id), "\(event.laid)")
    }

    @Test(
        "PostHog's, Amplitude's and Mixpanel's events become ours in the same way",
        arguments: [
            (
                "posthog",
                #"{"api_key":"k","batch":[{"uuid":"f47ac10b-58cc-4372-a567-0e02b2c3d479","event":"e","distinct_id":"u","timestamp":"1970-01-01T00:00:02+00:00","properties":{"a":1,"$lib":"posthog-python"},"context":{}}],"sent_at":"x"}"#,
                #"{"event_id":"f47ac10b-58cc-4372-a567-0e02b2c3d479","event":"e","time":2000,"distinct_id":"u","properties":{"a":1,"$lib":"posthog-python","$via":{"context":{},"sdk":"posthog"}}}"#
            ),
            (
                "amplitude",
                #"{"api_key":"k","events":[{"event_type":"e","user_id":"u","device_id":"d","insert_id":"i-1","time":2000,"event_properties":{"a":1},"user_properties":{"b":2},"library":"l"}],"options":{}}"#,
                #"{"event_id":"ID","event":"e","time":2000,"distinct_id":"u","properties":{"a":1,"$anonymous_id":"d","$via":{"user_properties":{"b":2},"library":"l","id":"i-1","sdk":"amplitude"}}}"#
            ),
            (
                "posthog",
                #"[{"uuid":"0198d3b4-0000-7000-8000-000000000001","event":"$pageview","offset":17,"properties":{"token":"k","distinct_id":"u","a":1}}]"#,
                #"{"event_id":"ID","event":"$pageview","time":1755898445824,"distinct_id":"u","properties":{"a":1,"$via":{"sdk":"posthog"}}}"#
            ),
            (
                "mixpanel",
                #"[{"event":"e","properties":{"token":"k","distinct_id":"u","time":1795953600.5,"$insert_id":"i-1","mp_lib":"python","a":1,"b":[2]}}]"#,
                #"{"event_id":"ID","event":"e","time":1795953600500,"distinct_id":"u","properties":{"mp_lib":"python","a":1,"b":[2],"$via":{"id":"i-1","sdk":"mixpanel"}}}"#
            ),
            (
                "mixpanel", #"{"event":"e","properties":{"time":1795953600500,"$insert_id":"f47ac10b58cc4372a5670e02b2c3d479"}}"#,
                #"{"event_id":"f47ac10b-58cc-4372-a567-0e02b2c3d479","event":"e","time":1795953600500,"distinct_id":"$unknown","properties":{"$via":{"sdk":"mixpanel"}}}"#
            ),
            (
                "mixpanel", #"{"$token":"k","$distinct_id":"u","$time":2,"$set":{"plan":"pro"},"$add":{"n":1},"$ip":"0"}"#,
                #"{"event_id":"ID","event":"$profile_set","time":2000,"distinct_id":"u","properties":{"plan":"pro","$via":{"$add":{"n":1},"$ip":"0","sdk":"mixpanel"}}}"#
            ),
            (
                "mixpanel", #"{"$token":"k","$distinct_id":"u","$delete":""}"#,
                #"{"event_id":"ID","event":"$profile_delete","time":1000,"distinct_id":"u","properties":{"$via":{"$delete":"","sdk":"mixpanel"}}}"#
            ),
            (
                "mixpanel", #"{"event":"e","$distinct_id":"u","$set":{"a":1},"properties":{"b":2,"distinct_id":"other","time":3}}"#,
                #"{"event_id":"ID","event":"e","time":3000,"distinct_id":"u","properties":{"b":2,"distinct_id":"other","$via":{"$set":{"a":1},"sdk":"mixpanel"}}}"#
            ),
            (
                "mixpanel", #"{"event":"$identify","properties":{"distinct_id":"u","$anon_distinct_id":"$device:a","time":3}}"#,
                #"{"event_id":"ID","event":"$identify","time":3000,"distinct_id":"u","properties":{"$anonymous_id":"$device:a","$via":{"sdk":"mixpanel"}}}"#
            ),
            (
                "posthog",
                #"{"api_key":"k","events":[{"event_type":"e","device_id":"d","insert_id":"f47ac10b-58cc-4372-a567-0e02b2c3d479"}]}"#,
                #"{"event_id":"ID","event":"e","time":1000,"distinct_id":"d","properties":{"$via":{"sdk":"amplitude"}}}"#
            ),
            (
                "sensors",
                #"[{"type":"track_signup","event":"$SignUp","distinct_id":"u","anonymous_id":"b","original_id":"a","time":2000,"_track_id":5,"_flush_time":9,"properties":{"$lib":"js"}}]"#,
                #"{"event_id":"ID","event":"$identify","time":2000,"distinct_id":"u","properties":{"$lib":"js","$anonymous_id":"a","$via":{"anonymous_id":"b","_track_id":5,"event":"$SignUp","sdk":"sensors"}}}"#
            ),
            (
                "sensors", #"{"type":"profile_set","distinct_id":"u","time":2000,"properties":{"plan":"pro"},"lib":{},"project":"p"}"#,
                #"{"event_id":"ID","event":"$profile_set","time":2000,"distinct_id":"u","properties":{"plan":"pro","$via":{"lib":{},"project":"p","sdk":"sensors"}}}"#
            ),
            (
                "snowplow",
                #"{"schema":"iglu:s","data":[{"e":"ue","eid":"f47ac10b-58cc-4372-a567-0e02b2c3d479","dtm":"1795953600000","ttm":"1795953600500","stm":"1","uid":"u","duid":"d","ue_px":"\#(Self.coded(#"{"schema":"iglu:s/unstruct_event/jsonschema/1-0-0","data":{"schema":"iglu:com.acme/paid/jsonschema/1-0-1","data":{"a":"ü"}}}"#))","co":"{\"schema\":\"iglu:c\",\"data\":[{\"schema\":\"s\",\"data\":{}}]}"}]}"#,
                #"{"event_id":"ID","event":"paid","time":1795953600500,"distinct_id":"u","properties":{"a":"ü","$anonymous_id":"d","$via":{"schema":"iglu:com.acme/paid/jsonschema/1-0-1","contexts":[{"schema":"s","data":{}}],"dtm":"1795953600000","sdk":"snowplow"}}}"#
            ),
            (
                "snowplow", #"{"e":"pv","eid":"f47ac10b-58cc-4372-a567-0e02b2c3d479","url":"https://a/","duid":"d","cx":"bm9uZQ"}"#,
                #"{"event_id":"ID","event":"$page","time":1000,"distinct_id":"d","properties":{"$via":{"url":"https://a/","cx":"bm9uZQ","sdk":"snowplow"}}}"#
            ),
            (
                "snowplow", #"{"data":[{"\u0065":"s\u0065","se_ca":"shop","se_ac":"buy","tnuid":"n"}]}"#,
                #"{"event_id":"ID","event":"buy","time":1000,"distinct_id":"n","properties":{"$via":{"se_ca":"shop","sdk":"snowplow"}}}"#
            ),
            (
                "cloudevents",
                #"{"specversion":"1.0","id":"7","source":"/shop","type":"paid","subject":"u","time":"1970-01-01T00:00:02Z","datacontenttype":"text/x","data":{"a":1}}"#,
                #"{"event_id":"ID","event":"paid","time":2000,"distinct_id":"u","properties":{"a":1,"$via":{"specversion":"1.0","datacontenttype":"text/x","source":"/shop","id":"7","sdk":"cloudevents"}}}"#
            ),
            (
                "cloudevents",
                #"[{"datacontenttype":"application/json","id":"f47ac10b-58cc-4372-a567-0e02b2c3d479","source":"/shop","type":"paid","data":[1]}]"#,
                #"{"event_id":"ID","event":"paid","time":1000,"distinct_id":"/shop","properties":{"data":[1],"$via":{"source":"/shop","id":"f47ac10b-58cc-4372-a567-0e02b2c3d479","sdk":"cloudevents"}}}"#
            ),
        ])
    func otherFamiliesBecomeOurs(via: String, body: String, laid: String) throws {
        let read = try read(body, via, type: via == "mixpanel" ? "profile" : "track")
        #expect(read.laid == [laid.replacing("ID", with: read.ids.first ?? "")] && read.reasons == [nil], "\(read.laid)")
    }

    /// As Snowplow's trackers write JSON into a text.
    private static func coded(_ json: String) -> String {
        Data(json.utf8).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
    }

    @Test("A CloudEvent's id is one together with its source, a UUID's, too")
    func sourceIsPartOfAnID() throws {
        func id(_ id: String, _ source: String, _ door: SenderDoor = .public) throws -> String {
            try read(#"{"id":"\#(id)","source":"\#(source)","type":"t"}"#, "cloudevents", door).ids[0]
        }
        let uuid = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
        let ids = [try id("1", "/a"), try id("1", "/b"), try id("1", "/a", .secret), try id(uuid, "/a"), try id(uuid, "/b")]
        #expect(Set(ids + [uuid]).count == 6)
        #expect(ids[0] == "f5557d67-5c1d-87c1-ab9e-23f8cfaff0f7", "by Python's hashlib")
    }

    @Test(
        "An event whose attributes stand in the head is the same one",
        arguments: [
            ("application/json; charset=utf-8", #"{"a":1}"#, #""data":{"a":1}}"#), (nil, "[1]", #""data":[1]}"#),
            ("application/x+json", #"{"a":1},"id":"forged""#, #""data":"{\"a\":1},\"id\":\"forged\""}"#),
            ("text/plain", "hello", #""data":"hello"}"#), ("application/x", "hi", #""data_base64":"aGk="}"#),
            (nil, "", #""source":"/a b%"}"#),
        ] as [(String?, String, String)])
    func headHoldsAnEvent(type: String?, data: String, end: String) throws {
        let source = try #require(CloudEvent.value("/a%20b%25"))
        #expect(CloudEvent.value(#""/a%20\"b\\""#) == #"/a "b\"# && CloudEvent.value("%ff") == nil && CloudEvent.value("\"") == "\"")
        let object = CloudEvent.object([("id", "7"), ("source", source)], type: type, data: Array(data.utf8))
        let text = String(decoding: object, as: UTF8.self)
        #expect(text.hasPrefix(#"{"id":"7","source":"/a b%""#) && text.hasSuffix(end), "\(text)")
        let bytes = CloudEvent.object([], type: "image/png", data: [0xFF])
        #expect(String(decoding: bytes, as: UTF8.self) == #"{"datacontenttype":"image/png","data_base64":"/w=="}"#)
    }

    @Test("A Mixpanel id that is no UUID is one with name and user; the time counts in seconds or milliseconds, or not at all")
    func mixpanelsIDsAndTimes() throws {
        func sent(_ name: String, _ user: String, time: String = "1795953600") throws -> Read {
            try read(#"[{"event":"\#(name)","properties":{"distinct_id":"\#(user)","$insert_id":"i","time":\#(time)}}]"#, "mixpanel")
        }
        let first = try sent("a", "u")
        #expect(try sent("a", "u", time: "1795953600000.0").laid == first.laid)
        #expect(try sent("b", "u").ids != first.ids && sent("a", "v").ids != first.ids)
        for time in ["-1", "1e9", "12345678901234567", #""x""#] {
            #expect(try sent("a", "u", time: time).laid[0].contains(#""time":1000,"#), "\(time)")
        }
        let unnamed = try [#"{"a":1,"token":"k"}"#, #"{"token":"other","a":1}"#].map { properties in
            try read(#"[{"event":"e","properties":{"time":1795953600,"distinct_id":"u",\#(properties.dropFirst())}]"#, "mixpanel").ids
        }
        #expect(unnamed[0] == unnamed[1], "what is not stored is no part of an id")
    }

    @Test(
        "The key is that of the body, else of the first event that has one",
        arguments: [
            ("segment", #"{"batch":[{"writeKey":"no"}],"writeKey":"k"}"#, "k"),
            ("mixpanel", #"[5,{"event":"e"},{"properties":{"token":"k"}}]"#, "k"),
            ("mixpanel", #"[{"properties":{"a":"\#(String(repeating: "x", count: 70_000))"}},{"$token":"\u006b"}]"#, "k"),
            ("mixpanel", #"{"properties":{"token":"k"}}"#, "k"), ("mixpanel", "[{},[", nil), ("mixpanel", "[]", nil),
            ("mixpanel", #"["k"]"#, nil),
        ] as [(String, String, String?)])
    func keysAreFound(via: String, body: String, key: String?) throws {
        let format = try #require(SenderFormat.all.first { $0.via == via })
        #expect(SenderBody.key(in: Array(body.utf8), format) == key)
    }

    @Test("An event with another key than the first one is refused alone")
    func keysOfARequestAreOne() throws {
        let events = ["k", "other", "k"].map { #"{"event":"e","properties":{"token":"\#($0)","time":1795953600}}"# }
        #expect(try read("[\(events.joined(separator: ","))]", "mixpanel").reasons == [nil, "other_project", nil])
    }

    @Test(
        "JSON is found in a form's field and in base64 of either alphabet, padded or not; what is none stays as it is",
        arguments: [
            ("data=%7B%22a%22%3A%22+%2b%22%7D&verbose=1", #"{"a":" +"}"#), ("ip=0&data=[1]", "[1]"), ("eyJhIjoifj8-In0=", #"{"a":"~?>"}"#),
            // U+1F600 as two halves, and half of it.
            ("data=eyJhIjoi7aC97biAIn0", #"{"a":"😀"}"#), ("data=eyJhIjoi7aC9In0", #"{"a":"\#u{FFFD}"}"#),
            ("data=eyJhIjoi7ZeQIn0", #"{"a":"헐"}"#),
            ("data=eyJhIjoifj8%2BIn0%3D", #"{"a":"~?>"}"#), ("data=eyJhIjoifj8-In0", #"{"a":"~?>"}"#),
            (#" {"a":"data=1"}"#, #" {"a":"data=1"}"#),
            ("data_list=%5B1%5D", "[1]"), ("a=1&b=2", "a=1&b=2"), ("data=%", "%"), ("", ""),
            (String(repeating: "&", count: 1_000), String(repeating: "&", count: 1_000)),
        ])
    func formsAreRead(body: String, json: String) {
        #expect(String(decoding: SenderForm.json(in: Array(body.utf8)), as: UTF8.self) == json)
    }

    @Test("An Amplitude id that is no UUID is one with its device") func scopeIsPartOfAnID() throws {
        func id(_ device: String) throws -> String {
            try read(#"{"events":[{"event_type":"e","insert_id":"i","device_id":"\#(device)","time":1}]}"#, "amplitude").ids[0]
        }
        #expect(try id("a") == id("a") && id("a") != id("b"))
    }

    @Test("What belongs to all events of a body is kept with each, wherever it stands; its instant is sent_at")
    func sharedFieldsAreKept() throws {
        let read = try read(
            #"{"context":{"library":{"name":"l"}},"batch":[{"messageId":"m","event":"e","userId":"u","context":{"ip":"1"}}],"sentAt":"1970-01-01T00:00:02Z","writeKey":"k"}"#
        )
        #expect(
            read.laid[0].hasSuffix(
                #""$via":{"context":{"ip":"1"},"batch":{"context":{"library":{"name":"l"}}},"id":"m","sdk":"segment"}}}"#))
        #expect(read.sentAt == 2_000 && !read.laid[0].contains("writeKey"))
        #expect(
            try self.read(#"{"messageId":"m","userId":"u"}"#, "segment", type: "identify").laid[0].contains(#""event":"$identify""#),
            "one event is a body, too")
    }

    @Test(
        "Ids are frozen: a UUID is itself, another text a hash, with its instant where it has one, by door and SDK",
        arguments: [
            ("0198d3b4-0000-7000-8000-000000000001", "0198d3b4-0000-7000-8000-000000000001"),
            ("F47AC10B-58CC-4372-A567-0E02B2C3D479", "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
            ("f47ac10b58cc4372a5670e02b2c3d479", "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
            ("order-17", "445214c4-a8b3-824c-bd1a-e7f5cb7b70f5"),
        ])
    func idsAreFrozen(text: String, id: String) throws {
        let sent = try event(#"{"messageId":"\#(text)","event":"e","userId":"u"}"#)
        #expect(sent.id == id && sent.laid.contains(#""id":"#) == (text == "order-17"), "another spelling is no other content")
        let other = try event(#"{"messageId":"\#(text)","event":"e","userId":"u"}"#, .secret).id
        #expect((other == id) == (text != "order-17"))
    }

    @Test("A version 8 UUID of a sender occupies no derived id; Segment's own ids lie in their month")
    func foreignIDsOccupyNothing() throws {
        let derived = EventID.derived(name: "order_paid", key: "17")
        #expect(try event(#"{"messageId":"\#(derived)","event":"e","userId":"u"}"#).id != derived.description)
        let dated = try event(#"{"messageId":"ajs-next-1764417600000-0b3e1c7c-3f7a-4a55-9b5e-1f2f6c1f4e11","event":"e","userId":"u"}"#).id
        #expect(EventID(uuidString: dated)?.unixMilliseconds == 1_764_417_600_000)
        #expect(dated == "019acf7b-fa00-7855-ab64-dd16289708cc", "frozen; by Python's hashlib")
    }

    @Test("Without an id equal content is one event, in whatever order its members stand; equal ones of one request are counted")
    func contentIsAnID() throws {
        let first = #"{"event":"e","userId":"u","timestamp":"2026-11-29T12:00:00Z","properties":{"a":1,"b":[2.0]}}"#
        let again = #"{"userId":"u","properties":{"b":[2],"a":1},"timestamp":"2026-11-29T13:00:00+01:00","event":"e","sentAt":"now"}"#
        let (one, other) = (try event(first).id, try event(again).id)
        #expect(one == other && EventID(uuidString: one)?.unixMilliseconds == 1_795_953_600_000)
        #expect(one == "01a2272d-2600-776a-8857-d234fefe49c7", "frozen")
        let three = try read(#"{"batch":[\#(first),\#(again),\#(first.replacing("\"a\":1", with: "\"a\":3"))]}"#).ids
        #expect(Set(three).count == 3 && three[0] == one)
        let timeless = #"{"event":"e","userId":"u"}"#
        #expect(try self.read(timeless, arrival: 1).ids != self.read(timeless, arrival: 2).ids, "without a time each is one of its own")
        let pages = try ["Home", "About"].map { try event(#"{"type":"page","userId":"u","name":"\#($0)"}"#).id }
        #expect(pages[0] != pages[1], "all that is stored counts")
        let bodies =
            ["", #""context":{"c":1},"#, #""context":{"c":2},"#].map { #"{\#($0)"batch":[\#(first)]}"# }
            + [#"{"batch":[\#(first.dropLast()),"anonymousId":"a"}]}"#, #"{"batch":[\#(first.dropLast()),"anonymousId":"b"}]}"#]
        #expect(Set(try bodies.map { try read($0).ids[0] }).count == 5, "and so do the body's context and the anonymous user")
    }

    @Test(
        "A bad event is refused alone, under its own id, and shows what was sent",
        arguments: [
            (#"{"messageId":"m","event":"e","userId":"u","properties":{"x":NaN}}"#, "invalid_json"),
            (#"{"messageId":"m","event":"\#(String(repeating: "n", count: 201))","userId":"u"}"#, "name_too_long"),
            (#"{"messageId":"m","event":"e","userId":["u"]}"#, "invalid_distinct_id"),
            (#"{"messageId":"m","event":"e","userId":"u","properties":{"x":1e5000}}"#, "invalid_number"),
            (
                #"{"messageId":"m","event":"e","userId":"u","properties":\#(String(repeating: "[", count: 40) + String(repeating: "]", count: 40))}"#,
                "too_deep"
            ),
            ("5", "not_an_object"), (#"{"type":"track","messageId":"m","userId":"u"}"#, "missing_event"),
            (#"{"bathc":[]}"#, "missing_event"),
            (#"{"messageId":"m" "event":"e"}"#, "invalid_json"),
            ("{\"messageId\":\"m\",\"event\":\"e\",\"userId\":\"u\",\"a\":[\u{1}]}", "invalid_json"),
            (#"{"messageId":"m","event":"e","userId":12abc}"#, "invalid_json"),
            (
                #"{"messageId":"m","event":"e","userId":"u","properties":{"a":\#(String(repeating: "[", count: 90) + String(repeating: "]", count: 90))}}"#,
                "too_deep"
            ),
        ])
    func badEventIsRefusedAlone(event: String, reason: String) throws {
        let good = #"{"messageId":"good","event":"e","userId":"u"}"#
        let read = try read(#"{"batch":[\#(good),\#(event),\#(good)]}"#)
        #expect(read.reasons == [nil, reason, nil])
        #expect(read.laid[1].contains(event) && (read.ids[1].isEmpty == !event.contains(#""messageId":"m","#)))
    }

    @Test(
        "A body that is none is refused whole",
        arguments: [
            "", "{", #"{"batch":5}"#, #"{"batch":[{]}"#, #"{"batch":[],"batch":[]}"#, #"{"batch":[{}]} x"#, #"{"batch":[{} {}]}"#,
            #"{"a":}"#,
        ])
    func badBodyIsRefused(body: String) {
        #expect(throws: BodyProblem.self) { try read(body) }
    }

    @Test(
        "Times are those of ISO 8601, and nothing else",
        arguments: [
            ("2026-11-29T12:00:00Z", 1_795_953_600_000), ("2026-11-29 12:00", 1_795_953_600_000),
            ("2026-11-29T12:00:00,25", 1_795_953_600_250), ("1795953600250", 1_795_953_600_250), ("20261129120000", nil),
            ("2026-11-29T13:00:00.123456+0100", 1_795_953_600_123), ("2026-11-29T07:30:00-04:30", 1_795_953_600_000),
            ("2026-11-29T12:00:60Z", nil), ("2026-13-01T00:00:00Z", nil), ("1969-12-31T23:59:59Z", nil), ("yesterday", nil),
            ("2026-11-29T12:00:00.Z", nil),
        ] as [(String, Int64?)])
    func timesAreRead(text: String, milliseconds: Int64?) throws {
        #expect(try event(#"{"event":"e","userId":"u","timestamp":"\#(text)"}"#).laid.contains(#""time":\#(milliseconds ?? 1_000),"#))
    }

    @Test("What belongs to all events is stored with each, so it has a bound: a small body never becomes a large one")
    func sharedFieldsAreBounded() throws {
        let events = (0..<1_000).map { #"{"messageId":"\#($0)","event":"e","userId":"u"}"# }.joined(separator: ",")
        let large = try read(#"{"batch":[\#(events)],"context":{"a":"\#(String(repeating: "x", count: 70_000))"}}"#)
        #expect(large.reasons == Array(repeating: "event_too_large", count: 1_000))
        let many = #"{"batch":[\#(events)],"context":{"a":"\#(String(repeating: "x", count: 30_000))"}}"#
        #expect(#expect(throws: BodyProblem.self) { try read(many) }?.code == .bodyTooLarge)
    }

    @Test(
        "Half a surrogate pair in what is only stepped over harms nothing: names of members, keys, texts that hold JSON",
        arguments: [
            (
                "segment",
                #"{"\ud83d\u0041":1,"sentAt":"\ud83d\u0041","writeKey":"\ud83d\u0041","batch":[{"messageId":"\ud83d\u0041","messag\ud83d\u0041":1}]}"#
            ),
            ("mixpanel", #"[{"event":"e","properties":{"tok\ud83d\u0041":1,"\ud83d\ud83d":2,"token":"\ud83d\u0041"}}]"#),
            ("snowplow", #"{"data":[{"e":"ue","ue_pr":"{\ud800\u0041}","co":"{\"data\":\"\ud83d\u0041\"}"}]}"#),
            ("snowplow", #"{"data":[{"e":"ue","ue_pr":"{\"data\":{\"schema\":\"iglu:a/\\ud83d\\u0041/c/d\",\"data\":{}}}"}]}"#),
            ("cloudevents", #"{"\udc00\ud83d\u0041":1,"id":"1\ud83d","source":"\ud83d\"u0041"}"#),
            ("posthog", #"{"ev\ud83d\u0041":[],"x\ud8":1}"#),
        ])
    func halvesOfPairsAreHarmless(via: String, body: String) throws {
        let format = try #require(SenderFormat.all.first { $0.via == via })
        _ = (try? read(body, via), SenderBody.key(in: Array(body.utf8), format), SenderBody.sentIDs(in: Array(body.utf8), format))
    }

    @Test("What a refusal shows of an event holds no key")
    func refusalsHideKeys() throws {
        for (via, event) in [
            ("mixpanel", #"{"event":5,"properties":{"token":"secret","distinct_id":"u"}}"#),
            ("segment", #"{"writeKey":"secret","type":"track"}"#),
            ("posthog", #"{"api_key":"secret","properties":{}}"#), ("sensors", #"[{"token":"secret","type":"track"}]"#),
        ] {
            let read = try read(event, via, type: "")
            #expect(
                read.reasons.first??.isEmpty == false && read.laid.first?.contains("******") == true && !read.laid[0].contains("secret"))
        }
        #expect(try !read(#"{"events":[{"event_type":"e","api_key":"secret"}]}"#, "amplitude").laid[0].contains("secret"))
    }

    @Test(
        "Whatever is damaged, an event that is taken is one object of ours, with our mark last",
        arguments: [
            (
                "segment",
                #"{"batch":[{"messageId":"m","event":"e\ud83d","userId":"u","properties":{"a":[1,{"b":"}"}]},"context":{"x":"\""}},{"event":"f","userId":"v"}],"sentAt":"x"}"#
            ),
            (
                "mixpanel",
                #"[{"event":"e\u0000","properties":{"token":"k","time":1.5,"distinct_id":7,"$insert_id":"i","$via":{"sdk":"x"},"a":[{"b":"]"}]}},{"$token":"k","$set":{"a":"\""},"$add":{"n":1}}]"#
            ),
            (
                "snowplow",
                #"{"data":[{"e":"ue","eid":"m","ue_pr":"{\"data\":{\"schema\":\"iglu:a/b/c/d\",\"data\":{\"$via\":{\"sdk\":\"x\"}}}}","co":"{\"data\":[{\"a\":\"]\"}]}"},{"e":"pv","url":"}"}]}"#
            ),
            (
                "cloudevents",
                #"[{"id":"1","source":"s","type":"t","data":{"$via":{"sdk":"x"}}},{"source":"s","type":"t","data":[1,"}"],"subject":7}]"#
            ),
        ])
    func damageStaysInside(via: String, text: String) throws {
        let (body, format) = (Array(text.utf8), try #require(SenderFormat.all.first { $0.via == via }))
        var random = SeededRandom.printed()
        for _ in 0..<20_000 {
            let damaged = random.mutated(body)
            var scan = SenderBody(damaged, format, type: "track", .public, arrival: 1)
            while (try? scan.next { fields, buffer, _ in
                guard fields.problem == nil else { return }
                let text = String(decoding: buffer, as: UTF8.self)
                #expect(fields.id != nil && EventScanner.check(Array(buffer)) == nil, "\(String(decoding: damaged, as: UTF8.self))")
                #expect(text.contains(#""sdk":"\#(via)""#) && text.hasSuffix("}}}"))
            }) == true {}
        }
    }
}
