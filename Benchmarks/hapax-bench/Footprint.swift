import Foundation
import HapaxClient
import HapaxModel
import TestSupport

/// A client in a process of its own: how long it takes to open a queue, and how much memory it holds then.
enum Footprint {
    struct Figures {
        var milliseconds: Double
        var mebibytes: Double
    }

    /// What the process started by ``measure(_:)`` does.
    static func hold(_ queue: String) async throws {
        let configuration = ClientBenchmark.configuration(queue: queue)
        let start = ContinuousClock.now
        let client = try EventClient.start(configuration)
        let milliseconds = (ContinuousClock.now - start) / .milliseconds(1)
        // Both have tracked, so that neither has what only the other needed.
        _ = try await client.trackDurably("held", properties: Corpus.properties(1))
        print(milliseconds, residentMebibytes)
        await client.shutdown(within: .zero)
    }

    static func measure(_ queue: String) async throws -> Figures {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: CommandLine.arguments[0])
        process.arguments = ["hold", queue]
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        let numbers = output.split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard numbers.count == 2 else { throw BenchmarkError("a client could not open its queue") }
        return Figures(milliseconds: numbers[0], mebibytes: numbers[1])
    }

    /// Of anonymous memory: pages of the file that the system keeps for everybody are not the client's. `statm` counts in pages.
    private static var residentMebibytes: Double {
        let fields = ((try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? "").split(separator: " ").compactMap {
            Double($0)
        }
        guard fields.count > 2 else { return .nan }
        return (fields[1] - fields[2]) * Double(sysconf(Int32(_SC_PAGESIZE))) / 1_048_576
    }
}
