import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax flush", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct FlushCommandTests {
    @Test("what another process still stores beside the queue is left: exit 2 though nothing failed, and delivered once that has ended")
    func queueInUseBesideIsLeft() async throws {
        let server = try IngestStandIn()
        let hapax = CommandLine(server: server.url)
        let holder = try TestClient(directory: hapax.directory)
        let beside = try TestClient(directory: hapax.directory) { $0.whenQueueIsTaken = .spool }
        try await beside.track(0..<3)
        await holder.client.shutdown(within: .zero)
        let early = try await hapax.run("flush", "--json")
        #expect(early.status == 2 && early.json["remaining"] as? Int == 3)
        #expect(early.json["stored"] as? Int == 0 && early.json["failure"] as? String == nil)
        await beside.client.shutdown(within: .zero)
        let late = try await hapax.run("flush", "--json")
        #expect(late.status == 0 && late.json["stored"] as? Int == 3 && late.json["remaining"] as? Int == 0)
        #expect(server.stored.count == 3)
    }

    @Test("a queue beside it that never answers does not hold it up: what it has is sent, and it ends at its limits (R13, I15)")
    func hangingSpoolIsLeft() async throws {
        let server = try IngestStandIn()
        let hapax = CommandLine(server: server.url)
        _ = try await hapax.run("track", "mine", "--no-flush")
        let spool = hapax.queue + "/spool/" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: spool, withIntermediateDirectories: true)
        // Opening one waits for somebody who writes.
        try #require(mkfifo(spool + "/queue.sqlite", 0o600) == 0)
        let output = try await hapax.run("flush", "--timeout", "1", "--json")
        #expect(output.status == 1 && server.stored.count == 1 && output.json["remaining"] as? Int == 0)
        #expect(output.json["unusable_spools"] as? Int == 1 && output.error.contains(hapax.queue + "/spool"))
    }
}
