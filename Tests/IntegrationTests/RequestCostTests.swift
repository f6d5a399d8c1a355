#if os(Linux)
import Foundation
import HapaxModel
import TestSupport
import Testing

/// Time of the processor, which is the same on a busy machine, of the real server: what a request takes that anybody can send.
@Suite("What a request costs", .endsWhenItHangs)
struct RequestCostTests {
    /// What is repeated until it is as long as a header block may be: whatever some parser, look or list could take badly.
    private static let texts = [
        "a", "\"", "\"\\", "\\\"", "[", "{\"a\":", "1", "&a=1", "&where=a:1", "%22", "%F0%9F%87%A9", "+", ",", ";q=0", "/",
    ]
    private static let headers = [
        "Authorization: Bearer ", "Authorization: Basic ", "Accept: ", "Accept: text/csv", "Accept-Encoding: gzip", "If-None-Match: ",
        "Content-Type: application/json", "Content-Encoding: ", "Expect: ", "Connection: ", "X-Forwarded-For: 1.1.1.1", "Host: ",
    ]
    private static let bytes = 15_000

    private static func long(_ text: String, _ bytes: Int = bytes) -> String { String(repeating: text, count: bytes / text.utf8.count) }

    @Test("No path, parameter or header of any request costs many times what as many harmless bytes do (S1)")
    func noTextIsDear() async throws {
        let readKey = "read-key-of-demo"
        let server = try await ServerUnderTest.start(
            try await PipelineStore(.sqlite), readKey: readKey, environment: ["HAPAX_TRUSTED_PROXIES": "0.0.0.0/0"])
        let cost = Cost(server: server, readKey: readKey)
        let paths = try Self.paths()
        #expect(paths.count > 30)

        let harmless = "Cookie: " + Self.long("a")
        let ordinary = try await (0..<5).asyncMap { _ in try await cost.of("HEAD", "/v1/events", harmless) }.min() ?? 0
        // A debug build looks at a byte in a microsecond; what is dear takes seconds.
        let most = 10 * ordinary + 0.1
        func check(_ method: String, _ path: String, _ header: String? = nil) async throws {
            // The server has work of its own from time to time, so the least of some tries counts.
            var least = Double.infinity
            for _ in 0..<4 where least > most { least = min(least, try await cost.of(method, path, header)) }
            #expect(
                least <= most,
                "\(method) \(path.prefix(80)) \(header?.prefix(80) ?? ""): \(least) s instead of \(ordinary) s")
        }
        for (method, pattern) in paths {
            let path = pattern.replacing("{id}", with: "00000000-0000-7000-8000-000000000001").replacing("{name}", with: "nobody")
            for text in Self.texts {
                try await check(method, path + "?" + Self.long(text))
                if pattern.contains("{") {
                    let long = String(pattern.prefix { $0 != "{" }) + Self.long(text)
                    try await check(method, pattern.hasSuffix("}") ? long : long + "/remove")
                }
            }
            for name in try await cost.parameters(method, path) {
                for text in Self.texts {
                    // A filter that is too long, and as many of each parameter as there is room for that are not.
                    if name.hasPrefix("where") { try await check(method, "\(path)?\(name)=\(Self.long(text))") }
                    try await check(method, "\(path)?" + Self.long("\(name)=\(Self.long(text, 1_000))&"))
                }
            }
        }
        for (method, path) in [
            ("POST", "/v1/events"), ("HEAD", "/v1/reports/daily"), ("HEAD", "/v1/export"), ("HEAD", "/"), ("POST", "/v1/admin/keys"),
        ] {
            for header in Self.headers { for text in Self.texts { try await check(method, path, header + Self.long(text)) } }
        }
        #expect(try await RawHTTP.get(port: server.port, path: "/health/live").status == 200)
        await server.stop()
    }

    /// Every path, with HEAD for GET: what is streamed has no end.
    private static func paths() throws -> [(method: String, path: String)] {
        let routes = try String(
            contentsOf: PackageLayout.root.appending(path: "Server/HapaxServer/Routes/Routes.swift"), encoding: .utf8)
        let found = routes.matches(of: /add\("(\/[^"]*)", \.([a-z]+)\)/).map { (String($0.2).uppercased(), String($0.1)) }
        return (found + [("GET", "/"), ("GET", "/nowhere")]).map { ($0 == "GET" ? "HEAD" : $0, $1) }
    }

    private struct Cost {
        let server: ServerUnderTest
        let readKey: String

        /// Seconds of the processor that the server takes for one request on a connection of its own.
        func of(_ method: String, _ path: String, _ header: String?) async throws -> Double {
            let before = try time()
            _ = try? await answer(method, path, header)
            return try time() - before
        }

        /// The names that a path knows, as it says itself.
        func parameters(_ method: String, _ path: String) async throws -> [String] {
            if path == "/v1/events", method == "POST" { return ["dry_run"] }
            let method = method == "HEAD" ? "GET" : method
            let body = try await answer(method, path + "?no_such_parameter=1", nil).body
            let detail = (try? JSONSerialization.jsonObject(with: Data(body)) as? [String: Any])?["detail"] as? String
            return detail?.split(separator: "known here: ").dropFirst().first?.split(separator: ", ").map(String.init) ?? []
        }

        private func answer(_ method: String, _ path: String, _ header: String?) async throws -> HTTPMessage {
            let isAdmins = ["/v1/admin", "/v1/store", "/metrics"].contains { path.hasPrefix($0) }
            let key = isAdmins ? ServerUnderTest.adminKey : method == "POST" ? ServerUnderTest.key : readKey
            var fields = ["Host: 127.0.0.1", "Authorization: Bearer \(key)", "Content-Type: application/json"]
            if let header {
                fields.removeAll { $0.prefix { $0 != ":" } == header.prefix { $0 != ":" } }
                fields.append(header)
            }
            if method != "HEAD", method != "GET" { fields.append("Content-Length: 2") }
            let head = "\(method) \(path) HTTP/1.1\r\n" + fields.joined(separator: "\r\n") + "\r\n\r\n"
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(head + (method == "HEAD" || method == "GET" ? "" : "{}"))
            return try await connection.answer(to: method)
        }

        private func time() throws -> Double {
            let threads = "/proc/\(server.process.processID)/task"
            return try FileManager.default.contentsOfDirectory(atPath: threads).reduce(0) { sum, thread in
                // A thread that has just ended has no file any more; its time is not ours to count.
                let text = try? String(contentsOfFile: "\(threads)/\(thread)/schedstat", encoding: .utf8)
                return sum + (text?.split(separator: " ").first.flatMap { Double($0) } ?? 0) / 1e9
            }
        }
    }
}

extension Sequence {
    fileprivate func asyncMap<Value>(_ body: (Element) async throws -> Value) async throws -> [Value] {
        var values: [Value] = []
        for element in self { values.append(try await body(element)) }
        return values
    }
}
#endif
