import Foundation
import HapaxModel

extension EventClient {
    private static let ofTheProcess = SharedClient()

    /// The process's shared client; nil until ``startShared(_:)`` has started it.
    ///
    /// Optional: a client that is handed to those who need it serves them as well, and can be replaced in their tests.
    public static var shared: EventClient? { ofTheProcess.client }

    /// Starts the process's shared client, once: later calls return that one and leave their configuration aside (R2).
    ///
    /// Calls that come together wait until the first has made it. The client stays the shared one after its ``shutdown(within:)``; it then refuses
    /// events.
    ///
    /// - Throws: ``StartError``; then nothing has been changed, there is no shared client, and the next call may start it. Also
    ///   ``StartError/isStarting`` to code that the start itself runs before there is a client, as the app's metrics factory.
    @discardableResult
    public static func startShared(_ configuration: Configuration) throws(StartError) -> EventClient {
        try ofTheProcess.start { recovery throws(StartError) in try start(configuration, recovery: recovery) }
    }
}

/// A client that is started once, whoever comes first.
final class SharedClient: Sendable {
    /// Held while a client starts, which waits for the disk.
    private let starting = Locked(())
    /// Held for moments only: asking for the client does not wait for its start.
    private let started = Locked<EventClient?>(nil)
    /// There, and still asking the app's code, which may wait for a thread that wants to start the client as well.
    private let made = Locked<EventClient?>(nil)
    /// For the app's own code that a client asks while it starts: nobody else may track before the last session's end has been tracked.
    @TaskLocal private static var beingStarted: EventClient?
    /// The thread that is within a start.
    private let starter = Locked<ObjectIdentifier?>(nil)

    var client: EventClient? { started.withLock { $0 } ?? Self.beingStarted }

    /// - Parameter make: Asks the app's code only where it is told to.
    func start(_ make: (EventClient.Recovery) throws(StartError) -> EventClient) throws(StartError) -> EventClient {
        if let client = client ?? made.withLock({ $0 }) { return client }
        // It would wait for itself.
        let thread = ObjectIdentifier(Thread.current)
        if starter.withLock({ $0 == thread }) { throw .isStarting }
        return try starting.withLock { (_: inout Void) throws(StartError) in
            if let client { return client }
            starter.withLock { $0 = thread }
            defer { starter.withLock { $0 = nil } }
            let client = try make { client, recover in
                made.withLock { $0 = client }
                Self.$beingStarted.withValue(client) { recover() }
            }
            started.withLock { $0 = client }
            made.withLock { $0 = nil }
            return client
        }
    }
}
