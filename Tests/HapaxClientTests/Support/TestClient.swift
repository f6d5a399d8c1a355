import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport

@testable import HapaxClient

/// A client on a real queue file with a manual clock and a scripted server; it sends only when asked unless `configure` says otherwise.
struct TestClient {
    let directory: TemporaryDirectory
    let clock: TestClock
    let transport: ScriptedTransport
    let client: EventClient

    init(
        directory: TemporaryDirectory = TemporaryDirectory(), clock: TestClock = TestClock(),
        transport: ScriptedTransport = ScriptedTransport(), configure: (inout EventClient.Configuration) -> Void = { _ in }
    ) throws {
        self.directory = directory
        self.clock = clock
        self.transport = transport
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: directory.path + "/queue")
        configuration.uploads.interval = nil
        // Under a clock that stands still every answer comes at once, and a batch would grow in tests of something else.
        configuration.batchSizeGrows = false
        configuration.automatic.properties = false
        // For tests that look at them.
        configuration.queue.keepsDamagedFiles = true
        configuration.distinctID = "somebody"
        configure(&configuration)
        client = try EventClient.start(configuration, clock: clock) { transport }
    }

    /// As a disk that can be read and not written: every commit fails with SQLITE_READONLY.
    func refuseCommits(_ refuse: Bool) throws {
        try client.file.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA query_only = \(refuse ? 1 : 0)") }
    }

    /// Returns once the writer does nothing more: until it is signalled, what is tracked stays in memory.
    func holdWriter() async throws -> DispatchSemaphore {
        let (isHeld, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        client.writer.whenStored {
            isHeld.signal()
            mayGoOn.wait()
        }
        try await blocking { isHeld.wait() }
        return mayGoOn
    }

    /// Tracks events named by number and returns their ids once they are stored.
    @discardableResult
    func track(_ names: some Sequence<Int>) async throws -> [EventID] {
        let ids = names.compactMap { client.track("event \($0)") }
        try await client.writer.barrier()
        return ids
    }
}

/// An enricher.
func adding(_ properties: Properties) -> EventClient.Enricher {
    { draft in
        var draft = draft
        draft.add(properties)
        return draft
    }
}

extension TestClient {
    /// Returns once `$AppStart` is stored: while actions of the signal before are still performed, nobody waits for this one's (D7).
    func becomeActive() async {
        let before = client.file.counters.created
        client.handle(.didBecomeActive)
        while client.file.counters.created == before { await Task.yield() }
    }
}

extension EventClient.Configuration {
    /// Entering the background uploads; nothing else does by itself.
    mutating func uploadOnlyInBackground() {
        uploads.immediateEvents = []
        uploads.bulkSize = .max
        uploads.interval = Self.farAway
    }

    static let farAway: Duration = .seconds(1_000_000)
}

extension EventClient.Status {
    /// I12.
    var isBalanced: Bool { created == Int64(depth) + stored + duplicates + deadLettered + removed }
}

extension QueueFile {
    /// The first file of a directory, without a client, which would do more beside.
    static func open(
        _ path: String, durability: Durability = .process, quota: QueueQuota = .unlimited
    ) throws -> QueueFile {
        try QueueFile.first(
            of: .derived(name: "destination", key: "1"), in: QueueDirectory(path: path), install: .derived(name: "install", key: "1"),
            durability: durability, quota: quota, keepsDamagedFiles: true)
    }
}

extension Delivery {
    /// Returns when no pass is under way that nobody waits for.
    func restBegins() async {
        while let pass { await pass.value }
    }
}

/// The parts of a client whose queue is open.
extension EventClient {
    var parts: OpenClient {
        guard let open else { preconditionFailure("the queue is not open") }
        return open
    }
    var file: QueueFile { parts.file }
    var writer: QueueWriter { parts.writer }
    var delivery: Delivery { parts.delivery }
    var leftovers: Leftovers { parts.leftovers }
    var scheduler: UploadScheduler { parts.scheduler }
    var lifecycle: AppLifecycle { parts.lifecycle }
    var gate: RequestGate { parts.gate }

    func waitUntilStored() async throws { try await parts.waitUntilStored() }
    func flushNextBatch() async -> BatchFlush { await parts.flushNextBatch() }
}
