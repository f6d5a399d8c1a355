import TestSupport

/// The real server in a process of its own.
struct ServerUnderTest: Sendable {
    static let key = "write-key-of-demo"
    static let adminKey = "admin-key"

    let process: ChildProcess
    let port: Int

    /// Returns when it accepts connections.
    ///
    /// - Parameter port: 0 for a free one.
    static func start(
        _ store: PipelineStore, readKey: String? = nil, port: Int = 0, environment: [String: String] = [:]
    ) async throws -> ServerUnderTest {
        let process = try ChildProcess(
            "hapax-server",
            environment: [
                "HAPAX_PORT": "\(port)", "HAPAX_STORE": store.setting, "HAPAX_WRITE_KEYS": "demo=\(key)",
                "HAPAX_READ_KEYS": readKey.map { "demo=\($0)" } ?? "", "HAPAX_ADMIN_KEY": adminKey, "HAPAX_LOG_LEVEL": "critical",
            ].merging(environment) { $1 })
        let text = try await process.line(after: "listening on http://127.0.0.1:")
        guard let port = Int(text) else { throw NoPort() }
        return ServerUnderTest(process: process, port: port)
    }

    struct NoPort: Error {}

    /// What `/metrics` counts, by name and labels.
    func counters() async throws -> [String: Int] {
        let answer = try await RawHTTP.get(port: port, path: "/metrics", headers: ["Authorization": "Bearer \(Self.adminKey)"])
        let lines = String(decoding: answer.body, as: UTF8.self).split(separator: "\n").filter { !$0.hasPrefix("#") }
        return lines.reduce(into: [:]) { counters, line in
            let parts = line.split(separator: " ")
            if parts.count == 2 { counters[String(parts[0])] = Int(parts[1]) }
        }
    }

    /// SIGKILL; gone on return.
    func kill() async {
        process.kill()
        _ = await process.waitUntilExit()
    }

    /// SIGTERM; gone on return.
    @discardableResult
    func stop() async -> ChildProcess.Exit {
        process.terminate()
        return await process.waitUntilExit()
    }
}
