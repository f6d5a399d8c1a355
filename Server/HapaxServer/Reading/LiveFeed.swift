import HapaxModel

/// What has just happened at this server, for the live view: rows for each stream, and the latest refusals of each project.
///
/// A value without clock, lock or I/O; ``Live`` owns it. Its size is bounded, whatever is received.
struct LiveFeed {
    typealias StreamID = Int

    /// One event, and what became of it.
    struct Row {
        var outcome: Receipt.Outcome
        /// Unescaped UTF-8.
        var name: ArraySlice<UInt8>
        /// Makes one JSON object; called only if a stream has room for the row.
        var json: () -> [UInt8]
    }

    /// An event, or a whole request, that was refused for good.
    struct Refusal: Sendable {
        var at: Timestamp
        /// Counts the refusals of this server, from 1.
        var number: UInt64 = 0
        /// A reason of ``EventProblem``, an outcome, or a code of ``RequestProblem``.
        var reason: String
        var detail: String
        var isRequest = false
        /// ``SenderFormat/via``; nil for what was sent as ours.
        var via: String?
        var eventID: EventID?
        var name: String?
        /// The event's first bytes.
        var sample: [UInt8] = []
    }

    /// Which rows a stream wants.
    struct Filter: Sendable {
        /// Unescaped UTF-8.
        var name: [UInt8]?
        var outcome: Receipt.Outcome?

        func keeps(_ row: Row) -> Bool {
            (outcome == nil || outcome == row.outcome) && (name == nil || name?.elementsEqual(row.name) == true)
        }

        func keeps(_ refusal: Refusal) -> Bool {
            (name == nil || refusal.name.map { Array($0.utf8) } == name)
                && (outcome == nil || outcome == Receipt.Outcome(rawValue: refusal.reason) ?? .rejected)
        }
    }

    /// How many events of a project were answered, by what became of them.
    struct Counts: Equatable, Sendable {
        var received = 0
        var stored = 0
        var duplicates = 0
        var refused = 0

        static func - (left: Counts, right: Counts) -> Counts {
            Counts(
                received: left.received - right.received, stored: left.stored - right.stored,
                duplicates: left.duplicates - right.duplicates,
                refused: left.refused - right.refused)
        }
    }

    enum Message: Sendable {
        case event([UInt8])
        case refusal(Refusal)
        /// The counts of the last second.
        case rate(Counts)
        /// Rows that were left out in the last second.
        case missed(Int)
    }

    private struct Stream {
        var filter: Filter
        var messages: [Message] = []
        /// Rows since ``countedAt``.
        var rows = 0
        var missed = 0
        var counts: Counts
        var countedAt: ContinuousClock.Instant

        mutating func show(_ wanted: [Row]) {
            for row in wanted where filter.keeps(row) { show(.event(rows < ServerLimits.liveRowsPerSecond ? row.json() : [])) }
        }

        mutating func show(_ message: Message) {
            if rows < ServerLimits.liveRowsPerSecond {
                rows += 1
                messages.append(message)
            } else {
                missed += 1
            }
        }
    }

    private struct Project {
        var refusals: [Refusal] = []
        /// Since when none of the refusals is missing.
        var since: Timestamp
        var refusedAt: ContinuousClock.Instant
        var counts = Counts()
        var streams: [StreamID: Stream] = [:]
    }

    /// Since when no refusal is missing of any project that is not in ``projects``.
    private var since: Timestamp
    private var projects: [Int32: Project] = [:]
    private var nextID = 0
    private var refusalCount: UInt64 = 0
    private(set) var isStopping = false
    /// Requests with an unknown key.
    private(set) var unknownKeys = 0

    init(startedAt: Timestamp) {
        since = startedAt
    }

    // MARK: - What happens

    /// Whether a stream of the project is open.
    func isWatched(_ project: Int32) -> Bool { projects[project]?.streams.isEmpty == false }

    mutating func answered(_ project: Int32, _ counts: Counts, rows: [Row]) {
        guard var state = projects[project] else { return }
        state.counts.received += counts.received
        state.counts.stored += counts.stored
        state.counts.duplicates += counts.duplicates
        state.counts.refused += counts.refused
        for id in state.streams.keys { state.streams[id]?.show(rows) }
        projects[project] = state
    }

    mutating func refused(_ project: Int32, _ refusal: Refusal, _ now: ContinuousClock.Instant) {
        makeRoom(for: project)
        var state = projects[project] ?? Project(since: since, refusedAt: now)
        state.refusedAt = now
        refusalCount += 1
        var refusal = refusal
        refusal.number = refusalCount
        state.refusals.append(refusal)
        if state.refusals.count > ServerLimits.refusals {
            state.refusals.removeFirst()
            state.since = state.refusals[0].at
        }
        for (id, stream) in state.streams where stream.filter.keeps(refusal) { state.streams[id]?.show(.refusal(refusal)) }
        projects[project] = state
    }

    /// A user of the project has been erased, whom a refusal may show.
    mutating func forgetRefusals(of project: Int32, _ now: Timestamp) {
        guard projects[project] != nil else { return }
        projects[project]?.refusals = []
        projects[project]?.since = now
    }

    mutating func keyWasUnknown() {
        unknownKeys += 1
    }

    private mutating func makeRoom(for project: Int32) {
        guard projects[project] == nil, projects.count >= ServerLimits.liveProjects else { return }
        let oldest = projects.filter { $0.value.streams.isEmpty }.min { $0.value.refusedAt < $1.value.refusedAt }
        guard let oldest else { return }
        projects[oldest.key] = nil
        // The number of the forgotten project is not kept, so the new instant holds for all projects that are not in the table.
        if let last = oldest.value.refusals.last { since = max(since, last.at) }
    }

    // MARK: - Questions and streams

    /// The refusals that are kept, newest first, and since when none is missing.
    func refusals(of project: Int32) -> (latest: [Refusal], since: Timestamp) {
        guard let state = projects[project] else { return ([], since) }
        return (state.refusals.reversed(), state.since)
    }

    /// - Returns: nil if the project has ``ServerLimits/liveStreams`` streams already.
    mutating func subscribe(_ project: Int32, _ filter: Filter, _ now: ContinuousClock.Instant) -> StreamID? {
        makeRoom(for: project)
        var state = projects[project] ?? Project(since: since, refusedAt: now)
        guard state.streams.count < ServerLimits.liveStreams else { return nil }
        nextID += 1
        state.streams[nextID] = Stream(filter: filter, counts: state.counts, countedAt: now)
        projects[project] = state
        return nextID
    }

    mutating func unsubscribe(_ project: Int32, _ id: StreamID) {
        projects[project]?.streams[id] = nil
    }

    /// A stream's messages since the last call, and once a second its rate; nil when the stream ends.
    mutating func take(_ project: Int32, _ id: StreamID, _ now: ContinuousClock.Instant) -> [Message]? {
        guard !isStopping, let state = projects[project], var stream = state.streams[id] else { return nil }
        var messages = stream.messages
        stream.messages = []
        if stream.countedAt + .seconds(1) <= now {
            if stream.missed > 0 { messages.append(.missed(stream.missed)) }
            messages.append(.rate(state.counts - stream.counts))
            (stream.rows, stream.missed, stream.counts, stream.countedAt) = (0, 0, state.counts, now)
        }
        projects[project]?.streams[id] = stream
        return messages
    }

    mutating func stop() {
        isStopping = true
    }
}
