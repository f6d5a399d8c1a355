import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// Events of other vendors' SDKs, from the request to the rows and the answer.
@Suite("Other SDKs' requests (I2, I3, I8)", .endsWhenItHangs)
struct SenderRoutesTests {
    /// As Segment's SDKs give their key: the name, with an empty password.
    private static func basic(_ key: String) -> [String: String] {
        ["Authorization": "Basic \(Data("\(key):".utf8).base64EncodedString())"]
    }

    private static func event(_ id: String, _ more: String = #""properties":{"n":1,"m":[1,2]}"#) -> String {
        #"{"type":"track","messageId":"\#(id)","event":"e","userId":"u","timestamp":"2026-11-29T12:00:00Z",\#(more)}"#
    }

    private static func batch(_ events: [String], sentAt: String = "2026-11-29T12:00:01Z") -> String {
        #"{"batch":[\#(events.joined(separator: ","))],"sentAt":"\#(sentAt)"}"#
    }

    private func send(
        _ text: String, to server: RunningServer, path: String = "/v1/batch", key: String = RunningServer.key,
        headers: [String: String] = [:],
        body: [UInt8]? = nil
    ) async throws -> (status: Int, body: String, message: HTTPMessage) {
        let answer = try await RawHTTP.post(
            port: server.port, path: path, headers: Self.basic(key).merging(headers) { $1 }, body: body ?? Array(text.utf8))
        return (answer.status, String(decoding: answer.body, as: UTF8.self), answer)
    }

    @Test("Whatever is sent again, in whatever batch, packing and order, is stored once", arguments: StoreUnderTest.Kind.allCases)
    func sentAgainIsStoredOnce(kind: StoreUnderTest.Kind) async throws {
        let place = try await StoreUnderTest(kind)
        let events = (0..<20).map { Self.event($0.isMultiple(of: 2) ? EventID.derived(name: "m", key: "\($0)").description : "m-\($0)") }
        let unnamed = #"{"type":"track","event":"e","userId":"u","timestamp":"2026-11-29T12:00:00Z","properties":{"a":1,"b":2}}"#
        let shuffled = #"{"properties":{"b":2,"a":1.0},"userId":"u","event":"e","timestamp":"2026-11-29T12:00:00.000Z","type":"track"}"#
        try await RunningServer.run(on: try await place.open()) { server in
            let first = try await send(Self.batch(events + [unnamed]), to: server)
            #expect(
                first.status == 200
                    && first.body.contains(
                        #""received":21,"stored":21,"duplicates":0,"rejected":0,"conflicts":0,"expired":0,"outcomes":[]"#)
            )
            let packed = try Gzip.compress(Array(Self.batch(events.reversed() + [shuffled], sentAt: "2026-11-30T00:00:00Z").utf8))
            let again = try await send("", to: server, path: "/v1/import", headers: ["Content-Encoding": "gzip"], body: packed)
            #expect(again.status == 200 && again.body.contains(#""stored":0,"duplicates":21"#), "\(again.body)")
            let single = try await send(events[3], to: server, path: "/v1/t")
            #expect(single.body.contains(#""received":1,"stored":0,"duplicates":1"#))
            let rows = "SELECT count(*) FROM events WHERE CAST(properties AS text) LIKE '%sdk%segment%'"
            #expect(try await place.rows(rows) == [["21"]])
        }
    }

    @Test(
        "Another content under the same id text is a visible conflict; a server's key has ids of its own",
        arguments: StoreUnderTest.Kind.allCases)
    func otherContentIsAConflict(kind: StoreUnderTest.Kind) async throws {
        let place = try await StoreUnderTest(kind)
        let store = try await place.open()
        let registry = Registry(database: store.sql)
        _ = try await registry.addProject("conflicts")
        let key = try await registry.addKey(.write, project: "conflicts", now: Sample.now).secret
        let serverKey = try await registry.addKey(.server, project: "conflicts", now: Sample.now).secret
        try await RunningServer.run(on: store) { server in
            _ = try await send(Self.batch([Self.event("m")]), to: server, key: key)
            let other = try await send(Self.batch([Self.event("m", #""properties":{"n":2}"#)]), to: server, key: key)
            #expect(
                other.status == 200 && other.body.contains(#""stored":0,"duplicates":0"#) && other.body.contains(#""outcome":"conflict""#))
            #expect(try await send(Self.batch([Self.event("m")]), to: server, key: serverKey).body.contains(#""stored":1"#))
        }
    }

    @Test(
        "The key may stand in the path or the query, if it is one that is public; two projects' keys are none",
        arguments: [
            ("/k/\(RunningServer.key)/v1/batch", nil, 200, #""stored":1"#),
            ("/beacon/v1/batch?writeKey=\(RunningServer.key)", nil, 200, #""stored":1"#),
            ("/k/wrong/v1/batch", RunningServer.key, 200, #""stored":1"#), ("/k/wrong/v1/batch", nil, 401, #""reason":"unknown_key""#),
            ("/k/\(RunningServer.readKey)/v1/batch", RunningServer.key, 403, #""reason":"wrong_key_kind""#),
            ("/k/\(RunningServer.otherKey)/v1/batch", RunningServer.key, 403, #""reason":"other_project""#),
            ("/v1/batch?writeKey=&verbose=", RunningServer.key, 200, #""stored":1"#), ("/v1/batch", nil, 401, #""reason":"unknown_key""#),
            ("/api/v1/batch", RunningServer.key, 404, "without a path"),
        ] as [(String, String?, Int, String)])
    func keyMayStandInTheAddress(path: String, key: String?, status: Int, says: String) async throws {
        try await RunningServer.run { server in
            let answer = try await RawHTTP.post(
                port: server.port, path: path, headers: key.map(Self.basic) ?? [:], body: Array(Self.batch([Self.event("a")]).utf8))
            #expect(answer.status == status && String(decoding: answer.body, as: UTF8.self).contains(says))
            #expect(answer["Content-Type"] == "application/json")
        }
    }

    @Test(
        "The key may stand in the body, wherever and however packed; what stands outside counts more",
        arguments: [
            (#"{"writeKey":"KEY","batch":[E]}"#, nil, 200, #""stored":1"#), (#"{"batch":[E],"writeKey":"KEY"}"#, nil, 200, #""stored":1"#),
            ("\u{FEFF} {\"batch\":[E],\"writeKey\":\"KEY\"} ", "wrong", 200, #""stored":1"#),
            (#"{"batch":[E],"writeKey":"nobody's"}"#, RunningServer.key, 200, #""stored":1"#),
            (#"{"batch":[E],"writeKey":"nobody's"}"#, nil, 401, "or the body"), (#"{"batch":[E],"writeKey":7}"#, nil, 401, "or the body"),
            (#"{"batch":[E],"properties":{"writeKey":"KEY"}}"#, nil, 401, "or the body"),
            (#"{"batch":[E],"writeKey":"READ"}"#, nil, 403, "wrong_key_kind"), ("nonsense", nil, 401, "or the body"),
            ("", nil, 400, "the body is empty"), ("", RunningServer.key, 400, "malformed"),
        ] as [(String, String?, Int, String)])
    func keyMayStandInTheBody(body: String, key: String?, status: Int, says: String) async throws {
        let text = body.replacing("E]", with: Self.event("a") + "]").replacing("KEY", with: RunningServer.key)
            .replacing("READ", with: RunningServer.readKey)
        for form in ["plain", "gzip", "gzip, unsaid", "zlib"] {
            try await RunningServer.run { server in
                let bytes = Array(text.utf8)
                let packed = try form == "plain" || text.isEmpty ? bytes : form == "zlib" ? Self.zlib(bytes) : Gzip.compress(bytes)
                let headers = form == "gzip" ? ["Content-Encoding": "gzip"] : [:]
                let answer = try await RawHTTP.post(
                    port: server.port, path: "/v1/batch", headers: (key.map(Self.basic) ?? [:]).merging(headers) { $1 }, body: packed)
                #expect(answer.status == status && String(decoding: answer.body, as: UTF8.self).contains(says), "\(form)")
            }
        }
    }

    /// The same bytes in zlib's format, stored as they are (RFC 1950, RFC 1951 §3.2.4).
    private static func zlib(_ bytes: [UInt8]) -> [UInt8] {
        let (count, sums) = (
            UInt16(bytes.count),
            bytes.reduce((a: UInt32(1), b: UInt32(0))) { sums, byte in
                let a = (sums.a + UInt32(byte)) % 65_521
                return (a, (sums.b + a) % 65_521)
            }
        )
        let length = [count, ~count].flatMap { [UInt8(truncatingIfNeeded: $0), UInt8($0 >> 8)] }
        let sum = (sums.b << 16 | sums.a).bigEndian
        return [0x78, 0x01, 1] + length + bytes + withUnsafeBytes(of: sum, Array.init)
    }

    @Test("An event a line is a body, too, packed or not; a line that is none is told from the others")
    func linesAreEvents() async throws {
        let lines = (0..<3).map {
            #" {"event":"e","properties":{"token":"\#(RunningServer.key)","distinct_id":"u","$insert_id":"\#($0)","time":1790000000}}"#
        }
        try await RunningServer.run { server in
            for body in [
                Array((lines.joined(separator: "\r\n\n") + "\n5\n").utf8), try Gzip.compress(Array(lines.joined(separator: "\n").utf8)),
            ] {
                let answer = try await send(
                    "", to: server, path: "/import?verbose=1", headers: ["Content-Type": "application/x-ndjson"], body: body)
                let isFirst = body.first != 0x1F
                #expect(
                    answer.status == 200
                        && answer.body.contains(isFirst ? #""stored":3,"duplicates":0,"rejected":1"# : #""stored":0,"duplicates":3"#),
                    "\(answer.body)")
            }
        }
    }

    @Test("A plain body may have 8 MiB, a packed one 1 MiB, as it arrives")
    func bodiesMayBeLarge() async throws {
        try await RunningServer.run { server in
            let events = (0..<200).map { Self.event("m-\($0)", #""properties":{"n":"\#(String(repeating: "x", count: 30_000))"}"#) }
            let large = try await send(Self.batch(events), to: server)
            #expect(large.status == 200 && large.body.contains(#""stored":200"#))
            let padding = [UInt8](repeating: 0x20, count: EventLimits.maximumDecompressedBodyBytes)
            #expect(try await send("", to: server, body: padding + [0x20]).status == 413)
            let noise = [0x1F, 0x8B] + padding.prefix(EventLimits.maximumBodyBytes)
            #expect(try await send("", to: server, body: Array(noise)).status == 413)
        }
    }

    @Test(
        "Events in an address are stored as those of a body; who looks without asking for the answer stores none",
        arguments: [
            ("/i?e=pv&eid=i&url=https%3A%2F%2Fa%2F&p=web", "$page", true), ("/track?data=DATA", "e", true), ("/e/?data=DATA", "e", true),
            ("/sa.gif?data=DATA&ext=crc%3D1", "e", true), ("/sa?data_list=DATA", "e", true),
            ("/engage?data=%7B%22%24set%22%3A%7B%7D%7D", "$profile_set", true),
            ("/sa.gif?ext=crc%3D1", "", false), ("/i?e=se", "", true),
        ])
    func picturesAreEvents(path: String, name: String, isRead: Bool) async throws {
        let data = Data(#"{"event":"e","properties":{}}"#.utf8).base64EncodedString()
        let path =
            "/k/\(RunningServer.key)"
            + path.replacing("DATA", with: try #require(data.addingPercentEncoding(withAllowedCharacters: .alphanumerics)))
        let place = try await StoreUnderTest(.sqlite)
        try await RunningServer.run(on: try await place.open()) { server in
            let looker = try await RawHTTP(port: server.port)
            try await looker.send(RawHTTP.request("HEAD", path))
            #expect(try await looker.answer(to: "HEAD").status == 405)
            let picture = try await RawHTTP.get(port: server.port, path: path, headers: ["Accept": "image/avif,*/*"])
            #expect(
                (picture.status == 200) == isRead && (picture["Content-Type"] == "image/gif") == isRead
                    && (picture.body.count == 43) == isRead)
            #expect(picture["Cache-Control"] == (isRead ? "no-store" : nil))
            let names = try await place.rows("SELECT event FROM events")
            #expect(names == (name.isEmpty ? [] : [[name]]))
            let text = try await RawHTTP.get(port: server.port, path: path)
            #expect(text.status == 400 || text["Content-Type"]?.contains("image") == false)
        }
    }

    @Test("A picture is a page's: its Referer counts as its origin; a server's key stands in no address, and no key in a row")
    func picturesNameTheirPages() async throws {
        let place = try await StoreUnderTest(.sqlite)
        let store = try await place.open()
        let registry = Registry(database: store.sql)
        _ = try await registry.addProject("pages")
        let origins = ["https://shop.example"]
        let page = try await registry.addKey(.browser, project: "pages", origins: origins, now: Sample.now).secret
        let secret = try await registry.addKey(.server, project: "pages", now: Sample.now).secret
        let reader = try await registry.addKey(.read, project: "pages", now: Sample.now).secret
        let old = try await registry.addKey(.write, project: "pages", now: Sample.now)
        _ = try await registry.revokeKey(old.key.id, now: Sample.now)
        try await RunningServer.run(on: store) { server in
            func get(_ path: String, _ referer: String?) async throws -> Int {
                try await RawHTTP.get(port: server.port, path: path, headers: referer.map { ["Referer": $0] } ?? [:]).status
            }
            #expect(try await get("/i?e=pv&eid=a&api_key=\(page)", "https://shop.example/cart?x=1") == 200)
            #expect(try await get("/i?e=pv&eid=b&api_key=\(page)", "https://evil.example/?https://shop.example/") == 403)
            #expect(try await get("/i?e=pv&eid=b&api_key=\(page)", "https://a;b/") == 403)
            func refusals() async throws -> String {
                String(
                    decoding: try await RawHTTP.get(port: server.port, path: "/v1/refusals", headers: ["Authorization": "Bearer \(reader)"])
                        .body, as: UTF8.self)
            }
            #expect(try await refusals().contains("--origin 'https://shop.example' --origin 'https://evil.example'"))
            #expect(
                try await refusals().contains("--origin 'https://shop.example' --origin 'ORIGIN'"),
                "nothing to paste that a shell would run")
            #expect(try await get("/k/\(page)/sa.gif?data=%7B%22event%22%3A%22e%22%7D", nil) == 403)
            #expect(try await get("/e?data=%7B%22event%22%3A%22e%22%2C%22api_key%22%3A%22\(secret)%22%7D", nil) == 403)
            let rows = try await place.rows("SELECT CAST(properties AS text) FROM events")
            #expect(try await get("/i?e=pv&eid=c&api_key=\(old.secret)", nil) == 401)
            #expect(try await refusals().contains("this key has been revoked"), "its project sees who still sends with it")
            #expect(rows.count == 1 && !rows[0][0].contains("hapax_"))
        }
    }

    @Test("PostHog's newer protocol hears of each event under the id that it was sent with")
    func eachEventHasAResult() async throws {
        let large = #"{"event":"e","properties":{"x":"\#(String(repeating: "y", count: 70_000))"},"uuid":"large"}"#
        let events = ["A1B2C3D4-58CC-4372-A567-0E02B2C3D479", "text", "bad", String(repeating: "long", count: 60)].map {
            #"{"uuid":"\#($0)","event":"\#($0 == "bad" ? String(repeating: "n", count: 201) : "e")","distinct_id":"u","timestamp":"2026-11-29T12:00:00Z"}"#
        }
        try await RunningServer.run { server in
            for _ in 0..<2 {
                let answer = try await RawHTTP.post(
                    port: server.port, path: "/i/v1/analytics/events",
                    headers: ["Authorization": "Bearer \(RunningServer.key)", "PostHog-Sdk-Info": "posthog-x/1"],
                    body: Array(#"{"created_at":"2026-11-29T12:00:00Z","batch":[\#((events + [large]).joined(separator: ","))]}"#.utf8))
                let text = String(decoding: answer.body, as: UTF8.self)
                #expect(text.contains(#""large":{"result":"drop""#) && !text.contains("longlong"), "what is too long to be repeated is not")
                #expect(text.hasPrefix(#"{"results":{"A1B2C3D4-58CC-4372-A567-0E02B2C3D479":{"result":"ok""#), "\(text)")
                #expect(text.contains(#""text":{"result":"ok""#) && text.contains(#""bad":{"result":"drop","details":""#))
            }
        }
    }

    @Test(
        "Sensors' phones keep what is answered 403: a wrong key, and what only their vendor can decrypt",
        arguments: [
            ("/sa?project=wrong", "data=e30%3D", 403), ("/sa?project=KEY", "gzip=9&data=e30%3D", 403),
            ("/sa.gif?token=KEY&project=default", "data=W10%3D", 200),
        ])
    func sensorsIsForbidden(path: String, body: String, status: Int) async throws {
        try await RunningServer.run { server in
            let answer = try await RawHTTP.post(
                port: server.port, path: path.replacing("KEY", with: RunningServer.key), body: Array(body.utf8))
            #expect(answer.status == status, "\(String(decoding: answer.body, as: UTF8.self))")
        }
    }

    @Test("One CloudEvent is one row, however it is sent")
    func modesAreOneEvent() async throws {
        let place = try await StoreUnderTest(.sqlite)
        try await RunningServer.run(on: try await place.open()) { server in
            let head = [
                "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "paid",
                "Content-Type": "application/json; charset=utf-8",
            ]
            for (headers, body) in [
                (["Content-Type": "application/cloudevents+json"], Self.cloud), (head, #"{"n":1.0}"#),
                (
                    ["Content-Type": "application/cloudevents+json"],
                    Self.cloud.replacing("{\"spec", with: #"{"datacontenttype":"application/json","spec"#)
                ),
            ] {
                let answer = try await RawHTTP.post(
                    port: server.port, path: "/k/\(RunningServer.key)/v1/cloudevents?dry_run=true", headers: headers, body: Array(body.utf8)
                )
                let isFirst = try await place.rows("SELECT count(*) FROM events") == [["0"]]
                #expect(String(decoding: answer.body, as: UTF8.self).contains(isFirst ? #""outcome":"stored""# : #""outcome":"duplicate""#))
                _ = try await RawHTTP.post(
                    port: server.port, path: "/k/\(RunningServer.key)/v1/cloudevents", headers: headers, body: Array(body.utf8))
            }
            #expect(try await place.rows("SELECT count(*) FROM events") == [["1"]])
            let asking = try await RawHTTP(port: server.port)
            try await asking.send(RawHTTP.request("OPTIONS", "/v1/cloudevents", headers: ["WebHook-Request-Origin": "broker.example"]))
            #expect(try await asking.answer(to: "OPTIONS")["WebHook-Allowed-Origin"] == "*")
        }
    }

    @Test("What an SDK only tries is not stored")
    func triesAreNotStored() async throws {
        let place = try await StoreUnderTest(.sqlite)
        try await RunningServer.run(on: try await place.open()) { server in
            let answer = try await RawHTTP.post(
                port: server.port, path: "/debug?project=\(RunningServer.key)", headers: ["Dry-Run": "true"],
                body: Array(#"{"event":"e","type":"track"}"#.utf8))
            #expect(answer.status == 200 && String(decoding: answer.body, as: UTF8.self).contains(#""dry_run":true"#))
            #expect(try await place.rows("SELECT count(*) FROM events") == [["0"]])
        }
    }

    private static let cloud = #"{"specversion":"1.0","id":"7","source":"/shop","type":"paid","data":{"n":1}}"#

    @Test(
        "One CloudEvent is answered by the status alone, in the body and in the head alike; several by a receipt",
        arguments: [
            (["Content-Type": "application/cloudevents+json; charset=utf-8"], Self.cloud, 204, ""),
            (
                ["Content-Type": "application/json", "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "paid"],
                #"{"n":1}"#, 204, ""
            ),
            (["Content-Type": "application/cloudevents-batch+json"], "[\(Self.cloud),\(Self.cloud)]", 200, #""received":2"#),
            (["Content-Type": "application/cloudevents+json"], #"{"id":"7","source":"/s"}"#, 400, "missing_event"),
            (["Content-Type": "application/cloudevents+json"], #"{"id":"7","type":"t"}"#, 400, "missing_event_id"),
            (["Content-Type": "application/cloudevents-batch+json"], #"[{"id":"7","source":"/s"}]"#, 200, "missing_event"),
            (
                ["Content-Type": "text/plain", "ce-type": "t", "ce-id": "1", "ce-source": "/s"], String(repeating: "\u{1}", count: 70_000),
                400, "event_too_large"
            ),
            (["Content-Type": "text/plain", "ce-type": "t", "ce-id": "%ff", "ce-source": "/s"], "", 400, "UTF-8"),
            (["Content-Type": "application/json"], Self.cloud, 415, "application/cloudevents+json"),
            (["Content-Type": "application/cloudevents+avro", "ce-type": "x"], "x", 415, "unsupported_type"),
            (["Content-Type": "application/cloudevents+json", "Authorization": "Bearer wrong"], Self.cloud, 401, "unknown_key"),
        ] as [([String: String], String, Int, String)])
    func cloudEventsAreAnswered(headers: [String: String], body: String, status: Int, says: String) async throws {
        let place = try await StoreUnderTest(.sqlite)
        try await RunningServer.run(on: try await place.open()) { server in
            for _ in 0..<2 {
                let answer = try await RawHTTP.post(
                    port: server.port, path: "/v1/cloudevents",
                    headers: ["Authorization": "Bearer \(RunningServer.key)"].merging(headers) { $1 }, body: Array(body.utf8))
                let text = String(decoding: answer.body, as: UTF8.self)
                #expect(answer.status == status && (says.isEmpty ? text.isEmpty : text.contains(says)), "\(text)")
            }
            let isStored = status < 300 && says != "missing_event"
            #expect(try await place.rows("SELECT event FROM events") == (isStored ? [["paid"]] : []))
        }
    }

    @Test(
        "Mixpanel's SDKs read 1, or a document if they have asked; the key stands in the events",
        arguments: [
            ("/track", "data=EVENTS&verbose=1", "application/json"), ("/track?verbose=1", "EVENTS", "application/json"),
            ("/track?ip=1", "data=BASE64", "text/plain"), ("/import", "EVENTS", "text/plain"), ("/track", "PACKED", "text/plain"),
        ])
    func mixpanelReadsOne(path: String, body: String, type: String) async throws {
        let events = #"[{"event":"e","properties":{"token":"\#(RunningServer.key)","distinct_id":"u","$insert_id":"i","time":1790000000}}]"#
        let form = try #require(events.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        let text = body.replacing("EVENTS", with: body.hasPrefix("data") ? form : events)
            .replacing("BASE64", with: Data(events.utf8).base64EncodedString())
        try await RunningServer.run { server in
            let bytes = try body == "PACKED" ? Gzip.compress(Array(events.utf8)) : Array(text.utf8)
            let answer = try await RawHTTP.post(port: server.port, path: path, body: bytes)
            #expect(answer.status == 200 && answer["Content-Type"] == type)
            let says = String(decoding: answer.body, as: UTF8.self)
            #expect(type == "text/plain" ? says == "1" : says.contains(#""status":1,"code":200"#) && says.contains(#""stored":1"#))
        }
    }

    @Test("A bad event costs only itself: it is answered as accounted for, and listed as it was sent")
    func badEventCostsOnlyItself() async throws {
        try await RunningServer.run { server in
            let answer = try await send(
                Self.batch([Self.event("a"), Self.event("b", #""properties":{"x":NaN}"#), Self.event("c")]), to: server)
            #expect(
                answer.status == 200
                    && answer.body.contains(#""stored":2,"duplicates":0,"rejected":1,"conflicts":0,"expired":0,"outcomes":[{"index":1,"#))
            let refusals = try await server.get("/v1/refusals")
            #expect(String(decoding: refusals.body, as: UTF8.self).contains(#"\"properties\":{\"x\":NaN}"#))
        }
    }

    @Test(
        "Who sends without numbers is counted by library and outcome, over a restart, and so are its refusals",
        arguments: StoreUnderTest.Kind.allCases)
    func sendersAreCounted(kind: StoreUnderTest.Kind) async throws {
        let place = try await StoreUnderTest(kind)
        let library = #""context":{"library":{"name":"analytics-python","version":"2.3.2"}},"properties":{}"#
        @Sendable func senders(_ server: RunningServer) async throws -> String {
            String(decoding: try await server.get("/v1/senders?from=2020-01-01").body, as: UTF8.self)
        }
        for round in 0..<2 {
            try await RunningServer.run(on: try await place.open()) { server in
                // What was written at the end of the first server.
                if round == 1 { #expect(try await senders(server).contains(#""received":3,"stored":2,"#)) }
                _ = try await send(
                    Self.batch([Self.event("a", library), Self.event("b", library), Self.event("c", #""properties":{"x":NaN}"#)]),
                    to: server)
                let own = #"{"event_id":"0198d3b4-0000-7000-8000-000000000001","event":"e","time":1,"distinct_id":"u"}"#
                _ = try await server.post("[\(own)]", headers: ["User-Agent": "curl/7.88.1"])
                let refusals = String(decoding: try await server.get("/v1/refusals").body, as: UTF8.self)
                #expect(refusals.contains(#""via":"segment""#))
                let metrics = try await server.metrics()
                #expect(metrics.contains(#"hapax_sender_events_total{project="shop",via="segment",outcome="rejected"} 1"#))
            }
        }
        try await RunningServer.run(on: try await place.open()) { server in
            let all = try await senders(server)
            #expect(
                all.contains(
                    #""via":"segment","library":"analytics-python 2.3.2","#)
                    && all.contains(
                        #""received":6,"stored":2,"duplicates":2,"conflicts":0,"rejected":2,"expired":0,"retry":0}"#),
                "\(all)")
            #expect(all.contains(#""via":"events","library":"curl 7.88.1","#) && all.contains(#""received":2,"stored":1,"duplicates":1,"#))
            #expect(try await server.get("/v1/senders?to=2020-01-01").body == Array(#"{"senders":[]}"#.utf8))
            #expect(try await server.get("/v1/senders?from=x").status == 400)
        }
    }

    @Test("Libraries beyond 200 of a day are counted together", arguments: StoreUnderTest.Kind.allCases)
    func librariesAreLimited(kind: StoreUnderTest.Kind) async throws {
        let place = try await StoreUnderTest(kind)
        let store = try await place.open()
        for batch in 0..<3 {
            let days = SenderDays(store.sql, currentTime: { Sample.now })
            for number in 0..<150 {
                days.note([.stored: 1], of: .init(projectID: 1, via: "events", library: "library \(150 * batch + number)"))
            }
            try await days.write()
        }
        let turn = QuestionTurn(within: .seconds(60))
        let senders = try await SenderDays(store.sql, currentTime: { Sample.now }).senders(of: 1, from: nil, to: nil, as: .question(turn))
        #expect(senders.count == 201 && senders[0].library == "other" && senders[0].received == 250)
        await store.close()
    }

    @Test(
        "An event is found by the text that its SDK has given it",
        arguments: ["order-17", "ajs-next-1790000000000-x", "a/b ü?", "0a000000-0000-8000-8000-000000000abc"])
    func eventsAreFoundByText(text: String) async throws {
        let place = try await StoreUnderTest(.sqlite)
        try await RunningServer.run(on: try await place.open()) { server in
            _ = try await send(Self.batch([Self.event(text)]), to: server)
            let path = try #require(text.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
            let found = try await server.get("/v1/events/\(path)")
            #expect(found.status == 200 && String(decoding: found.body, as: UTF8.self).contains(#""state":"stored""#))
            #expect(try await server.get("/v1/events/\(path.dropLast())").status == 404)
        }
    }

    @Test("A dry run stores nothing and says what would become of each event")
    func dryRunStoresNothing() async throws {
        try await RunningServer.run { server in
            let answer = try await send(Self.batch([Self.event("a")]), to: server, path: "/v1/batch?dry_run=true")
            #expect(answer.status == 200 && answer.body.contains(#""outcome":"stored""#))
            #expect(try await send(Self.batch([Self.event("a")]), to: server).body.contains(#""stored":1"#))
        }
    }

    @Test(
        "A refusal is one that SDKs understand: a number as its code, 503 for what may come again later",
        arguments: [
            ("wrong", Self.batch([]), 401, "unknown_key"), (RunningServer.readKey, Self.batch([]), 403, "wrong_key_kind"),
            (RunningServer.key, "[", 400, "malformed"),
        ])
    func refusalsAreUnderstood(key: String, body: String, status: Int, reason: String) async throws {
        try await RunningServer.run { server in
            let answer = try await send(body, to: server, key: key)
            #expect(answer.status == status && answer.message["Content-Type"] == "application/json")
            #expect(
                answer.body.contains(#""code":\#(status),"#) && answer.body.contains(#""reason":"\#(reason)""#)
                    && answer.body.contains(#""message":"#))
        }
    }

    @Test("A limit and a body that is too slow are 503 with a time for the SDK, never 429 or 408")
    func limitIsNoLoss() async throws {
        let place = try await StoreUnderTest(.sqlite)
        let store = try await place.open()
        _ = try await Registry(database: store.sql).addProject("limited")
        _ = try await Registry(database: store.sql).set("limited", eventsPerSecond: 1, now: Sample.now)
        let key = try await Registry(database: store.sql).addKey(.write, project: "limited", now: Sample.now).secret
        try await RunningServer.run(on: store) { server in
            // At once: what is owed is forgotten within a second, in which a busy machine may answer one of them.
            let answers = try await withThrowingTaskGroup(of: (status: Int, body: String, message: HTTPMessage).self) { tasks in
                for batch in 0..<16 {
                    tasks.addTask { try await send(Self.batch((0..<50).map { Self.event("m-\(batch)-\($0)") }), to: server, key: key) }
                }
                return try await tasks.reduce(into: []) { $0.append($1) }
            }
            let refused = answers.filter { $0.status != 200 }
            #expect(!refused.isEmpty && refused.count < answers.count)
            for answer in refused {
                #expect(answer.status == 503 && answer.body.contains(#""reason":"rate_limited""#) && answer.message["Retry-After"] != nil)
            }
        }
        var options = RunningServer.options
        options.limits.body = .milliseconds(200)
        try await RunningServer.run(options: options) { server in
            let slow = try await RawHTTP(port: server.port)
            let head = "POST /v1/batch HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \(RunningServer.key)\r\nContent-Length: 10\r\n\r\n{"
            try await slow.send(Array(head.utf8))
            let late = try await slow.answer()
            #expect(late.status == 503 && String(decoding: late.body, as: UTF8.self).contains(#""reason":"too_slow""#))
        }
    }
}
