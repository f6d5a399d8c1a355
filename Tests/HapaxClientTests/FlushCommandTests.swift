import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax flush", .timeLimit(.minutes(10)), .endsWhenItHangs)
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
}
