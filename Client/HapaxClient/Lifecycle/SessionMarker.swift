import HapaxModel

/// Remembers on disk that the app is in use, so that the next start can go on with its session, and report one that ended without `$AppEnd`.
///
/// Written when events have been stored, at most once a second: the last activity is known that precisely. A session stays on disk until the
/// commit of its `$AppEnd`, which takes it away: a crash in between is followed by the same end.
final class SessionMarker: Sendable {
    private struct State {
        /// The id of the session's `$AppStart`.
        var start: EventID?
        var distinctID = ""
        /// Starts of sessions that are over, and whose ends are not stored yet.
        var ending: [EventID] = []
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

    /// An id for the end of a session, the same one for the end that the app reported and for a recovered one. It has the time of its start and is
    /// no derived id: a project may refuse those from an app's key.
    static func endID(_ start: EventID) -> EventID {
        EventID(high: start.high, low: EventID.derived(name: AutomaticEvent.appEnd.rawValue, key: start.description).low) ?? start
    }

    func began(_ start: EventID, for distinctID: String) {
        state.withLock { ($0.start, $0.distinctID, $0.lastWritten) = (start, distinctID, nil) }
    }

    /// The app's session is over, and its end is to be tracked: call ``endWasRefused(_:)`` if it is not taken.
    ///
    /// - Returns: Its start; nil if there is none.
    func ended() -> EventID? {
        state.withLock { state in
            guard let start = state.start else { return nil }
            state.ending.append(start)
            (state.start, state.lastWritten) = (nil, nil)
            return start
        }
    }

    /// The same for the session of an earlier run.
    func ended(_ start: EventID) {
        state.withLock { $0.ending.append(start) }
    }

    /// Of a session whose end is refused there is none. On the writer's thread.
    func endWasRefused(_ start: EventID) {
        stored([start])
        // What cannot be forgotten is ended by the next start.
        try? file.removeSession(start: start)
    }

    /// The user has denied consent: of what was deleted there is no end.
    func forget() {
        state.withLock { $0 = State() }
    }

    /// From now on events belong to another session.
    func changed() {
        state.withLock { $0.lastWritten = nil }
    }

    /// Those that are over once these events are stored.
    func ends(in events: [PreparedEvent]) -> [EventID] {
        let ending = state.withLock { $0.ending }
        guard !ending.isEmpty else { return [] }
        let ids = Set(events.map(\.id))
        return ending.filter { ids.contains(Self.endID($0)) }
    }

    /// These have been stored, and their sessions have left the disk.
    func stored(_ ends: [EventID]) {
        if !ends.isEmpty { state.withLock { $0.ending.removeAll(where: ends.contains) } }
    }

    /// After a commit, on the writer's thread.
    func eventsStored() {
        let now = clock.monotonic
        let due: (start: EventID?, distinctID: String)? = state.withLock { state in
            // What is on disk is about the session that ends, and about nobody who comes after it.
            guard state.ending.isEmpty else { return nil }
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
}
