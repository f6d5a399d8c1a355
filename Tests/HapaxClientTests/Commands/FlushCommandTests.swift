import HapaxTestKit
import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax flush", .endsWhenItHangs)
struct FlushCommandTests {
    @Test("what a running process holds is left to it: exit 2 though nothing failed, and delivered once that has ended")
    func ownedFileIsLeft() async throws {
        let server = try IngestStandIn()
        let hapax = CommandLine(server: server.url)
        let holder = try hapax.client { $0.uploads.interval = .seconds(15) }
        holder.transport.script { _ in .failure(.cut) }
        try await holder.track(0..<3)
        holder.clock.advance(by: .seconds(15))
        await holder.transport.requests(1)
        let early = try await hapax.run("flush", "--json")
        #expect(early.status == 2 && early.json["remaining"] as? Int == 3)
        #expect(early.json["stored"] as? Int == 0 && early.json["failure"] as? String == nil)
        await holder.client.shutdown(within: .zero)
        let late = try await hapax.run("flush", "--json")
        #expect(late.status == 0 && late.json["stored"] as? Int == 3 && late.json["remaining"] as? Int == 0)
        #expect(server.stored.count == 3)
    }
}
