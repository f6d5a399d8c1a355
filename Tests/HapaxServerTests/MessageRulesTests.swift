import HTTPTypes
import HapaxModel
import Hummingbird
import Logging
import NIOEmbedded
import TestSupport
import Testing

@testable import HapaxServer

@Suite("HTTP as RFC 9110 and RFC 9112 have it (S14)", .endsWhenItHangs)
struct MessageRulesTests {
    private static let reader = "Authorization: Bearer \(RunningServer.readKey)\r\n"

    @Test("HTTP/1.0 gets neither chunks nor 100 Continue, and the end of its connection", arguments: ["/v1/export", "/health/live"])
    func oldVersionIsAnsweredInItsForm(path: String) async throws {
        try await RunningServer.run { server in
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(
                "GET \(path) HTTP/1.0\r\n\(Self.reader)Connection: keep-alive\r\nExpect: 100-continue\r\n\r\n")
            let answer = try await connection.answer(to: "GET")
            #expect(answer.startLine == "HTTP/1.0 200 OK" && answer["Transfer-Encoding"] == nil && answer.closesConnection)
            #expect(!String(decoding: answer.body, as: UTF8.self).contains("0\r\n"))
            await #expect(throws: (any Error).self) { try await connection.answer(to: "GET") }
        }
    }

    @Test("HEAD of what has no known length says none, and sends no chunk either")
    func headOfAStreamHasNoLength() async throws {
        try await RunningServer.run { server in
            let connection = try await RawHTTP(port: server.port)
            for path in ["/v1/live", "/v1/export"] {
                try await connection.send("HEAD \(path) HTTP/1.1\r\nHost: h\r\n\(Self.reader)\r\n")
                let answer = try await connection.answer(to: "HEAD")
                #expect(answer.status == 200 && answer["Content-Length"] == nil)
                try await connection.send("GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n")
                #expect(try await connection.answer(to: "GET").startLine == "HTTP/1.1 200 OK")
            }
        }
    }

    @Test(
        "What the header alone decides is refused without 100 Continue",
        arguments: [
            (["Authorization": "Bearer wrong"], 401), (["Content-Length": "2000000"], 413), (["Content-Type": "text/plain"], 415),
            (["Content-Encoding": "br"], 415),
        ] as [([String: String], Int)])
    func refusalComesBeforeTheBody(fields: [String: String], status: Int) async throws {
        try await RunningServer.run { server in
            let headers = RunningServer.headers.merging(["Expect": "100-continue", "Content-Length": "100"]) { $1 }.merging(fields) { $1 }
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(RawHTTP.request("POST", "/v1/events", headers: headers))
            // An interim answer would be read in its place.
            await #expect(throws: HTTPReader.Failure.malformed) { try await connection.interimAnswer() }
            let other = try await RawHTTP(port: server.port)
            try await other.send(RawHTTP.request("POST", "/v1/events", headers: headers))
            #expect(try await other.answer().status == status)
        }
    }

    @Test(
        "A request says one host: none, two, or what is none are 400; HTTP/1.0 may say none",
        arguments: [
            ("GET /health/live HTTP/1.1\r\n\r\n", 400), ("GET /health/live HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET /health/live HTTP/1.1\r\nHost: a/b\r\n\r\n", 400), ("GET /health/live HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET /health/live HTTP/1.1\r\nHost:\r\n\r\n", 200), ("GET /health/live HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 200),
            ("GET /health/live HTTP/1.0\r\n\r\n", 200),
        ])
    func hostIsAskedFor(text: String, status: Int) async throws {
        try await RunningServer.run { server in
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(text)
            let answer = try await connection.answer(to: "GET")
            #expect(answer.status == status && (status == 200 || answer.closesConnection))
        }
    }

    @Test("A coding or type with the weight 0 is not taken")
    func weightOfZeroRulesOut() {
        for (field, isTaken) in [
            ("gzip", true), ("gzip;q=0", false), ("GZIP ; Q=0.000", false), ("br, gzip;q=0.001", true), ("gzip;q=1.0", true),
            ("x-gzip", false),
            ("identity", false), ("br;q=0, gzip", true),
        ] {
            let headers: HTTPFields = [.acceptEncoding: field]
            #expect(headers.takes("gzip", in: .acceptEncoding) == isTaken, "\(field)")
        }
        #expect(!HTTPFields().takes("gzip", in: .acceptEncoding))
    }

    @Test("An error that nobody foresaw is our own document, says nothing of what was sent, and is counted")
    func unexpectedErrorIsAProblem() async throws {
        struct Unforeseen: Error { var secret = "hush" }
        let (metrics, log) = (ServerMetrics(), RecordedLog())
        let middleware = RefusalMiddleware(metrics: metrics, log: AccessLog(logger: log.logger), checksHost: false, methods: [:])
        let context = IngestContext(source: ApplicationRequestContextSource(channel: EmbeddedChannel(), logger: log.logger))
        let request = Request(
            head: HTTPRequest(method: .get, scheme: "http", authority: "h", path: "/"), body: RequestBody(buffer: ByteBuffer()))
        let response = try await middleware.handle(request, context: context) { _, _ in throw Unforeseen() }
        #expect(response.status == .internalServerError && response.headers[.contentType] == RequestProblem.contentType)
        var exposition = Exposition()
        metrics.write(to: &exposition, projects: [:])
        #expect(exposition.text.contains(#"{code="internal_error"} 1"#))
        #expect(log.lines.map(\.level) == [.error, .info] && !"\(log.lines)".contains("hush"))
    }
}
