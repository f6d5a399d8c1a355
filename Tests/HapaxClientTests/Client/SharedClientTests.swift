import Dispatch
import Foundation
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("The shared client (R2)", .timeLimit(.minutes(3)), .endsWhenItHangs)
struct SharedClientTests {
    @Test("nil before the start, then the same for everyone: 16 threads that start it make one client (R2)")
    func startsOnce() async throws {
        let shared = SharedClient()
        #expect(shared.client == nil)
        let directory = TemporaryDirectory()
        let made = Locked(0)
        let clients = await onThreads(16) { _ in
            try? shared.start { _ throws(StartError) in
                made.withLock { $0 += 1 }
                do { return try TestClient(directory: directory).client } catch { throw (error as? StartError) ?? .malformedURL }
            }
        }
        let first = try #require(shared.client)
        #expect(made.withLock { $0 } == 1)
        #expect(clients.count == 16 && clients.allSatisfy { $0 === first })
    }

    @Test("a start that failed may be tried again (R2)")
    func failedStartIsNone() throws {
        let shared = SharedClient()
        #expect(throws: StartError.malformedURL) { try shared.start { _ throws(StartError) in throw .malformedURL } }
        #expect(shared.client == nil)
        let test = try TestClient()
        #expect(try shared.start { _ throws(StartError) in test.client } === test.client)
    }

    @Test("what the app has configured may ask for the client while that starts, and nobody else sees it so soon (R2)")
    func startMayBeAskedForWithin() async throws {
        let (shared, crashed) = (SharedClient(), TemporaryDirectory())
        let first = try TestClient()
        first.client.handle(.didBecomeActive)
        // The marker of its session is written behind the first commit.
        for _ in 0..<2 { try await first.client.writer.barrier() }
        try FileManager.default.copyItem(atPath: first.directory.path("queue"), toPath: crashed.path("queue"))
        let asked = Locked<[EventClient?]>([])
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: crashed.path("queue"))
        configuration.flushInterval = nil
        configuration.computedProperties = {
            let client = try? shared.start { _ throws(StartError) in throw .malformedURL }
            // Another thread could track before the end of the last session.
            let told = DispatchSemaphore(value: 0)
            Thread.detachNewThread {
                asked.withLock { $0.append(shared.client) }
                // It has the client all the same: this thread may wait for it.
                let started = try? shared.start { _ throws(StartError) in throw .malformedURL }
                asked.withLock { $0.append(started) }
                told.signal()
            }
            told.wait()
            asked.withLock { $0.append(client) }
            return [:]
        }
        let client = try shared.start { recovery throws(StartError) in
            try EventClient.start(configuration, clock: ManualClock(), recovery: recovery) { ScriptedTransport() }
        }
        let clients = asked.withLock { $0 }
        #expect(clients.count == 3 && clients[0] == nil && clients[1] === client && clients[2] === client && shared.client === client)
        await client.shutdown(within: .zero)
    }

    /// Calls back whatever it is asked for.
    private struct AskingHandler: LogHandler {
        let asked: @Sendable () -> Void
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) { asked() }
    }

    @Test("what the app has configured may start the client from within its start: a logger gets it, sooner there is none (R2)")
    func startWithinAStartDoesNotWait() async throws {
        let (shared, directory) = (SharedClient(), TemporaryDirectory())
        let first = try TestClient(directory: directory)
        try await first.client.trackDurably("waits")
        await first.client.shutdown(within: .zero)
        var configuration = first.client.configuration
        // That is told at the start.
        try Data("noise".utf8).write(to: URL(fileURLWithPath: directory.path("queue/identity.json")))
        let asked = Locked<[EventClient?]>([])
        let ask: @Sendable () -> Void = {
            let client = try? shared.start { _ throws(StartError) in throw .malformedURL }
            asked.withLock { $0.append(client) }
        }
        configuration.logger = Logger(label: "test") { _ in AskingHandler(asked: ask) }
        let client = try shared.start { [configuration] recovery throws(StartError) in
            ask()
            // Not on this thread: it waits, and gets the client.
            Task { ask() }
            return try EventClient.start(configuration, clock: ManualClock(), recovery: recovery) { ScriptedTransport() }
        }
        while asked.withLock({ $0.count }) < 3 { await Task.yield() }
        let clients = asked.withLock { $0 }
        #expect(clients[0] == nil && clients[1] === client && clients[2] === client && shared.client === client)
        await client.shutdown(within: .zero)
    }

    /// The process's own: the one test that touches it.
    @Test("the process's client is nil, then the first one for ever (R1, R2)")
    func processHasOne() async throws {
        #expect(EventClient.shared == nil)
        let directory = TemporaryDirectory()
        var configuration = EventClient.Configuration(
            server: "https//:host", writeKey: "k", queueDirectory: directory.path + "/queue")
        configuration.flushInterval = nil
        #expect(throws: StartError.malformedURL) { try EventClient.startShared(configuration) }
        #expect(EventClient.shared == nil)
        configuration.server = EventClient.Configuration.url("http://127.0.0.1:1")
        let first = try EventClient.startShared(configuration)
        #expect(EventClient.shared === first)
        #expect(try EventClient.startShared(configuration) === first)
        configuration.queueDirectory.append(path: "another")
        #expect(try EventClient.startShared(configuration) === first, "whatever it is asked for: one uploader")
        _ = await first.shutdown(within: .zero)
        #expect(EventClient.shared === first && first.track("late") == nil)
    }
}
