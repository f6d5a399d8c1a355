import Foundation
import TestSupport

/// The real server in a process of its own, from the same build as this program.
final class ServerProcess: LoadTarget {
    static let key = "benchmark-key"
    static let readKey = "benchmark-read-key"
    static let adminKey = "benchmark-admin-key"

    private let process = Process()
    let port: Int

    /// Of each further project.
    static func key(of project: String) -> String { "write-key-of-\(project)" }
    static func readKey(of project: String) -> String { "read-key-of-\(project)" }

    /// Before anybody has asked for anything.
    private(set) var restingMebibytes = 0.0

    /// - Parameters:
    ///   - zone: Of the project, for its reports.
    ///   - projects: Further ones, each with keys of its own.
    init(store: String, zone: String = "UTC", projects: [String] = [], certificate: TestCertificate? = nil) throws {
        let program = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        process.executableURL = program.deletingLastPathComponent().appendingPathComponent("hapax-server")
        process.environment = [
            "HAPAX_STORE": store, "HAPAX_PORT": "0", "HAPAX_ADMIN_KEY": Self.adminKey,
            "HAPAX_WRITE_KEYS": (["bench=\(Self.key)"] + projects.map { "\($0)=\(Self.key(of: $0))" }).joined(separator: ","),
            "HAPAX_READ_KEYS": (["bench=\(Self.readKey)"] + projects.map { "\($0)=\(Self.readKey(of: $0))" }).joined(separator: ","),
            "HAPAX_TIME_ZONES": "bench=\(zone)", "HAPAX_LOG_LEVEL": "warning",
        ]
        process.environment?["HAPAX_TLS_CERTIFICATE"] = certificate?.certificate
        process.environment?["HAPAX_TLS_KEY"] = certificate?.key
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        var line = Data()
        while let byte = try output.fileHandleForReading.read(upToCount: 1), byte != Data("\n".utf8), !byte.isEmpty { line += byte }
        guard let port = String(decoding: line, as: UTF8.self).split(separator: ":").last.flatMap({ Int($0) }) else {
            throw BenchmarkError("the server did not start")
        }
        self.port = port
        restingMebibytes = residentMebibytes
    }

    var processIdentifier: Int32 { process.processIdentifier }

    /// Transactions of the store so far, and the distinct events in them.
    var groups: (transactions: Double, events: Double) {
        get throws {
            let answer = try HTTPConnection(port: port).send(HTTPConnection.get("/metrics", port: port, key: Self.adminKey))
            let text = String(decoding: answer, as: UTF8.self)
            func value(_ name: String) -> Double {
                text.split(separator: "\n").last { $0.hasPrefix("\(name) ") }.flatMap { Double($0.dropFirst(name.count + 1)) } ?? 0
            }
            return (value("hapax_group_events_count"), value("hapax_group_events_sum"))
        }
    }

    /// Waits until the server has closed all days up to `to` and counted what was late for them: it does so beside everything else.
    func waitForClosedDays(from: String, to: String) throws {
        let reader = try HTTPConnection(port: port)
        let request = HTTPConnection.get("/v1/reports/daily?from=\(from)&to=\(to)", port: port)
        // Until then an answer may ask for too much.
        while String(decoding: try reader.send(request), as: UTF8.self).firstMatch(
            of: /"late_as_of":"[^"]*","days":\[{"day":"[^"]*","state":"closed"/) == nil
        {
            // Asked without a pause, it would take the time that it measures.
            Thread.sleep(forTimeInterval: 0.2)
        }
    }

    func stop() {
        process.terminate()
        process.waitUntilExit()
    }
}
