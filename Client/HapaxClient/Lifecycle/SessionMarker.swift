import HapaxModel

/// Remembers on disk that the app is in use, so that the next start can tell of a session that ended without `$AppEnd`.
///
/// Written when events have been stored, at most once a second: the last activity is known that precisely.
final class SessionMarker: Sendable {
    private struct State {
        /// The id of the session's `$AppStart`.
        var start: EventID?
        var lastWritten: Duration?
    }

    private let state = Locked(State())
    private let queue: EventQueue
    private let clock: any ClientClock

    static let interval: Duration = .seconds(1)

    init(queue: EventQueue, clock: any ClientClock) {
        self.queue = queue
        self.clock = clock
    }

    /// An id for the end of a session: the same one for the end that the app told and for a recovered one, so that a crash between the two
    /// makes a duplicate and no second end.
    static func endID(_ start: EventID) -> EventID {
        EventID.derived(name: "$AppEnd", key: start.description)
    }

    func began(_ start: EventID) {
        state.withLock { $0 = State(start: start) }
    }

    /// - Returns: The start of the session that is over.
    func ended() -> EventID? {
        state.withLock { state in
            defer { state = State() }
            return state.start
        }
    }

    /// After a commit, on the drainer's thread.
    func eventsStored() {
        let now = clock.monotonic
        let due: EventID? = state.withLock { state in
            if let last = state.lastWritten, now - last < Self.interval { return nil }
            state.lastWritten = now
            return state.start
        }
        // One that cannot be written costs the precision of a recovered end, or that end; the events themselves are stored.
        if let due { try? queue.save(EventQueue.OpenSession(start: due, lastActivity: clock.unixMilliseconds)) }
    }

    /// For a new file of the queue, in which nothing has been written.
    var open: EventQueue.OpenSession? {
        state.withLock { $0.start }.map { EventQueue.OpenSession(start: $0, lastActivity: clock.unixMilliseconds) }
    }

    /// Once the end is stored; a session that has begun since stays.
    func forget(_ start: EventID) {
        try? queue.removeSession(start: start)
    }
}
