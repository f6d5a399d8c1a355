import Foundation
import HapaxClient
import HapaxModel

/// A real client for a test, with a queue in a temporary directory, a clock that the test moves, and a server in this process. It uploads only
/// when it is asked to (`EventClient.flush(within:)`). Make one for each test; any number work at the same time.
///
/// ```swift
/// let events = try TestEvents()
/// Checkout(events: events.client).pay(order)
/// #expect(try await events.first(named: "order_paid")["amount"] == 12.5)
/// ```
public final class TestEvents: Sendable {
    /// What the code under test is handed.
    public let client: EventClient
    /// What the client uploads to.
    public let server = TestServer()
    /// What the client takes for the time.
    public let clock = TestClock()
    private let stored = Locked(Stored())
    private let directory: URL

    private struct Stored {
        var events: [TrackedEvent] = []
        var waiters: [(number: Int, name: String, waiter: CheckedContinuation<TrackedEvent?, Never>)] = []
        var next = 0
    }

    /// No event was stored in time.
    public struct NotTracked: Error, CustomStringConvertible {
        /// What was waited for, and what came instead.
        public let description: String
    }

    /// How the app stands.
    public enum AppState: Sendable {
        /// It is shown.
        case active
        /// It is not shown any more.
        case background
        /// It is about to end.
        case terminated
    }

    /// - Parameter configure: Changes what the client is configured with. Its queue is in the temporary directory whatever that says, no event
    ///   gets automatic properties or a session (`Configuration.isApp`), and nothing is uploaded by itself, unless it is set here.
    /// - Throws: `StartError`.
    public init(configure: (inout EventClient.Configuration) -> Void = { _ in }) throws {
        directory = FileManager.default.temporaryDirectory.appending(
            path: "hapax-events-\(UUID().uuidString)", directoryHint: .isDirectory)
        var configuration = EventClient.Configuration(server: "http://127.0.0.1:1", writeKey: "test", queueDirectory: directory.path)
        configuration.uploads.interval = nil
        (configuration.automatic.properties, configuration.isApp) = (false, false)
        configure(&configuration)
        configuration.queue.directory = directory
        let stored = stored
        configuration.onStored = { bytes in
            guard let event = TrackedEvent(bytes) else { return }
            let waiters = stored.withLock { stored in
                stored.events.append(event)
                let waiters = stored.waiters.filter { $0.name == event.name }
                stored.waiters.removeAll { $0.name == event.name }
                return waiters
            }
            for waiter in waiters { waiter.waiter.resume(returning: event) }
        }
        let transport = server.transport
        client = try EventClient.start(configuration, clock: clock) { transport }
    }

    deinit {
        try? FileManager.default.removeItem(at: directory)
    }

    /// What was tracked and is sent, or would be, in order, once it is stored: neither what broke a limit (`EventClient.deadLetters`) nor what a
    /// denial of consent or a purge has deleted.
    public func all(named name: String? = nil) async -> [TrackedEvent] {
        await forgetDeleted()
        return stored.withLock { $0.events }.filter { name == nil || $0.name == name }
    }

    private func forgetDeleted() async {
        // While the disk refuses, events are in memory, and none is deleted.
        try? await client.open?.waitUntilStored()
        let before = stored.withLock { Set($0.events.map(\.id)) }
        // One that is sent meanwhile leaves the file behind its request. A file that nobody can read, as behind a shutdown, has deleted nothing.
        guard let waiting = try? client.open?.waitingIDs() else { return }
        let deleted = before.subtracting(waiting).subtracting(server.transport.batches.flatMap(\.ids))
        stored.withLock { $0.events.removeAll { deleted.contains($0.id) } }
    }

    /// The first event of a name: one that was tracked, or the next one that is.
    ///
    /// - Parameters:
    ///   - name: Whole.
    ///   - limit: Of real time, whatever ``clock`` says.
    /// - Throws: ``NotTracked``.
    public func first(named name: String, within limit: Duration = .seconds(1)) async throws -> TrackedEvent {
        await forgetDeleted()
        let number = stored.withLock { stored in
            stored.next += 1
            return stored.next
        }
        let timer = Task {
            try await Task.sleep(for: limit)
            giveUp(number)
        }
        defer { timer.cancel() }
        let event = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let found = stored.withLock { stored -> TrackedEvent?? in
                    if let event = stored.events.first(where: { $0.name == name }) { return event }
                    if Task.isCancelled { return .some(nil) }
                    stored.waiters.append((number, name, continuation))
                    return nil
                }
                if let found { continuation.resume(returning: found) }
            }
        } onCancel: {
            giveUp(number)
        }
        if let event { return event }
        let names = stored.withLock { $0.events.map(\.name) }
        throw NotTracked(
            description: "no event \(name) within \(limit); there were: \(names.isEmpty ? "none" : names.joined(separator: ", "))")
    }

    private func giveUp(_ number: Int) {
        let waiter = stored.withLock { stored -> CheckedContinuation<TrackedEvent?, Never>? in
            guard let index = stored.waiters.firstIndex(where: { $0.number == number }) else { return nil }
            return stored.waiters.remove(at: index).waiter
        }
        waiter?.resume(returning: nil)
    }

    /// Forgets what was tracked until now, once it is stored; the client's queue keeps it.
    public func clear() async {
        _ = await all()
        stored.withLock { $0.events = [] }
    }

    /// Tells the client how the app stands, as the system would.
    public func become(_ state: AppState) async {
        switch state {
        case .active: client.handle(.didBecomeActive)
        case .background:
            client.handle(.willResignActive)
            client.handle(.didEnterBackground)
        case .terminated: client.handle(.willTerminate)
        }
        _ = await all()
    }
}

/// Makes `EventClient.shared` this test's client, for the current task and its children. `Task.detached`, Dispatch and notifications are not
/// children: code that uses them has to be handed its `any EventTracking`.
public func withShared<Result>(
    _ events: TestEvents, isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Result
) async rethrows -> Result {
    try await EventClient.$sharedOfTask.withValue(events.client, operation: body, isolation: isolation)
}

/// The same for code that does not wait.
public func withShared<Result>(_ events: TestEvents, _ body: () throws -> Result) rethrows -> Result {
    try EventClient.$sharedOfTask.withValue(events.client, operation: body)
}
