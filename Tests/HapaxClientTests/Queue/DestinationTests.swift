import Foundation
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Events that wait for another server or project", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct DestinationTests {
    private let directory = TemporaryDirectory()

    private var queue: QueueDirectory { QueueDirectory(path: directory.path + "/queue") }

    private func open(_ log: RecordedLog, server: String = "http://127.0.0.1:1", key: String) throws -> TestClient {
        try TestClient(directory: directory) {
            ($0.server, $0.writeKey, $0.whenQueueIsTaken) = (server, key, .spool)
            $0.logger = Logger(label: "test") { _ in log }
        }
    }

    /// Starts a client, tracks an event if there is one, and ends it.
    ///
    /// - Returns: Whether its start told of a change.
    private func run(server: String = "http://127.0.0.1:1", key: String, event: String? = nil, flushes: Bool = false) async throws -> Bool {
        let log = RecordedLog()
        let client = try open(log, server: server, key: key)
        if let event { try await client.client.trackDurably(event) }
        if flushes { _ = await client.client.flush() }
        await client.client.shutdown(within: .zero)
        #expect(log.lines.contains { $0.contains("another server") } == client.client.hasRedirected)
        #expect(!log.lines.contains { $0.contains(key) })
        return client.client.hasRedirected
    }

    @Test("a start with another write key, or another server, says that what waits goes there now (I9)")
    func changedDestinationIsTold() async throws {
        #expect(try await !run(key: "key-of-a", event: "for a"))
        #expect(try await !run(key: "key-of-a"), "the same")
        #expect(try await run(key: "key-of-b"))
        #expect(try await !run(key: "key-of-b"), "told once")
        #expect(try await run(server: "http://127.0.0.1:2", key: "key-of-b"))
        #expect(try await run(server: "http://127.0.0.1:1/", key: "key-of-b"))
        #expect(try await !run(server: "http://127.0.0.1:1", key: "key-of-b"), "the same server")
    }

    @Test("dead letters count as well: retried, they go to the new one (I9)")
    func lettersAreTold() async throws {
        #expect(try await !run(key: "key-of-a", event: String(repeating: "n", count: 201)))
        #expect(try await run(key: "key-of-b"))
    }

    @Test("where nothing waits, a change is nobody's business")
    func emptyQueueMayChange() async throws {
        #expect(try await !run(key: "key-of-a", event: "delivered", flushes: true))
        #expect(try await !run(key: "key-of-b"))
    }

    @Test("what another project left beside the queue is told as well, when it is sent; nothing of the mark stays (I9)")
    func spoolOfAnotherIsTold() async throws {
        let log = RecordedLog()
        let main = try open(log, key: "key-of-a")
        #expect(try await !run(key: "key-of-b", event: "for b"))
        #expect(!main.client.hasRedirected)
        #expect(await main.client.flush().stored == 1)
        #expect(main.client.hasRedirected && log.lines.contains { $0.contains("another server") })
        #expect(try queue.spools().isEmpty && (try FileManager.default.contentsOfDirectory(atPath: queue.spoolPath)).isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("what a damaged file holds may be meant for another, too")
    func damagedQueueIsTold() async throws {
        #expect(try await !run(key: "key-of-a", event: "for a"))
        try Data(repeating: 7, count: 50_000).write(to: URL(fileURLWithPath: queue.databasePath))
        #expect(try await run(key: "key-of-b"))
    }

    @Test("the mark does not give the key away, is its owner's alone, and one that is cut off or unreadable stops nobody")
    func markIsDiscreet() async throws {
        #expect(try await !run(key: "key-of-a", event: "for a"))
        let mark = try #require(FileManager.default.contents(atPath: queue.destinationPath))
        #expect(!String(decoding: mark, as: UTF8.self).contains("key-of-a"))
        let mode = try FileManager.default.attributesOfItem(atPath: queue.destinationPath)[.posixPermissions] as? Int
        #expect(mode == 0o600)
        try mark.prefix(20).write(to: URL(fileURLWithPath: queue.destinationPath))
        #expect(try await !run(key: "key-of-b"))
        try FileManager.default.removeItem(atPath: queue.destinationPath)
        try FileManager.default.createDirectory(atPath: queue.destinationPath, withIntermediateDirectories: false)
        #expect(try await !run(key: "key-of-a", event: "another"))
    }
}
