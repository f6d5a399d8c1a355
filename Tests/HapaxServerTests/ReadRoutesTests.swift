import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// docs/reading.md: requests, over a real socket and both stores (R63).
@Suite("What can be read, over a real socket", .serialized, .endsWhenItHangs)
struct ReadRoutesTests {
    /// Runs a server on a new store in which the shop has an event, and a refused one.
    private static func run(
        _ kind: StoreUnderTest.Kind = .sqlite, keys: StaticKeys = RunningServer.keys,
        _ body: @Sendable @escaping (RunningServer) async throws -> Void
    ) async throws {
        let fixture = try await StoreUnderTest(kind)
        // Each look at the clock is a millisecond later.
        let clock = Locked(Sample.now)
        let store = try await fixture.open(currentTime: {
            clock.withLock { now in
                now += 1
                return now
            }
        })
        try await RunningServer.run(on: store, keys: keys) { server in
            let event = Sample.event(Sample.id(1), name: "secret_name", distinctID: "secret_user", properties: ["p": "secret_value"])
            let key = ["Authorization": "Bearer \(keys.shopKey)"]
            #expect(try await server.post(Array("[".utf8) + event + Array("]".utf8), headers: key).status == 200)
            let refused = #"[{"event_id":"\#(Sample.id(2))","event":"secret_refused","time":0,"distinct_id":""}]"#
            #expect(try await server.post(refused, headers: key).status == 200)
            try await body(server)
        }
    }

    /// Every path that a reader may ask, with what is there for the shop.
    private static let paths = [
        "/v1/events", "/v1/events/\(Sample.id(1))", "/v1/events/\(Sample.id(2))", "/v1/names", "/v1/refusals", "/v1/live",
        "/v1/reports/daily?from=2026-01-01&to=2026-01-02&basis=all", "/v1/export",
        "/v1/reports/series?from=2026-01-01&to=2026-01-02&basis=all",
        "/v1/reports/breakdown?property=p&from=2026-01-01&to=2026-01-02&basis=all", "/v1/reports/funnel?step=a&step=b",
        "/v1/reports/retention?start=a", "/v1/users?prefix=secret",
    ]

    private static func path(_ path: String, _ query: String) -> String {
        path + (path.contains("?") ? query.replacing("?", with: "&") : query)
    }

    @Test("A key says what it is for, whoever holds it")
    func keySaysWhatItIsFor() async throws {
        try await Self.run { server in
            for (key, status, text) in [
                (RunningServer.readKey, 200, #"{"kind":"read","projects":["shop"]}"#),
                (RunningServer.adminKey, 200, #"{"kind":"admin","read_only":false,"all_projects":true,"projects":["app","shop"]}"#),
                (RunningServer.key, 403, "wrong_key_kind"),
                ("nobody", 401, "unknown_key"),
            ] {
                let answer = try await server.get("/v1/key", key: key)
                #expect(answer.status == status && String(decoding: answer.body, as: UTF8.self).contains(text))
            }
        }
    }

    @Test("Every path with every kind of key: who may not read is told why, and nobody sees another's project (I9)")
    func everyPathWithEveryKey() async throws {
        try await Self.run { server in
            for path in Self.paths {
                func status(_ key: String, _ query: String = "", _ method: String = "HEAD") async throws -> Int {
                    try await server.get(Self.path(path, query), key: key, method: method).status
                }
                let isEvent = path.hasPrefix("/v1/events/")
                #expect(try await status("nobody") == 401, "\(path)")
                #expect(try await status(RunningServer.key) == 403, "\(path)")
                #expect(try await status(RunningServer.readKey) == 200, "\(path)")
                #expect(try await status(RunningServer.otherReadKey) == (isEvent ? 404 : 200), "\(path)")
                #expect(try await status(RunningServer.adminKey) == 400, "\(path)")
                #expect(try await status(RunningServer.adminKey, "?project=nobody") == 400, "\(path)")
                #expect(try await status(RunningServer.adminKey, "?project=shop") == 200, "\(path)")
                #expect(try await status(RunningServer.readKey, "?project=app") == 400, "\(path)")
                guard path != "/v1/live", !path.contains("/funnel"), !path.contains("/retention") else { continue }
                let shown = path.contains("/series") ? #""users":1"# : "secret"
                // What has just been received is not exported yet.
                while try await server.get(path).body.isEmpty {}
                let mine = String(decoding: try await server.get(path).body, as: UTF8.self)
                let other = String(decoding: try await server.get(path, key: RunningServer.otherReadKey).body, as: UTF8.self)
                let admin = String(
                    decoding: try await server.get(Self.path(path, "?project=shop"), key: RunningServer.adminKey).body, as: UTF8.self)
                #expect(mine.contains(shown) && admin.contains(shown) && !other.contains(shown), "\(path): \(other)")
            }
            #expect(try await server.get("/metrics").status == 403)
            let reader = ["Authorization": "Bearer \(RunningServer.readKey)"]
            #expect(try await server.post("[]", headers: reader).problemCode == .wrongKeyKind)
        }
    }

    @Test(
        "A parameter that cannot be used is named; what its value was is not repeated",
        arguments: [
            ("/v1/events?limit=0", "limit"), ("/v1/events?limit=1001", "limit"), ("/v1/events?limit=1e2", "limit"),
            ("/v1/events?limit=", "limit"),
            ("/v1/events?limit", "limit"), ("/v1/events?limit=1&limit=1", "limit"), ("/v1/events?from=yesterday", "from"),
            ("/v1/events?from=2026-02-30", "from"), ("/v1/events?from=2026-01-02&to=2026-01-01", "to"),
            ("/v1/events?install_id=x", "install_id"), ("/v1/events?happened_from=x", "happened_from"),
            ("/v1/export?happened_from=2026-01-02&happened_to=2026-01-01", "happened_to"), ("/v1/reports/daily?by=event", "by"),
            ("/v1/events?where=plan", "where"), ("/v1/events?after=x", "after"), ("/v1/events?after=1.x", "after"),
            ("/v1/events?event=%ff", "event"),
            ("/v1/events/\(Sample.id(1))?limit=1", "limit"), ("/v1/names?to=x", "to"), ("/v1/refusals?limit=201", "limit"),
            ("/v1/users", "prefix"), ("/v1/users?prefix=a&limit=101", "limit"),
            ("/v1/refusals?after=-1", "after"), ("/v1/live?outcome=lost", "outcome"),
            ("/v1/export?after=x", "after"), ("/v1/export?after=\(Sample.id(77))", "after"), ("/v1/export?limit=1", "limit"),
            ("/v1/reports/daily?from=2026-01-01T00:00:00Z", "from"), ("/v1/reports/daily?from=2026-01-02&to=2026-01-01", "to"),
            ("/v1/reports/series?over=8", "over"), ("/v1/reports/series?over=7&unit=hour", "over"),
            ("/v1/reports/series?compare=next", "compare"),
            ("/v1/reports/series?where=plan", "where"), ("/v1/reports/series?event=a&event=b", "event"),
            ("/v1/reports/series?format=xml", "format"),
            ("/v1/reports/series?from=2026-01-01&to=2026-01-01", "to"),
            ("/v1/reports/breakdown", "property"), ("/v1/reports/breakdown?property=p&limit=0", "limit"),
            ("/v1/reports/funnel?step=a", "step"),
            ("/v1/reports/funnel?\((0..<9).map { "step=\($0)" }.joined(separator: "&"))", "step"),
            ("/v1/reports/funnel?step=a&step=b&where3=p:1", "where3"), ("/v1/reports/funnel?step=a&step=b&within=91d", "within"),
            ("/v1/reports/funnel?step=a&step=b&within=7", "within"), ("/v1/reports/retention?unit=month", "unit"),
            ("/v1/reports/daily?basis=most", "basis"), ("/v1/reports/daily?day=2026-01-01", "day"), ("/v1/live?from=2026-01-01", "from"),
        ])
    func badParameterIsNamed(path: String, parameter: String) async throws {
        try await RunningServer.run { server in
            let answer = try await server.get(path)
            #expect(answer.problemCode == .invalidParameter)
            let problem = try #require(try JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any])
            #expect(problem["parameter"] as? String == parameter)
        }
    }

    @Test("A list, one event, names and refusals in their documented shapes", arguments: StoreUnderTest.Kind.allCases)
    func answersHaveTheirShapes(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            func json(_ path: String) async throws -> NSDictionary {
                let answer = try await server.get(path)
                #expect(answer["Content-Type"] == "application/json" && answer["Cache-Control"] == "no-store", "\(path)")
                return try #require(try JSONSerialization.jsonObject(with: Data(answer.body)) as? NSDictionary)
            }
            // On a machine that is busy a list may end before it has found anything, and says where it goes on.
            func list(_ path: String) async throws -> NSDictionary {
                while true {
                    let list = try await json(path)
                    if (list["events"] as? [NSDictionary])?.isEmpty == false || list["next"] is NSNull { return list }
                }
            }
            let nothing = try await list("/v1/events?event=secret_name&where=p:secret_value&distinct_id=secret+user%20&limit=5")
            #expect(
                nothing == [
                    "events": [], "next": NSNull(), "searched_to": "1970-01-01T00:00:00.000000Z",
                    "query": [
                        "from": NSNull(), "to": NSNull(), "event": "secret_name", "distinct_id": "secret user ", "where": "p:secret_value",
                        "limit": 5,
                    ] as NSDictionary,
                ] as NSDictionary)
            let event: NSDictionary = [
                "event_id": "\(Sample.id(1))", "event": "secret_name", "time": Sample.now, "distinct_id": "secret_user",
                "properties": ["p": "secret_value"],
            ]
            // Both times: when it was received, and when it happened (S22).
            let before = try await list("/v1/events?happened_to=2026-01-01")
            #expect(
                before["events"] as? [NSDictionary] == []
                    && before["query"] as? NSDictionary
                        == ["from": NSNull(), "to": NSNull(), "happened_to": "2026-01-01T00:00:00.000000Z", "limit": 100]
            )
            let spans = "from=2025-12-31&to=2099-01-01&happened_from=2026-01-01&happened_to=2026-01-02"
            let one = try #require(try await list("/v1/events?limit=1&\(spans)")["events"] as? [NSDictionary])
            let receivedAt = try #require(one[0]["received_at"] as? String)
            #expect(Timestamp(receivedAt) != nil)
            let row: NSMutableDictionary = [
                "received_at": receivedAt, "late": false, "install_id": NSNull(), "sequence": NSNull(), "event": event,
            ]
            #expect(one == [row])
            row["state"] = "stored"
            #expect(try await json("/v1/events/\(Sample.id(1).description.uppercased())") == row)
            let refused = try await json("/v1/events/\(Sample.id(2))")
            #expect(refused["state"] as? String == "refused" && refused["reason"] as? String == "invalid_distinct_id")
            #expect(refused["detail"] as? String == "distinct_id is empty" && refused["name"] as? String == "secret_refused")
            let missing = try await server.get("/v1/events/\(Sample.id(3))")
            #expect(missing.problemCode == .notFound && String(decoding: missing.body, as: UTF8.self).contains(#""ring_since":""#))
            #expect(
                try await json("/v1/names") == [
                    "names": [["event": "secret_name", "count": 1, "properties": ["p"]] as NSDictionary], "other": 0, "sampled": 1,
                    "query": ["from": NSNull(), "to": NSNull()] as NSDictionary,
                ] as NSDictionary)
        }
    }

    @Test(
        "Users by the beginning of their ids, letter by letter: in the order of their bytes, of this project, whenever they were received (S22)",
        arguments: StoreUnderTest.Kind.allCases)
    func usersAreFoundByPrefix(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            let users = ["anna", "annb", "ann", "Ann", "an_", "an%", "e\u{301}", "\u{E9}", "ann\u{1F600}"]
            for (index, user) in users.enumerated() {
                let event = Sample.event(Sample.id(UInt64(100 + index)), name: index < 2 ? "$AppStart" : "e", distinctID: user)
                #expect(try await server.post(Array("[".utf8) + event + Array("]".utf8)).status == 200)
            }
            func found(_ query: String) async throws -> NSDictionary? {
                try JSONSerialization.jsonObject(with: Data(try await server.get("/v1/users?prefix=" + query).body)) as? NSDictionary
            }
            let all = try await found("ann")
            #expect(
                all == ["users": ["ann", "anna", "annb", "ann\u{1F600}"], "more": false, "searched_to": NSNull()],
                "\(String(describing: all))")
            let two = try await found("ann&limit=2")
            #expect(two?["users"] as? [String] == ["ann", "anna"] && two?["more"] as? Bool == true)
            #expect(try await found("an%25")?["users"] as? [String] == ["an%"])
            let accent = try #require(try await found("%C3%A9")?["users"] as? [String])
            #expect(accent.map { Array($0.utf8) } == [[0xC3, 0xA9]])
            #expect(try await found("nobody")?["users"] as? [String] == [])
        }
    }

    @Test("A daily report as JSON and as CSV; more days than may be are too many", arguments: StoreUnderTest.Kind.allCases)
    func dailyReportHasItsShape(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            let day = "/v1/reports/daily?from=2026-01-01&to=2026-01-02&basis=all"
            let json = try #require(try JSONSerialization.jsonObject(with: Data(try await server.get(day).body)) as? NSDictionary)
            let report = try #require((json["days"] as? [NSDictionary])?.first)
            #expect(json["query"] as? NSDictionary == ["from": "2026-01-01", "to": "2026-01-02", "time_zone": "UTC", "basis": "all"])
            #expect(report["starts_at"] as? String == "2026-01-01T00:00:00Z" && report["closes_at"] as? String == "2026-01-02T04:00:00Z")
            #expect(report["events"] as? NSDictionary == ["total": 1, "by_name": [["event": "secret_name", "count": 1]], "other": 0])
            #expect(report["users"] as? Int == 1 && report["mean_session_ms"] is NSNull)
            let csv = try await server.get(day, headers: ["Accept": "text/csv"])
            let lines = String(decoding: csv.body, as: UTF8.self).components(separatedBy: "\r\n")
            #expect(csv["Content-Type"]?.hasPrefix("text/csv") == true && lines.count == 3)
            #expect(
                lines[1].hasPrefix("2026-01-01,")
                    && lines[1].hasSuffix(",UTC,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z,2026-01-02T04:00:00Z,1,0,0,0,0,,,1,0,0"))
            // S27
            let names = String(decoding: try await server.get(day + "&by=event", headers: ["Accept": "text/csv"]).body, as: UTF8.self)
            #expect(names.hasPrefix("day,state,event,count\r\n2026-01-01,") && names.hasSuffix(",secret_name,1\r\n"), "\(names)")
            let week = try JSONSerialization.jsonObject(with: Data(try await server.get("/v1/reports/daily").body)) as? NSDictionary
            #expect((week?["days"] as? [Any])?.count == 7)
            for question in [
                "daily?from=2024-01-01&to=2026-01-02", "daily?from=1970-01-01", "daily?to=9999-12-31&from=1970-01-01",
                "series?unit=hour&from=2026-01-01&to=2026-02-02", "retention?from=2026-01-01&to=2026-03-03", "series?from=1970-01-01",
            ] { #expect(try await server.get("/v1/reports/\(question)").problemCode == .rangeTooLarge, "\(question)") }
            #expect(try await server.get("/v1/reports/daily?from=2099-01-01").problemCode == .invalidParameter)
        }
    }

    @Test(
        "Each question of the analysis as JSON and as CSV, by Accept or format; 304 for who has it already; a BI tool's password is a key",
        arguments: StoreUnderTest.Kind.allCases)
    func analysisHasItsShape(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            let span = "from=2026-01-01&to=2026-01-02&basis=all"
            func text(_ answer: HTTPMessage) -> String { String(decoding: answer.body, as: UTF8.self) }
            // By PostgreSQL's own clock the day is long over.
            let state = kind == .postgres ? "closed" : "open"
            // What was received in the last two seconds is not settled yet.
            while try await !text(server.get("/v1/reports/series?\(span)&where=p:secret_value&event=secret_name")).contains(
                #""total":{"events":1"#)
            {}
            for (question, json, csv) in [
                (
                    "series?compare=previous&over=7", #""events":1,"users":1,"users_over":1,"previous":null}]"#,
                    "start,end,state,events,users,users_over,previous_events,previous_users\r\n2026-01-01T00:00:00Z,2026-01-02T00:00:00Z,"
                ),
                (
                    "breakdown?property=p", #""rows":[{"value":"secret_value","events":1,"users":1}],"missing":{"events":0,"users":0}"#,
                    "kind,value,events,users\r\nstring,secret_value,1,1\r\nmissing,,0,0\r\nother,,0,0\r\ntotal,,1,1\r\n"
                ),
                (
                    "funnel?step=secret_name&step=paid&where1=p:secret_value&within=1h",
                    #"{"step":"paid","users":0,"from_previous":0.0000,"from_first":0.0000,"median_ms":null"#,
                    "number,step,users,median_ms,p90_ms,median_from_previous_ms,p90_from_previous_ms\r\n1,secret_name,1,,,,\r\n2,paid,0,,,,\r\n"
                ),
                (
                    "retention?start=secret_name",
                    #""cohorts":[{"day":"2026-01-01","size":1,"returned":[{"users":1,"state":"\#(state)"}]}]"#,
                    "cohort,size,unit,users,state\r\n2026-01-01,1,0,1,\(state)\r\n"
                ),
            ] {
                let path = "/v1/reports/\(question)\(question.contains("?") ? "&" : "?")\(span)"
                let answer = try await server.get(path)
                #expect(answer.status == 200 && text(answer).contains(json), "\(text(answer))")
                for asked in [try await server.get(path, headers: ["Accept": "text/csv"]), try await server.get(path + "&format=csv")] {
                    #expect(text(asked).hasPrefix(csv) && asked["Content-Type"]?.hasPrefix("text/csv") == true, "\(text(asked))")
                }
                let tag = try #require(answer["ETag"])
                let again = try await server.get(path, headers: ["If-None-Match": "\"x\", \(tag)"])
                #expect(again.status == 304 && again.body.isEmpty && again["ETag"] == tag)
            }
            let future = try await server.get("/v1/reports/funnel?step=a&step=b&from=2099-01-01")
            #expect(future.problemCode == .invalidParameter && text(future).contains("after today"), "\(text(future))")
            for (credentials, status) in [
                ("any:\(RunningServer.readKey)", 200), (":\(RunningServer.readKey)", 200), (RunningServer.readKey, 401),
            ] {
                let basic = "Basic \(Data(credentials.utf8).base64EncodedString())"
                #expect(try await server.get("/v1/reports/series", headers: ["Authorization": basic]).status == status)
            }
        }
    }

    @Test(
        "An export's lines are events as they can be sent again, however the database writes them, plain or gzip",
        arguments: StoreUnderTest.Kind.allCases)
    func exportCanBeSentAgain(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            // In the digits of jsonb these would be more than an event may hold.
            let numbers = (0..<1_000).map { ["1.\($0)e\($0 % 290)", "1e-\($0)", "0e-\($0)"][$0 % 3] }.joined(separator: ",")
            let text = #"a \"\\\n: , 1e9 \u0001"#
            let event =
                #"{"event_id":"\#(Sample.id(8))","event":"n","time":0,"distinct_id":"u","properties":{"b":[\#(numbers)], "a" : "\#(text)","z":-0.0,"i":9007199254740993}}"#
            #expect(try await server.receipt("[\(event)]").stored == 1)
            var lines: [Substring] = []
            // What was received in the last two seconds is not settled yet.
            while lines.count < 2 {
                lines = String(decoding: try await server.get("/v1/export").body, as: UTF8.self).split(separator: "\n")
            }
            #expect(lines[0].contains("secret_name") && lines.allSatisfy { $0.contains(/,"received_at":"[^"]*Z"}$/) })
            let again = try await server.receipt("[\(lines.joined(separator: ","))]")
            #expect(again.results.allSatisfy { $0.outcome == .duplicate })
            #expect(lines[1].utf8.count <= EventLimits.maximumEventBytes && lines[1].contains("9007199254740993"))
            let packed = try await server.get("/v1/export", headers: ["Accept-Encoding": "gzip, br"])
            #expect(packed["Content-Encoding"] == "gzip")
            #expect(
                String(decoding: try Gzip.decompress(packed.body, limit: 1_000_000), as: UTF8.self) == lines.map { $0 + "\n" }.joined())
            let rest = try await server.get("/v1/export?after=\(Sample.id(1))")
            #expect(String(decoding: rest.body, as: UTF8.self) == lines[1] + "\n")
            #expect(try await server.get("/v1/export?event=secret_name&to=2026-01-01").body.isEmpty)
            let happened = try await server.get("/v1/export?happened_from=1970-01-01&happened_to=1970-01-02")
            #expect(String(decoding: happened.body, as: UTF8.self) == lines[1] + "\n", "S22")
        }
    }

    @Test("The store says how it is, to the admin alone; one that does not answer is told", arguments: StoreUnderTest.Kind.allCases)
    func storeSaysHowItIs(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            for (key, status) in [("nobody", 401), (RunningServer.key, 403), (RunningServer.readKey, 403)] {
                #expect(try await server.get("/v1/store", key: key).status == status)
            }
            #expect(try await server.get("/v1/store?x=1", key: RunningServer.adminKey).problemCode == .invalidParameter)
            let body = try await server.get("/v1/store", key: RunningServer.adminKey).body
            let store = try #require(try JSONSerialization.jsonObject(with: Data(body)) as? [String: Any])
            #expect(store["state"] as? String == "ready" && store["queue_bytes"] as? Int == 0 && store["unknown_keys"] as? Int == 0)
            #expect(store["projects"] as? [String] == ["app", "shop"] && Timestamp(store["settled_at"] as? String ?? "") != nil)
            let months = try #require(store["months"] as? [[String: Any]])
            let rows = months.compactMap { $0["rows"] as? Int }.reduce(0, +)
            switch kind {
            case .postgres:
                #expect((store["version"] as? String)?.hasPrefix("PostgreSQL ") == true && store["rows_are"] as? String == "estimated")
                #expect(months.compactMap { $0["month"] as? String }.contains("2026-01") && months.allSatisfy { $0["bytes"] is Int })
                #expect(store["months_ahead"] is Int)
            case .sqlite:
                #expect((store["version"] as? String)?.hasPrefix("SQLite ") == true && rows == 1 && store["months_ahead"] is NSNull)
            }
        }
        let broken = ScriptedStore()
        broken.failChecks()
        try await RunningServer.run(on: broken) { server in
            let body = String(decoding: try await server.get("/v1/store", key: RunningServer.adminKey).body, as: UTF8.self)
            #expect(body.hasPrefix(#"{"state":"unavailable","#))
        }
    }

    @Test(
        "Numbers that a database writes out in digits neither swell an answer nor hide what else is there",
        arguments: StoreUnderTest.Kind.allCases)
    func writtenOutNumbersStayShort(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            let swelling = Array(repeating: "1e-999", count: 100).joined(separator: ",")
            for number: UInt64 in 10..<22 {
                let event =
                    #"{"event_id":"\#(Sample.id(number))","event":"n","time":0,"distinct_id":"u","properties":{"plan":"pro","max":1e300,"a":[\#(swelling)]}}"#
                #expect(try await server.receipt("[\(event)]").stored == 1)
            }
            let one = try await server.get("/v1/events?limit=1&event=n").body
            #expect(one.count < 40_000, "\(one.count)")
            for condition in ["plan:pro", "max:1e300", "max:1000e297"] {
                #expect(try await Self.count(server, "where=\(condition)", limit: 3) == 3, "\(condition)")
            }
            let names = String(decoding: try await server.get("/v1/names").body, as: UTF8.self)
            #expect(names.contains(#"{"event":"n","count":12,"properties":["a","max","plan"]}"#), "\(names)")
        }
    }

    /// Events that a list gives, page by page: a busy machine answers with a part of it, or that it takes too long.
    private static func count(_ server: RunningServer, _ query: String, limit: Int) async throws -> Int {
        var (count, after) = (0, "")
        for _ in 0..<30 where count < limit {
            let answer = try await server.get("/v1/events?\(query)&limit=\(limit - count)\(after)")
            if answer.problemCode == .rangeTooLarge { continue }
            let page = try #require(try JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any])
            count += (page["events"] as? [Any])?.count ?? 0
            guard let next = page["next"] as? String else { break }
            after = "&after=\(next)"
        }
        return count
    }

    @Test("Refusals are paged, newest first; a whole request's is one of them; unknown keys are counted for the admin alone")
    func refusalsArePaged() async throws {
        try await Self.run { server in
            #expect(try await server.post("nonsense").status == 400)
            #expect(try await server.post("[]", headers: ["Authorization": "Bearer nobody"]).status == 401)
            struct Refusals: Decodable {
                struct Refusal: Decodable { var what: String, reason: String, sample: String }
                var refusals: [Refusal], next: String?, unknown_keys: Int?
            }
            func refusals(_ query: String, key: String = RunningServer.readKey) async throws -> Refusals {
                try JSONDecoder().decode(Refusals.self, from: Data(try await server.get("/v1/refusals" + query, key: key).body))
            }
            let first = try await refusals("?limit=1")
            #expect(first.refusals.map(\.reason) == ["malformed"] && first.refusals[0].what == "request" && first.unknown_keys == nil)
            let second = try await refusals("?after=\(first.next ?? "")")
            #expect(second.refusals.map(\.reason) == ["invalid_distinct_id"] && second.next == nil)
            #expect(second.refusals[0].sample.hasPrefix(#"{"event_id":"#))
            #expect(try await refusals("?project=app", key: RunningServer.adminKey).unknown_keys == 1)
        }
    }

    @Test("A dry run says what would become of each event, stores nothing and counts nothing", arguments: StoreUnderTest.Kind.allCases)
    func dryRunStoresNothing(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server in
            let before = try await server.metrics()
            let stored = Sample.event(Sample.id(1), name: "secret_name", distinctID: "secret_user", properties: ["p": "secret_value"])
            let events = [stored, Sample.event(Sample.id(1)), Sample.event(Sample.id(4)), Sample.event(Sample.id(4)), Array("{}".utf8)]
            let body = EventBatch(envelope: .init(batchID: Sample.id(70)), events: events).encoded()
            func dryRun(_ query: String) async throws -> HTTPMessage {
                try await RawHTTP.post(port: server.port, path: "/v1/events?\(query)", headers: RunningServer.headers, body: body)
            }
            struct Answer: Decodable {
                struct Verdict: Decodable { var index: Int, event_id: String?, outcome: String, reason: String? }
                var dry_run: Bool, would: [Verdict]
            }
            let answer = try JSONDecoder().decode(Answer.self, from: Data(try await dryRun("dry_run=true").body))
            #expect(answer.would.map(\.outcome) == ["duplicate", "conflict", "stored", "duplicate", "rejected"])
            #expect(answer.would.map(\.index) == [0, 1, 2, 3, 4] && answer.would[4].reason == "missing_event_id")
            for wrong in ["dry_run=false", "dry_run=1", "dry_run", "dry_run=true&dry_run=true", "dry-run=true", "DryRun=true"] {
                #expect(try await dryRun(wrong).problemCode == .invalidParameter, "\(wrong)")
            }
            #expect(try await server.get("/v1/events/\(Sample.id(4))").problemCode == .notFound)
            let refusals = String(decoding: try await server.get("/v1/refusals").body, as: UTF8.self)
            #expect(!refusals.contains("missing_event_id"), "what would have been refused was not sent")
            let counts = { (text: String) in text.split(separator: "\n").filter { $0.contains(/^hapax_(events|group|derived)/) } }
            #expect(try await counts(server.metrics()) == counts(before) && counts(before).count > 20)
        }
    }

    @Test("What is no longer kept is said to be so, not to be unknown (R41)")
    func expiredIsSaid() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        await (try await fixture.open()).close()
        try await fixture.execute("UPDATE retention SET horizon = \(Sample.day + 1)")
        try await RunningServer.run(on: try await fixture.open()) { server in
            let answer = try await server.get("/v1/events/\(Sample.id(1))")
            #expect(answer.problemCode == .expired)
        }
    }

    @Test("With a public key the server answers as this machine only: 421 against names that lead here from elsewhere")
    func otherHostsAreMisdirected() async throws {
        let demo = StaticKeys(writers: ["demo": 1], readers: ["demo-read": 1])
        try await Self.run(keys: demo) { server in
            for (host, status) in [
                ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("localhost:1", 200), ("127.0.0.1:80", 200), ("[::1]:8080", 200),
                ("LOCALHOST", 200), ("[::1", 421), ("10.0.0.1", 421),
            ] {
                for path in ["/", "/v1/events"] {
                    let answer = try await server.get(path, key: "demo-read", headers: ["Host": host])
                    #expect(answer.status == status, "\(host)")
                }
            }
        }
        try await RunningServer.run { server in
            let answer = try await server.get("/v1/events", headers: ["Host": "events.example.org"])
            #expect(answer.status == 200)
        }
    }

    // MARK: - Live

    /// A stream that has begun.
    private static func stream(_ server: RunningServer, _ query: String = "", key: String = RunningServer.readKey) async throws
        -> LiveStream
    {
        let socket = try await blocking { [port = server.port] in try LoopbackSocket.connected(port: port, timeout: RawHTTP.patience) }
        let stream = LiveStream(socket: socket)
        try await blocking {
            try socket.write(RawHTTP.request("GET", "/v1/live\(query)", headers: ["Authorization": "Bearer \(key)"]))
        }
        try await stream.until("from now on")
        return stream
    }

    @Test("A stream tells each event with its outcome and each refusal with its reason, of its own project, and ends when the server stops")
    func streamTellsWhatHappens() async throws {
        let (ends, continuation) = AsyncStream.makeStream(of: LiveStream.self)
        try await Self.run { server in
            let all = try await Self.stream(server)
            let paid = try await Self.stream(server, "?event=order_paid&outcome=duplicate")
            let other = try await Self.stream(server, key: RunningServer.otherReadKey)
            let event =
                #"{"event_id":"\#(Sample.id(5))","event":"order_paid","time":0,"distinct_id":"u","properties":{"a": "x\r\n",\#n"b":1}}"#
            for _ in 0..<2 { _ = try await server.post("[\(event)]") }
            try await all.until(#"event: event\#ndata: {"outcome":"stored""#)
            try await all.until(#""outcome":"duplicate""#)
            try await all.until(#""properties":{"a": "x\r\n", "b":1}}}\#n\#n"#)
            _ = try await server.post(#"[{"event_id":"\#(Sample.id(6))"}]"#)
            try await all.until(#""reason":"missing_event""#)
            _ = try await server.post("nonsense")
            try await all.until(#""what":"request","reason":"malformed""#)
            try await all.until("event: rate\ndata: {\"received\":")
            try await paid.until("event: rate")
            #expect(
                paid.text.contains(#""outcome":"duplicate""#) && !paid.text.contains("stored\",\"at")
                    && !paid.text.contains("missing_event"))
            try await other.until("event: rate")
            #expect(!other.text.contains("order_paid"))
            continuation.yield(all)
        }
        continuation.finish()
        for await stream in ends { try await stream.untilEnd() }
    }

    @Test("As many streams as may be are open at once, and one that goes makes room")
    func streamsAreBounded() async throws {
        try await Self.run { server in
            var streams: [LiveStream] = []
            for _ in 0..<ServerLimits.liveStreams { streams.append(try await Self.stream(server)) }
            #expect(try await server.get("/v1/live").problemCode == .projectBusy)
            _ = try await Self.stream(server, key: RunningServer.otherReadKey)
            streams.removeLast().close()
            // The server notices with the next thing that it says.
            var isOpen = false
            while !isOpen {
                _ = try await server.post("nonsense")
                isOpen = (try? await Self.stream(server)) != nil
            }
        }
    }
}

extension ReadRoutesTests {
    @Test("Answers that nobody reads have a budget, half of it one project's at most; they leave it with their connection (S8, I13)")
    func untakenAnswersAreCounted() async throws {
        // Twice what the systems at both ends keep of an answer that nobody reads.
        let text = PropertyValue.string(String(repeating: "x", count: 30_000))
        let events = (1...60).map { Sample.event(Sample.id($0), properties: ["text": text]) }
        var options = RunningServer.options
        options.limits.untakenAnswers = 3 * 1024 * 1024
        let fixture = try await StoreUnderTest(.sqlite)
        try await RunningServer.run(on: try await fixture.open(), options: options) { server in
            for start in stride(from: 0, to: events.count, by: 30) {
                for key in [RunningServer.key, RunningServer.otherKey] {
                    let body = EventBatch(envelope: .init(), events: Array(events[start..<start + 30])).encoded()
                    #expect(try await server.post(body, headers: ["Authorization": "Bearer \(key)"]).status == 200)
                }
            }
            let path = "/v1/events?limit=1000"
            func silent(_ key: String) async throws -> LoopbackSocket {
                let socket = try await blocking { try LoopbackSocket.connected(port: server.port, timeout: RawHTTP.patience) }
                socket.keepLittle()
                try await blocking { try socket.write(RawHTTP.request("GET", path, headers: ["Authorization": "Bearer \(key)"])) }
                // Its answer has begun.
                _ = try await blocking { try socket.read() }
                return socket
            }
            var first: LoopbackSocket? = try await silent(RunningServer.readKey)
            first?.resetOnClose()
            let refused = try await server.get(path)
            #expect(refused.problemCode == .projectBusy, "\(refused.status), \(refused.body.count) bytes")
            #expect(try await server.get("/v1/events?limit=1").status == 429, "however small")
            #expect(try await server.get("/v1/events?limit=5", key: RunningServer.otherReadKey).status == 200)
            #expect(try await server.get(path, key: RunningServer.otherReadKey).problemCode == .overloaded, "both together")
            // As its process does that ends. An orderly end says nothing while the window is shut: the server would wait for its deadline.
            first = nil
            // Whoever waits for ever is told nothing of the answer.
            var last = try await server.get("/v1/events?limit=1")
            for _ in 0..<20_000 where last.status != 200 { last = try await server.get("/v1/events?limit=1") }
            #expect(last.status == 200, "\(String(decoding: last.body, as: UTF8.self))")
        }
    }
}

extension StaticKeys {
    /// The shop's write key.
    fileprivate var shopKey: String { holdsDemoKeys ? "demo" : RunningServer.key }
}

/// What has come of a stream.
private final class LiveStream: Sendable {
    private let socket: LoopbackSocket
    private let bytes = Locked<[UInt8]>([])

    init(socket: LoopbackSocket) { self.socket = socket }

    deinit { socket.shutDown() }

    struct Ended: Error { var text: String }

    var text: String { bytes.withLock { String(decoding: $0, as: UTF8.self) } }

    func until(_ wanted: String) async throws {
        // Chunks end anywhere.
        while !text.replacing(/\r\n[0-9a-f]+\r\n/, with: "").contains(wanted) {
            guard !text.contains("problem+json"), try await readMore() else { throw Ended(text: text) }
        }
    }

    func untilEnd() async throws {
        while try await readMore() {}
    }

    func close() { socket.shutDown() }

    private func readMore() async throws -> Bool {
        let more = try await blocking { [socket] in try socket.read() }
        bytes.withLock { $0 += more }
        return !more.isEmpty
    }
}
