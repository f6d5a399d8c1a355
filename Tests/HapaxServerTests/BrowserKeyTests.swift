import Foundation
import HTTPTypes
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// Keys for pages, and what a browser is told (docs/browsers.md).
@Suite("Browser keys and pages of other origins (I9)", .endsWhenItHangs)
struct BrowserKeyTests {
    private static let shop = "https://shop.example"

    @Test(
        "An origin is scheme, host and port, as browsers write it; others are refused",
        arguments: [
            ("https://Shop.Example/", "https://shop.example"), ("https://shop.example:443", "https://shop.example"),
            ("http://localhost:3000", "http://localhost:3000"), ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://*.shop.example", "https://*.shop.example"), ("null", "null"), ("https://*", nil), ("*", nil), ("shop.example", nil),
            ("https://shop.example/path", nil), ("https://a.example b.example", nil), ("ftp://a.example", nil), ("https://", nil),
            ("https://a.example:99999", nil), ("https://u@a.example", nil),
        ] as [(String, String?)])
    func originsAreRead(text: String, origin: String?) {
        #expect((try? Origins([text]))?.texts == origin.map { [$0] })
    }

    @Test(
        "A star stands for whatever is below a host, and for nothing else",
        arguments: [
            ("https://*.shop.example", "https://a.shop.example", true), ("https://*.shop.example", "https://a.b.shop.example", true),
            ("https://*.shop.example", "https://shop.example", false), ("https://*.shop.example", "https://evilshop.example", false),
            ("https://*.shop.example", "http://a.shop.example", false), ("https://*.shop.example", "https://a.shop.example:8443", false),
            ("https://*.shop.example", "https://.shop.example", false),
            ("https://*.shop.example", "https://a.example https://x.shop.example", false),
            ("https://*.shop.example", "https://a.example#.shop.example", false),
            ("https://shop.example", "https://shop.example.evil.example", false),
        ])
    func starsMatch(pattern: String, origin: String, matches: Bool) throws {
        #expect(try Origins([pattern]).contains(origin) == matches)
    }

    @Test("The public key takes pages of this machine, on any port, and no others")
    func publicKeyIsForThisMachine() {
        for origin in ["http://localhost", "http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]:1"] {
            #expect(Origins.thisMachine.contains(origin))
        }
        for origin in ["null", "https://localhost", "http://localhost.evil.example", "http://localhost:x", "https://shop.example"] {
            #expect(!Origins.thisMachine.contains(origin))
        }
    }

    /// A server with a browser key of the shop's page and one of another page.
    private static func run(
        _ kind: StoreUnderTest.Kind = .sqlite, _ body: @Sendable @escaping (RunningServer, _ key: String, Registry) async throws -> Void
    ) async throws {
        let place = try await StoreUnderTest(kind)
        let store = try await place.open()
        let registry = Registry(database: store.sql)
        _ = try await registry.addProject("pages")
        let key = try await registry.addKey(.browser, project: "pages", origins: [shop], now: Sample.now).secret
        _ = try await registry.addKey(.browser, project: "pages", origins: ["https://other.example"], now: Sample.now)
        try await RunningServer.run(on: store) { server in try await body(server, key, registry) }
    }

    private static func send(
        _ server: RunningServer, _ path: String, method: String = "POST", from origin: String?, _ headers: [String: String] = [:],
        _ body: String = ""
    ) async throws -> HTTPMessage {
        let connection = try await RawHTTP(port: server.port)
        let origins = origin.map { ["Origin": $0] } ?? [:]
        try await connection.send(
            RawHTTP.request(
                method, path, headers: ["Content-Type": "text/plain"].merging(origins) { $1 }.merging(headers) { $1 },
                body: Array(body.utf8)))
        return try await connection.answer(to: method)
    }

    private static let event = #"[{"event_id":"\#(EventID.least)","event":"e","time":1790000000000,"distinct_id":"u"}]"#
        .replacing("\(EventID.least)", with: "0198d3b4-0000-7000-8000-000000000001")

    @Test(
        "The pages that a key lists send and read the answer, others do not; what is no page sends", arguments: StoreUnderTest.Kind.allCases
    )
    func listedPagesSend(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server, key, _ in
            for path in ["/v1/events?key=\(key)", "/v1/events/?key=\(key)", "/v1/batch?writeKey=\(key)", "/k/\(key)/v1/batch"] {
                let body = path.contains("batch") ? #"{"batch":[{"event":"e","userId":"u","messageId":"m"}]}"# : Self.event
                for (origin, status, allowed) in [
                    (Self.shop, 200, Self.shop), (nil, 200, nil), ("https://other.example", 403, "https://other.example"),
                    ("https://evil.example", 403, nil), ("null", 403, nil),
                ] as [(String?, Int, String?)] {
                    var answer = try await Self.send(server, path, from: origin, [:], body)
                    // As a sender does while the store is slow.
                    for _ in 0..<20 where answer.status == 503 { answer = try await Self.send(server, path, from: origin, [:], body) }
                    #expect(answer.status == status && answer["Access-Control-Allow-Origin"] == allowed, "\(path) \(origin ?? "")")
                    #expect(status == 200 || String(decoding: answer.body, as: UTF8.self).contains("wrong_origin"))
                }
            }
            let wrong = try await Self.send(server, "/v1/events?key=\(key)", from: Self.shop, ["Content-Type": "text/html"], Self.event)
            #expect(wrong.status == 415)
            let bare = try await Self.send(server, "/v1/events", from: nil, ["Authorization": "Bearer \(key)"], Self.event)
            #expect(bare.status == 415, "text is JSON only where a page needs it")
            let read = try await Self.send(server, "/v1/events", method: "GET", from: Self.shop, ["Authorization": "Bearer \(key)"])
            #expect(read.status == 403 && read["Access-Control-Allow-Origin"] == nil)
            let secret = try await Self.send(server, "/v1/events?key=\(RunningServer.readKey)", from: nil, [:], Self.event)
            #expect(secret.status == 403)
        }
    }

    @Test("Every answer to a listed page can be read, refusals by whomever included; no other page's can", arguments: [true, false])
    func everyAnswerCanBeRead(isListed: Bool) async throws {
        let origin = isListed ? Self.shop : "https://evil.example"
        let allowed = isListed ? Self.shop : nil
        try await Self.run { server, key, _ in
            for path in ["/v1/events?key=\(key)", "/v1/batch?writeKey=\(key)"] {
                let preflight = try await Self.send(
                    server, path, method: "OPTIONS", from: origin,
                    ["Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-sdk"])
                #expect(preflight.status == 204 && preflight["Access-Control-Allow-Origin"] == allowed)
                #expect(preflight["Access-Control-Allow-Headers"] == (isListed ? "authorization, x-sdk" : nil))
                #expect(preflight["Access-Control-Allow-Methods"] == (isListed ? "POST, GET" : nil))
                for (path, body, status) in [
                    (path, "{", isListed ? 400 : 403), (path.replacing(key, with: "wrong"), Self.event, 401), (path, nil, 413),
                ] as [(String, String?, Int)] {
                    let large = String(repeating: " ", count: EventLimits.maximumDecompressedBodyBytes + 1)
                    let answer = try await Self.send(server, path, from: origin, [:], body ?? large)
                    #expect([status, isListed ? status : 403].contains(answer.status), "\(path) \(answer.status)")
                    #expect(answer["Access-Control-Allow-Origin"] == allowed && (answer["Vary"] == "Origin") == isListed)
                }
            }
        }
    }

    @Test(
        "SDKs in pages get the settings with which they start, if the key is one for their page",
        arguments: [
            (
                "GET", "/v1/projects/KEY/settings",
                #"{"integrations":{"Segment.io":{"apiKey":"KEY","apiHost":"HOST/v1","protocol":"http"}},"plan":{},"metrics":{"sampleRate":0}}"#
            ),
            (
                "GET", "/sourceConfig?p=npm&writeKey=KEY",
                #"{"source":{"id":"hapax","name":"hapax","workspaceId":"hapax","enabled":true,"config":{},"destinations":[]}}"#
            ),
            ("GET", "/array/KEY/config.js", #""analytics":{"endpoint":"/i/v0/e/"}}}}"#),
            ("GET", "/array/KEY/config?ip=0", #""analytics":{"endpoint":"/i/v0/e/"}}"#),
            ("POST", "/flags/?v=2", #"{"flags":{},"featureFlags":{},"featureFlagPayloads":{},"errorsWhileComputingFlags":false}"#),
        ])
    func pagesGetTheirSettings(method: String, path: String, says: String) async throws {
        try await Self.run { server, key, _ in
            let own = try await Self.send(server, path.replacing("KEY", with: key), method: method, from: Self.shop)
            let expected = says.replacing("KEY", with: key).replacing("HOST", with: "127.0.0.1")
            #expect(own.status == 200 && own["Access-Control-Allow-Origin"] == Self.shop)
            #expect(String(decoding: own.body, as: UTF8.self).hasSuffix(expected), "\(String(decoding: own.body, as: UTF8.self))")
            guard path.contains("KEY") else { return }
            let other = try await Self.send(server, path.replacing("KEY", with: key), method: method, from: "https://other.example")
            #expect(other.status == 403 && other["Access-Control-Allow-Origin"] == "https://other.example")
            #expect(try await Self.send(server, path.replacing("KEY", with: "wrong"), method: method, from: nil).status == 401)
        }
    }

    @Test("A body that comes too slowly is refused in words that the page can read")
    func slowBodyIsReadable() async throws {
        let place = try await StoreUnderTest(.sqlite)
        let store = try await place.open()
        let registry = Registry(database: store.sql)
        _ = try await registry.addProject("pages")
        let key = try await registry.addKey(.browser, project: "pages", origins: [Self.shop], now: Sample.now).secret
        var options = RunningServer.options
        options.limits.body = .milliseconds(200)
        try await RunningServer.run(on: store, options: options) { server in
            for (path, status) in [("/v1/events?key=\(key)", 408), ("/v1/batch?writeKey=\(key)", 503)] {
                let slow = try await RawHTTP(port: server.port)
                let head =
                    "POST \(path) HTTP/1.1\r\nHost: h\r\nOrigin: \(Self.shop)\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n{"
                try await slow.send(Array(head.utf8))
                let late = try await slow.answer()
                #expect(late.status == status && late["Access-Control-Allow-Origin"] == Self.shop)
            }
        }
    }

    @Test("An admin makes such a key with its pages, changes them, and a rotated key keeps them", arguments: StoreUnderTest.Kind.allCases)
    func adminSetsOrigins(kind: StoreUnderTest.Kind) async throws {
        try await Self.run(kind) { server, _, registry in
            func ask(_ method: String, _ path: String, _ body: String) async throws -> (status: Int, text: String) {
                let answer = try await Self.send(
                    server, "/v1/admin/keys" + path, method: method, from: nil, ["Authorization": "Bearer \(RunningServer.adminKey)"], body)
                return (answer.status, String(decoding: answer.body, as: UTF8.self))
            }
            for body in [
                #"{"kind":"browser","project":"pages"}"#, #"{"kind":"browser","project":"pages","origins":["shop.example"]}"#,
                #"{"kind":"browser","project":"pages","origins":"https://a.example"}"#,
                #"{"kind":"write","project":"pages","origins":["https://a.example"]}"#,
            ] {
                let refused = try await ask("POST", "", body)
                #expect(refused.status == 400 && refused.text.contains("origins"))
            }
            let made = try await ask("POST", "", #"{"kind":"browser","project":"pages","origins":["https://A.example","null"]}"#)
            #expect(made.status == 201 && made.text.contains(#""origins":["https://a.example","null"]"#))
            let id = try #require(try await registry.contents().keys.last?.id)
            #expect(
                try await ask("PATCH", "/\(id)", #"{"origins":["https://b.example"]}"#).text.contains(#""origins":["https://b.example"]"#))
            #expect(try await ask("PATCH", "/\(id)", #"{"origins":[]}"#).status == 400)
            let rotated = try await ask("POST", "/\(id)/rotate", "")
            #expect(rotated.status == 201 && rotated.text.contains(#""kind":"browser""#) && rotated.text.contains("https://b.example"))
        }
    }
}
