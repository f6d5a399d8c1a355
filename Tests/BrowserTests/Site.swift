import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

/// A web site with `hapax.js`, the real server beside it, and a browser. The site is http://localhost:PORT; the server is reached as http://127.0.0.1:PORT, another origin,
/// through this proxy, which can answer in its place.
struct Site: Sendable {
    let browser: Browser
    let server: Int
    let port: Int
    private let process: ChildProcess
    private let directory: TemporaryDirectory
    private let listener: LoopbackSocket
    private let state: Locked<State>

    private struct State {
        var pages: [String: (html: String, headers: String)] = [:]
        var answers: [Answer] = []
        var asked: [String] = []
    }

    /// What becomes of a request to the server.
    enum Answer: Sendable {
        case status(Int, String, type: String = "application/json")
        /// It is answered, and the answer is lost.
        case lost
    }

    static let adminKey = "admin-key-of-the-page"

    var address: String { "http://localhost:\(port)" }
    var origin: String { "http://127.0.0.1:\(port)" }

    static func run(_ body: (Site) async throws -> Void) async throws {
        let directory = TemporaryDirectory("site")
        let (process, address) = try await ServerWithPage.start(directory, port: 0)
        let server = try #require(URL(string: address)?.port)
        let listener = try LoopbackSocket.listening()
        let site = Site(
            browser: try await Browser(), server: server, port: listener.port, process: process, directory: directory, listener: listener,
            state: Locked(State()))
        Thread.detachNewThread {
            while let client = try? listener.accepted() { Thread.detachNewThread { site.serve(client) } }
        }
        defer { listener.shutDown() }
        try await body(site)
    }

    /// - Parameters:
    ///   - attributes: Of the script.
    ///   - before: Scripts in front of it.
    func page(
        _ path: String = "/", _ attributes: String = "data-id=device", key: String = "demo", headers: String = "", before: String = ""
    ) {
        let html = """
            <!doctype html><meta charset="utf-8"><title>Page \(path)</title><link rel="icon" href="data:,">\(before)
            <script src="\(origin)/hapax.js" data-key="\(key)" \(attributes)></script>
            """
        state.withLock { $0.pages[path] = (html, headers) }
    }

    func open(_ path: String = "/") async throws {
        try await browser.open(address + path)
        try await browser.until("window.hapax?.version")
    }

    /// The next requests to the server get these answers.
    func answer(_ answers: [Answer]) { state.withLock { $0.answers = answers } }
    func answer(_ count: Int, _ answer: Answer) { self.answer([Answer](repeating: answer, count: count)) }

    /// The queries of requests that reached the server's paths, preflights included.
    var asked: [String] { state.withLock { $0.asked } }

    /// Sends until nothing waits.
    func flush() async throws {
        for _ in 0..<50 where try await browser.run("hapax.flush()") != "true" {}
    }

    /// All stored rows.
    func rows() async throws -> [Row] {
        let answer = try await get("/v1/events?limit=1000", key: "demo-read")
        struct List: Decodable { var events: [Row] }
        return try JSONDecoder().decode(List.self, from: Data(answer.body)).events.reversed()
    }

    struct Row: Decodable {
        struct Event: Decodable {
            var event_id: String
            var event: String
            var distinct_id: String
            var properties: [String: Value]
        }
        var event: Event
        var install_id: String?
        var sequence: Int?
        subscript(name: String) -> String? { event.properties[name]?.text }
    }

    /// A property as text.
    struct Value: Decodable {
        var text: String
        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            text =
                try (try? container.decode(String.self)) ?? (try? container.decode(Int.self)).map { "\($0)" }
                ?? "\(container.decode(Bool.self))"
        }
    }

    func get(_ path: String, key: String) async throws -> HTTPMessage {
        try await RawHTTP.get(port: server, path: path, headers: ["Authorization": "Bearer \(key)"])
    }

    func trust() async throws -> String { String(decoding: try await get("/v1/trust", key: "demo-read").body, as: UTF8.self) }

    /// What the only install says that it has not taken.
    func refused() async throws -> String {
        let file = try DatabaseQueue(path: directory.path("events.sqlite"))
        return try await file.read { try String.fetchOne($0, sql: "SELECT refused FROM installs") } ?? ""
    }

    /// - Returns: The key.
    func addKey(origins: [String]) async throws -> (key: String, id: Int) {
        struct Made: Decodable { var key: String, id: Int }
        let body = #"{"kind":"browser","project":"demo","origins":\#(String(decoding: try JSONEncoder().encode(origins), as: UTF8.self))}"#
        let answer = try await RawHTTP.post(
            port: server, path: "/v1/admin/keys",
            headers: ["Authorization": "Bearer \(Self.adminKey)", "Content-Type": "application/json"], body: Array(body.utf8))
        let made = try JSONDecoder().decode(Made.self, from: Data(answer.body))
        return (made.key, made.id)
    }

    func revokeKey(_ id: Int) async throws {
        let connection = try await RawHTTP(port: server)
        try await connection.send(
            RawHTTP.request("DELETE", "/v1/admin/keys/\(id)", headers: ["Authorization": "Bearer \(Self.adminKey)"]))
        #expect(try await connection.answer(to: "DELETE").status == 200)
    }

    private func serve(_ client: LoopbackSocket) {
        defer { client.shutDown() }
        var reader = HTTPReader(client)
        guard let request = try? reader.request() else { return }
        let parts = request.startLine.split(separator: " ").map(String.init)
        guard parts.count == 3 else { return }
        let path = String(parts[1].prefix { $0 != "?" })
        if request["Host"]?.hasPrefix("localhost") == true {
            let page = state.withLock { $0.pages[path] ?? $0.pages["/"] }
            return write(client, 200, "text/html", page?.html ?? "", page?.headers ?? "")
        }
        let answer = state.withLock { state in
            guard path == "/v1/events" else { return Answer?.none }
            state.asked.append("\(parts[0]) \(parts[1])")
            return parts[0] != "POST" || state.answers.isEmpty ? nil : state.answers.removeFirst()
        }
        if case .status(let status, let text, let type) = answer {
            return write(
                client, status, type, text, "Access-Control-Allow-Origin: \(address)\r\nAccess-Control-Expose-Headers: Retry-After\r\n")
        }
        let lines = request.headers.filter { !["connection", "host"].contains($0.name.lowercased()) }
        let head =
            "\(parts[0]) \(parts[1]) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            + lines.map { "\($0.name): \($0.value)\r\n" }.joined()
            + "\r\n"
        guard let upstream = try? LoopbackSocket.connected(port: server), (try? upstream.write(Array(head.utf8) + request.body)) != nil
        else { return }
        while let bytes = try? upstream.read(), !bytes.isEmpty {
            if answer == nil, (try? client.write(bytes)) == nil { break }
        }
        upstream.shutDown()
    }

    private func write(_ client: LoopbackSocket, _ status: Int, _ type: String, _ text: String, _ headers: String) {
        try? client.write(
            Array(
                "HTTP/1.1 \(status) S\r\nContent-Type: \(type)\r\nContent-Length: \(text.utf8.count)\r\nConnection: close\r\n\(headers)\r\n\(text)"
                    .utf8))
    }
}
