import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Which lines travel together, and what becomes of one that cannot travel.
@Suite("hapax import, line by line", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct ImportLinesTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func line(_ number: Int, text: String = "") -> String {
        let id = EventID.derived(name: "line", key: "\(number)")
        return #"{"event_id":"\#(id)","event":"e","time":\#(number),"distinct_id":"u","properties":{"x":"\#(text)"}}"#
    }

    @Test("a line that no batch can hold is found and buried, and every other one is delivered (I1, I8)", arguments: [0, 3, 9])
    func poisonousLineIsFound(poison: Int) async throws {
        server.change { $0.isPoison = { $0.time == Int64(poison) } }
        let output = try await hapax.run("import", "-", "--json", input: (0..<10).map { line($0) }.joined(separator: "\n"))
        #expect(output.status == 3)
        #expect(output.json["stored"] as? Int == 9 && output.json["dead_lettered"] as? Int == 1)
        let letter = try await hapax.run("dead-letters", "list", "--json").json
        #expect((letter["detail"] as? String)?.hasPrefix("line \(poison + 1): ") == true)
    }

    @Test("a batch of long lines stays within a client's byte limit (I13)")
    func batchesObeyTheByteLimit() async throws {
        let text = String(repeating: "x", count: 30_000)
        let output = try await hapax.run("import", "-", "--json", input: (0..<40).map { line($0, text: text) }.joined(separator: "\n"))
        #expect(output.status == 0 && server.stored.count == 40)
        #expect(server.batches.count > 1 && server.batches.allSatisfy { $0.body.count <= EventLimits.maximumClientBatchBytes })
    }

    @Test("a line that is cut is a dead letter, also if a whole event stands before the cut (I3)")
    func cutLineIsNoEvent() async throws {
        let cut = line(0) + String(repeating: " ", count: 2 * 1024 * 1024) + "and more"
        let output = try await hapax.run("import", "-", "--json", input: cut + "\n" + line(1) + "\n")
        #expect(output.status == 3)
        #expect(output.json["dead_lettered"] as? Int == 1 && server.batches.flatMap { $0.scanned.events.map(\.time) } == [1])
    }
}
