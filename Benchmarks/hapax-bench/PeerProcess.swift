import Foundation
import TestSupport

/// The server of `Benchmarks/peer-fastapi` with its two workers, which answers what Hapax answers.
final class PeerProcess: LoadTarget {
    private static let script = PackageLayout.root.appending(path: "Benchmarks/peer-fastapi/run")

    private let process = Process()
    let port: Int

    /// Installs its packages, if they are missing.
    static func install() throws {
        let installation = Process()
        installation.executableURL = script
        installation.arguments = ["--install"]
        try installation.run()
        installation.waitUntilExit()
        guard installation.terminationStatus == 0 else { throw BenchmarkError("the peer could not be installed") }
    }

    init(store: String) throws {
        port = try LoopbackPort.unused()
        process.executableURL = Self.script
        process.environment = ["PATH": "/usr/bin:/bin", "PEER_PORT": "\(port)", "PEER_STORE": store, "PEER_KEY": ServerProcess.key]
        process.standardOutput = FileHandle.standardError
        try process.run()
        let limit = ContinuousClock.now + .seconds(30)
        while (try? HTTPConnection(port: port).send(HTTPConnection.get("/health", port: port))) == nil {
            guard process.isRunning, .now < limit else { throw BenchmarkError("the peer did not start") }
            // A process of another make tells of its port only by answering on it.
            Thread.sleep(forTimeInterval: 0.1)
        }
    }

    var processIdentifier: Int32 { process.processIdentifier }

    func stop() {
        process.terminate()
        process.waitUntilExit()
    }
}
