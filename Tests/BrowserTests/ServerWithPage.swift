import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

/// The real server with the public keys, on a SQLite file, and a browser that looks at its page.
struct ServerWithPage: Sendable {
    let process: ChildProcess
    let port: Int
    let browser: Browser
    private let directory: TemporaryDirectory

    static let adminKey = "admin-key-of-the-page"

    var address: String { "http://127.0.0.1:\(port)" }

    /// The page is open, connected and shows what there is; behind `body` no script has failed and nothing was forbidden.
    ///
    /// - Parameter isForbidden: Whether `body` does what is forbidden.
    static func run(
        width: Int = 1200, height: Int = 800, isForbidden: Bool = false, _ body: (ServerWithPage) async throws -> Void
    ) async throws {
        let directory = TemporaryDirectory("page")
        let (process, address) = try await start(directory, port: 0)
        let port = try #require(URL(string: address)?.port)
        let server = ServerWithPage(
            process: process, port: port, browser: try await Browser(width: width, height: height), directory: directory)
        try await server.browser.open(address)
        try await server.browser.until("document.getElementById('connection').textContent === 'connected'")
        try await body(server)
        #expect(isForbidden || server.browser.complaints == [])
    }

    /// - Returns: The page's address, as the server prints it.
    static func start(_ directory: TemporaryDirectory, port: Int) async throws -> (ChildProcess, String) {
        let process = try ChildProcess(
            "hapax-server",
            environment: [
                "HAPAX_PORT": "\(port)", "HAPAX_STORE": "sqlite:\(directory.path("events.sqlite"))", "HAPAX_WRITE_KEYS": "demo=demo",
                "HAPAX_READ_KEYS": "demo=demo-read", "HAPAX_ADMIN_KEY": adminKey, "HAPAX_LOG_LEVEL": "critical",
            ])
        return (process, try await process.line(after: "see what arrives: "))
    }

    /// Starts it again where it was.
    func restarted() async throws -> ChildProcess { try await Self.start(directory, port: port).0 }

    /// The same server again, as if each event had been received when it happened: what reports are made of has to be older than a test.
    ///
    /// - Parameter isOld: Whether that is to be so; else days only close at once.
    func restarted(_ process: ChildProcess, withOldEvents isOld: Bool) async throws -> ChildProcess {
        process.terminate()
        #expect(await process.waitUntilExit() == .exited(0))
        if isOld {
            let file = try DatabaseQueue(path: directory.path("events.sqlite"))
            try await file.write { db in
                try db.execute(sql: "UPDATE events SET received_at = time")
                for table in ["zones", "bounds", "progress", "days", "events", "users", "late"] {
                    try db.execute(sql: "DELETE FROM report_\(table)")
                }
            }
            try file.close()
        }
        let again = try await restarted()
        try await browser.reload()
        return again
    }

    @discardableResult
    func send(_ events: [String]) async throws -> HTTPMessage {
        try await RawHTTP.post(
            port: port, headers: ["Authorization": "Bearer demo", "Content-Type": "application/json"],
            body: Array("[\(events.joined(separator: ","))]".utf8))
    }

    static func id(_ number: Int) -> String {
        let text = String(number, radix: 16)
        return "01980000-0000-7000-8000-" + String(repeating: "0", count: 12 - text.count) + text
    }

    /// - Parameter daysAgo: At noon of that day, UTC; nil is now.
    static func event(
        _ number: Int, _ name: String = "order_paid", user: String = "customer-1", properties: String = "{}", daysAgo: Int? = nil
    ) -> String {
        let name = Browser.quoted(name)
        let now = Int(Date().timeIntervalSince1970 * 1_000)
        let time = daysAgo.map { (now / 86_400_000 - $0) * 86_400_000 + 43_200_000 + number } ?? now
        return
            #"{"event_id":"\#(id(number))","event":\#(name),"time":\#(time),"distinct_id":\#(Browser.quoted(user)),"properties":\#(properties)}"#
    }

    /// Runs a command line as a user would paste it.
    func shell(_ line: String) async throws -> String {
        let process = try ChildProcess("/bin/sh", ["-c", line + "\necho"])
        return await process.remainingLines().joined(separator: "\n")
    }
}
