import Foundation

/// The real server in a process of its own, from the same build as this program.
final class ServerProcess {
    static let key = "benchmark-key"
    static let readKey = "benchmark-read-key"

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
    init(store: String, zone: String = "UTC", projects: [String] = []) throws {
        let program = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        process.executableURL = program.deletingLastPathComponent().appendingPathComponent("hapax-server")
        process.environment = [
            "HAPAX_STORE": store, "HAPAX_PORT": "0",
            "HAPAX_WRITE_KEYS": (["bench=\(Self.key)"] + projects.map { "\($0)=\(Self.key(of: $0))" }).joined(separator: ","),
            "HAPAX_READ_KEYS": (["bench=\(Self.readKey)"] + projects.map { "\($0)=\(Self.readKey(of: $0))" }).joined(separator: ","),
            "HAPAX_TIME_ZONES": "bench=\(zone)", "HAPAX_LOG_LEVEL": "warning",
        ]
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

    /// CPU time used so far, user and system, in seconds; only where `/proc` tells.
    var cpuSeconds: Double? { Self.cpuSeconds(of: "\(process.processIdentifier)") }

    static func cpuSeconds(of process: String) -> Double? {
        guard let stat = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8),
            let fields = stat.split(separator: ")").last?.split(separator: " "), fields.count > 12,
            let user = Double(fields[11]), let system = Double(fields[12])
        else { return nil }
        return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    func stop() {
        process.terminate()
        process.waitUntilExit()
    }
}
