import Foundation
import HapaxClient
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@Suite("hapax track", .endsWhenItHangs)
struct TrackCommandTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    @Test("a derived id is made of name and key: another name, or another key, is another event (I2)")
    func derivedIDHasTheName() async throws {
        for (name, key) in [("paid", "4711"), ("sent", "4711"), ("paid", "4712"), ("paid", "4711")] {
            #expect(try await hapax.run("track", name, "--derive-id", key).status == 0)
        }
        #expect(server.stored.count == 3)
    }

    @Test("other events that its flush makes dead letters are told: the next flush counts its own")
    func othersAreTold() async throws {
        server.change { $0.isRefused = { $0.name == Array("paid".utf8)[...] } }
        #expect(try await hapax.run("track", "paid", "--no-flush").status == 0)
        let track = try await hapax.run("track", "other")
        #expect(track.status == 0 && track.error.contains("1 other events became dead letters"))
        #expect(try await hapax.run("track", "paid", "--no-flush").status == 0)
        #expect(try await hapax.run("track", "last", "--json").json["others_dead_lettered"] as? Int == 1)
        // Its own letter was made when it was stored.
        #expect(try await hapax.run("track", "paid", "--no-flush").status == 0)
        let limit = try await hapax.run("track", String(repeating: "n", count: 201), "--json")
        #expect(limit.status == 3 && limit.json["others_dead_lettered"] as? Int == 1)
        let own = try await hapax.run("track", "paid", "--json")
        #expect(own.status == 3 && own.json["others_dead_lettered"] as? Int == 0)
    }

    @Test("what the flush rejects under the same id is another event: this one's own reason is told (I12)")
    func ownReasonIsTold() async throws {
        server.change { $0.isRefused = { $0.name == Array("first".utf8)[...] } }
        let id = EventID(uuidString: "019C0DE0-0000-7000-8000-000000000001")?.description ?? ""
        #expect(try await hapax.run("track", "first", "--id", id, "--no-flush").status == 0)
        let output = try await hapax.run("track", "second", "--id", id, "--json")
        #expect(output.status == 3 && (output.json["detail"] as? String)?.contains("waits under this id") == true)
        #expect(output.json["others_dead_lettered"] as? Int == 1)
    }

    @Test("an id is given or derived, not both: a usage error, and nothing is stored")
    func idIsGivenOrDerived() async throws {
        let id = EventID.derived(name: "a", key: "b").description
        let output = try await hapax.run("track", "paid", "--id", id, "--derive-id", "4711")
        #expect(output.status == 64 && output.error.contains("--derive-id"))
        #expect(server.batches.isEmpty && !FileManager.default.fileExists(atPath: hapax.queue))
    }

    @Test("without a flush, or without time for one, it only stores", arguments: [["--no-flush"], ["--timeout", "0"]])
    func withoutTimeItOnlyStores(arguments: [String]) async throws {
        let output = try await hapax.start(["track", "kept", "--time", "1700000000000", "--json"] + arguments).finish()
        #expect(output.status == 0 && output.json["delivered"] as? Bool == false)
        #expect(server.batches.isEmpty)
        let status = try await hapax.run("status", "--json")
        #expect(status.json["waiting"] as? Int == 1 && status.json["oldest"] as? Int == 1_700_000_000_000)
    }
}
