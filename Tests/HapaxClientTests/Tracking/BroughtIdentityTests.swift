import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Coming from another SDK (C29)", .endsWhenItHangs)
struct BroughtIdentityTests {
    private let directory = TemporaryDirectory()

    private func identity(_ change: (EventClient) async throws -> Void = { _ in }, configure: (inout EventClient.Configuration) -> Void)
        async throws -> Identity
    {
        let test = try TestClient(directory: directory) {
            $0.distinctID = nil
            configure(&$0)
        }
        try await change(test.client)
        let identity = test.client.identity
        await test.client.shutdown(within: .seconds(1))
        return identity
    }

    @Test("a first start has the anonymous id that it is given; later ones keep theirs, and reset() replaces it for ever")
    func anonymousIDIsBrought() async throws {
        #expect(try await identity { $0.anonymousID = "ph-1" }.distinctID == "ph-1")
        #expect(try await identity { $0.anonymousID = "ph-2" }.anonymousID == "ph-1")
        let another = try await identity({ $0.reset() }, configure: { $0.anonymousID = "ph-1" }).anonymousID
        #expect(another != "ph-1")
        #expect(try await identity { $0.anonymousID = "ph-1" }.anonymousID == another)
    }

    @Test("one that cannot be read may be another person's: the id that was brought does not come back in its place")
    func broughtIDDoesNotComeBack() async throws {
        _ = try await identity { $0.anonymousID = "ph-1" }
        try Data("noise".utf8).write(to: URL(filePath: directory.path("queue/identity.json")))
        #expect(try await identity { $0.anonymousID = "ph-1" }.anonymousID != "ph-1")
    }

    @Test(
        "a distinct id in an app is warned of, and an anonymous id that no event may have is left aside, with a warning",
        arguments: [("distinctID", true, 1), ("distinctID", false, 0), ("anonymousID", true, 1), ("nothing", true, 0)])
    func settingsAreWarnedOf(setting: String, isApp: Bool, warnings: Int) async throws {
        let log = RecordedLog()
        let identity = try await identity { configuration in
            configuration.logger = Logger(label: "test") { _ in log }
            configuration.isApp = isApp
            if setting == "distinctID" { configuration.distinctID = "old" }
            if setting == "anonymousID" { configuration.anonymousID = "" }
        }
        #expect(log.lines.filter { $0.contains("configuration.\(setting)") }.count == warnings && !identity.distinctID.isEmpty)
    }
}
