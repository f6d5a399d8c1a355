#if os(Linux)
import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Clients that come and go in one process (I13)", .serialized, .endsWhenItHangs)
struct ClientCycleTests {
    private func cycle(_ directory: TemporaryDirectory) async throws {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: directory.path + "/queue")
        configuration.uploads.interval = nil
        let client = try EventClient.start(configuration)
        _ = try await client.trackDurably("e")
        _ = await client.flush()
        await client.shutdown(within: .zero)
    }

    /// Other tests run in this process: only what points into this directory counts.
    private func openFiles(in directory: TemporaryDirectory) -> Int {
        let links = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return links.count { link in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + link))?.hasPrefix(directory.path) ?? false
        }
    }

    @Test("twenty clients, one after the other, leave no file open and nothing locked")
    func nothingStaysOpen() async throws {
        let directory = TemporaryDirectory()
        for _ in 0..<20 { try await cycle(directory) }
        // The last one's end may be under way; what is never closed runs into the time limit.
        while try await blocking({ openFiles(in: directory) }) > 0 {}
        #expect(try QueueContents(directory.path("queue")).waiting == 20)
    }

    @Test("control: a client that is not shut down is seen")
    func openClientIsSeen() async throws {
        let test = try TestClient()
        #expect(openFiles(in: test.directory) > 0)
        await test.client.shutdown(within: .zero)
    }
}
#endif
