import HapaxModel

/// Remembers on disk that the app is in use, so that the next start can go on with its session, and report one that ended without `$AppEnd`.
///
/// Written when events have been stored, at most once a second: the last activity is known that precisely.
final class SessionMarker: Sendable {
    private struct State {
        /// The id of the session's `$AppStart`.
        var start: EventID?
        var distinctID = ""
        var lastWritten: Duration?
    }

    private let state = Locked(State())
    private let file: QueueFile
    private let clock: any ClientClock
    private let context: @Sendable () -> EventContext

    static let interval: Duration = .seconds(1)

    init(file: QueueFile, clock: any ClientClock, context: @escaping @Sendable () -> EventContext) {
        (self.file, self.clock, self.context) = (file, clock, context)
    }

    /// An id for the end of a session: the same one for the end that the app reported and for a recovered one, so that a crash between the two
    /// makes a duplicate and no second end.
    static func endID(_ start: EventID) -> EventID {
        EventID.derived(name: "$AppEnd", key: start.description)
    }

    func began(_ start: EventID, for distinctID: String) {
        state.withLock { $0 = State(start: start, distinctID: distinctID) }
    }

    /// - Returns: The start of the session that is over.
    func ended() -> EventID? {
        state.withLock { state in
            defer { state = State() }
            return state.start
        }
    }

    /// After a commit, on the writer's thread.
    func eventsStored() {
        let now = clock.monotonic
        let due: (start: EventID?, distinctID: String)? = state.withLock { state in
            if let last = state.lastWritten, now - last < Self.interval { return nil }
            state.lastWritten = now
            return (state.start, state.distinctID)
        }
        guard let due else { return }
        let context = context()
        guard due.start != nil || context.session != nil else { return }
        // One that cannot be written costs the precision of a recovered end, or that end; the events themselves are stored.
        try? file.save(
            QueueFile.SessionRow(
                lastActivity: context.session?.lastActivity ?? clock.unixMilliseconds, session: context.session, start: due.start,
                distinctID: due.distinctID, base: context.encodedBase.json))
    }

    /// Once the end is stored; a session that has begun since stays.
    func forget(_ start: EventID) {
        try? file.removeSession(start: start)
    }
}
