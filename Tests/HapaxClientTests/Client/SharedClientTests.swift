import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("The shared client (R1, R2)", .endsWhenItHangs)
struct SharedClientTests {
    private let directory = TemporaryDirectory()

    private var configuration: EventClient.Configuration {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: directory.path("queue"))
        configuration.uploads.interval = nil
        return configuration
    }

    /// As the process's own, of which there is one: without a configuration yet.
    private func shared(opened: Locked<Int> = Locked(0), logger: Logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        -> EventClient
    {
        EventClient.notBootstrapped(logger: logger, clock: TestClock()) { configuration, hub, timers in
            opened.withLock { $0 += 1 }
            do throws(StartError) {
                return .success(try OpenClient.open(configuration, clock: TestClock(), hub: hub, timers: timers) { ScriptedTransport() })
            } catch {
                return .failure(error)
            }
        }
    }

    @Test("16 threads that give it a configuration open one queue (R2)")
    func opensOnce() async throws {
        let opened = Locked(0)
        let shared = shared(opened: opened)
        _ = await onThreads(16) { _ in shared.take(configuration) }
        #expect(opened.withLock { $0 } == 1 && shared.track("event") != nil)
        await shared.shutdown(within: .zero)
    }

    @Test(
        "what it was told before it has a configuration holds for its first event, in the order of the calls; events are refused and counted"
    )
    func rememberedCallsHold() async throws {
        let shared = shared()
        #expect(!shared.isConfigured && shared.track("early") == nil)
        for id in ["first", "second"] { shared.identify(id) }
        #expect(throws: ConsentError.notPersisted(.notOpen)) { try shared.setConsent(.denied) }
        #expect(shared.consent == .denied)
        #expect(throws: ConsentError.notPersisted(.notOpen)) { try shared.setConsent(.granted) }
        shared.updateCommonProperties { $0 = ["plan": "free"] }
        // What changes them may ask the client.
        shared.updateCommonProperties { $0["plan"] = shared.commonProperties["plan"] == "free" ? "pro" : "none" }
        shared.updateUploads { $0.bulkSize = shared.uploads.bulkSize > 7 ? 7 : 1 }
        #expect(shared.identity.loginID == "second" && shared.identity.distinctID == "second" && shared.commonProperties == ["plan": "pro"])
        let deliveries = shared.deliveries()
        #expect(await shared.flush().failure == .notOpen)
        #expect(await shared.status().dropped == ["disabled": 1])

        shared.take(configuration)
        let id = try #require(shared.track("event"))
        #expect(shared.identity.loginID == "second" && shared.uploads.bulkSize == 7 && shared.isConfigured)
        #expect(await shared.flush().stored == 2, "with $identify")
        var told = deliveries.makeAsyncIterator()
        let status = await shared.status()
        #expect(status.stored == 2 && status.dropped["disabled"] == 1 && status.installID != nil)
        var seen = await told.next()
        while let next = seen, next != .stored(id) { seen = await told.next() }
        #expect(seen == .stored(id))
        await shared.shutdown(within: .zero)
    }

    @Test("without a configuration the shared client says so, warns once beside a client that is open, and no more once it has one (C28)")
    func missingConfigurationIsSaid() async throws {
        let log = RecordedLog()
        let shared = shared(logger: Logger(label: "test") { _ in log })
        #expect(shared.startFailure == .notBootstrapped)
        #expect(await shared.status().startFailure == .notBootstrapped)
        let other = try EventClient.start(configuration, clock: TestClock()) { ScriptedTransport() }
        for _ in 0..<3 { #expect(shared.track("event") == nil) }
        #expect(log.lines.count == 1 && log.lines[0].contains("EventClient.bootstrap"))
        await other.shutdown(within: .zero)
        // No configuration is not one: a later call may still give it (C23).
        shared.take(nil)
        #expect(shared.startFailure == .notBootstrapped && shared.track("event") == nil && log.lines.count == 1)
    }

    @Test("what the app has configured may ask for it while it opens, and is refused then; nobody waits for itself (R2)")
    func mayBeAskedForWithin() async throws {
        let first = try EventClient.start(configuration, clock: TestClock()) { ScriptedTransport() }
        try await first.trackDurably("waits")
        await first.shutdown(within: .zero)
        // That is told at the start.
        try Data("noise".utf8).write(to: URL(fileURLWithPath: directory.path("queue/identity.json")))
        let shared = shared()
        let asked = Locked<[EventID?]>([])
        var configuration = configuration
        configuration.logger = Logger(label: "test") { _ in
            AskingHandler {
                let id = shared.track("from the logger")
                asked.withLock { $0.append(id) }
            }
        }
        shared.take(configuration)
        #expect(asked.withLock { !$0.isEmpty && $0.allSatisfy { $0 == nil } } && shared.track("event") != nil)
        await shared.shutdown(within: .zero)
    }

    @Test(
        "a call without a configuration leaves the one that counts to another; after a shutdown that one says that it comes too late (C23)")
    func emptyCallUsesNothingUp() async throws {
        let log = RecordedLog()
        var configuration = configuration
        configuration.logger = Logger(label: "test") { _ in log }
        let (patient, ended) = (shared(), shared())
        patient.take(nil)
        patient.take(configuration)
        #expect(patient.track("event") != nil && log.lines.isEmpty)
        await patient.shutdown(within: .zero)
        await ended.shutdown(within: .zero)
        ended.take(configuration)
        #expect(ended.track("event") == nil && log.lines.count == 1 && log.lines[0].contains("was shut down before"))
    }

    @Test("a wait that is cancelled is let go of at once, however long it was to take (C23)")
    func cancelledWaitIsReleased() async throws {
        let released = AwaitedCount()
        final class Held: Sendable {
            let released: AwaitedCount
            init(_ released: AwaitedCount) { self.released = released }
            deinit { released.set(1) }
        }
        let wait = { [held = Held(released)] in SystemClock().schedule(after: .seconds(3_600)) { _ = held } }()
        wait.cancel()
        await released.reaches(1)
    }

    @Test("a second client of one process on one directory is warned of, while the first one works (R2)")
    func secondClientIsWarnedOf() async throws {
        let log = RecordedLog()
        var configuration = configuration
        configuration.logger = Logger(label: "test") { _ in log }
        func start() throws -> EventClient { try EventClient.start(configuration, clock: TestClock()) { ScriptedTransport() } }
        let first = try start()
        await first.shutdown(within: .zero)
        let second = try start()
        #expect(log.lines.isEmpty)
        let third = try start()
        #expect(log.lines.count == 1 && log.lines[0].contains("keep one for all"))
        for client in [second, third] { await client.shutdown(within: .zero) }
    }

    @Test("a client that could not open its queue tries again at once when the device is unlocked (R3)")
    func unlockedDeviceIsTried() async throws {
        let isLocked = Locked(true)
        let client = EventClient(configuration, clock: TestClock()) { configuration, hub, timers in
            if isLocked.withLock({ $0 }) { return .failure(.queueUnusable(StorageFailure(errno: EPERM))) }
            do throws(StartError) {
                return .success(try OpenClient.open(configuration, clock: TestClock(), hub: hub, timers: timers) { ScriptedTransport() })
            } catch {
                return .failure(error)
            }
        }
        #expect(client.startFailure != nil && client.track("event") == nil)
        isLocked.withLock { $0 = false }
        NotificationCenter.default.post(name: NSNotification.Name("UIApplicationProtectedDataDidBecomeAvailable"), object: nil)
        while client.startFailure != nil { await Task.yield() }
        #expect(client.track("event") != nil)
        await client.shutdown(within: .zero)
    }

    @Test("in a preview of Xcode's there is no configuration, which is logged")
    func previewsAreDisabled() {
        let log = RecordedLog()
        let logger = Logger(label: "test") { _ in log }
        #expect(EventClient.unlessInPreview(configuration, logger, environment: ["XCODE_RUNNING_FOR_PREVIEWS": "0"]) != nil)
        #expect(log.lines.isEmpty && EventClient.unlessInPreview(nil, logger, environment: ["XCODE_RUNNING_FOR_PREVIEWS": "1"]) == nil)
        #expect(EventClient.unlessInPreview(configuration, logger, environment: ["XCODE_RUNNING_FOR_PREVIEWS": "1"]) == nil)
        #expect(log.lines.count == 1)
    }

    /// Calls back whatever it is asked for.
    private struct AskingHandler: LogHandler {
        let asked: @Sendable () -> Void
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        init(_ asked: @escaping @Sendable () -> Void) { self.asked = asked }

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) { asked() }
    }

    @Test("who opts out before the queue is open has nothing told of them, nor of a session that crashed, and nothing sent (D16)")
    func optOutPrecedesOpening() async throws {
        let crashed = try EventClient.start(configuration, clock: TestClock()) { ScriptedTransport() }
        crashed.handle(.didBecomeActive)
        // The marker of its session is written behind the first commit.
        for _ in 0..<2 { try await crashed.writer.barrier() }
        try FileManager.default.copyItem(atPath: directory.path("queue"), toPath: directory.path("copy"))
        await crashed.shutdown(within: .zero)
        var configuration = configuration
        configuration.queue.directory = directory.url.appending(path: "copy")
        let shared = shared()
        shared.identify("anna")
        shared.handle(.didBecomeActive)
        #expect(throws: ConsentError.notPersisted(.notOpen)) { try shared.setConsent(.denied) }
        for index in 0..<2_000 { shared.updateCommonProperties { $0.merge(["n": index]) } }
        shared.take(configuration)
        #expect(shared.consent == .denied && shared.identity.loginID == "anna" && shared.commonProperties == ["n": 1_999])
        #expect(shared.track("event") == nil)
        try await shared.waitUntilStored()
        #expect(shared.file.counters.created == 1, "the crashed session's start")
        await shared.shutdown(within: .zero)
    }

    /// The process's own: the one test that touches it.
    @Test("the process's client is one object for ever; the first configuration holds, and it stays after its end (R1, R2)")
    func processHasOne() async throws {
        let shared = EventClient.shared
        #expect(shared.startFailure == .notBootstrapped && shared.track("early") == nil)
        EventClient.bootstrap(configuration)
        let id = try #require(shared.track("event"))
        var other = configuration
        other.queue.directory.append(path: "another")
        EventClient.bootstrap(other)
        #expect(EventClient.shared === shared && shared.track("event", id: id) != nil)
        #expect(!FileManager.default.fileExists(atPath: other.queue.directory.path))
        await shared.shutdown(within: .zero)
        #expect(EventClient.shared === shared && shared.track("late") == nil)
    }
}
