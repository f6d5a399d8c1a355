import HapaxModel

/// What to send next of one file, and what an answer means for it. Knows counts and sequences, never events.
///
/// A batch that the server refuses as such is halved down to the event that is to blame, which is *held*: it stays out of batches while the
/// rest goes on. It becomes a dead letter only when the server accepts something else after it refused the event alone. If there was a rest in
/// between, or what was accepted is of another file, the server may have been mended, and gets to see the event once more: it is a dead letter if
/// it is refused again.
/// A server that refuses everything costs no event.
///
/// Something between client and server that refuses a request suspects nobody: see ``blocked(_:sendable:)``.
struct DeliveryStateMachine: Sendable {
    /// How often a server is asked again that refuses for a reason which time alone does not change.
    static let probeInterval: Duration = .seconds(300)

    /// How long a suspicion outlasts the last request, where steps are asked for one by one.
    static let suspicionTime: Duration = .seconds(60)

    /// So many events refused in one pass, each alone: then it may be the server.
    static let maximumSuspects = 16

    /// So many events are left out of batches because the server asked to send them again.
    static let maximumAside = 1_000

    /// The same for those of requests that something in between refused: of one walk of halving.
    static let maximumUndecided = 2 * EventLimits.maximumEventsPerBatch

    /// What one request is to hold.
    enum Plan: Hashable {
        case batch(BatchKind)
        /// Everything has been sent.
        case drained
        /// Nothing is left but held events, and it is not time yet to send one of them again.
        case onlyHeld
    }

    enum Next: Hashable {
        case more
        /// The event is held; then there is more.
        case hold
        /// It was refused before the server accepted others, and again behind that: it is a dead letter.
        case bury
        /// It is held as well, and nothing more is sent for ``probeInterval``.
        case holdAndPause
    }

    /// What follows when something between client and server has refused a request.
    enum Detour: Hashable {
        case more
        /// Nothing is left but events that do not pass; others that come are sent.
        case onlyBlocked
        /// Nothing passes.
        case pause
    }

    /// What to do with held events once the server has accepted something.
    enum Verdict: Hashable {
        case none
        /// These are dead letters, with the codes they were refused with; all others are tried again.
        case bury([Int64: RequestProblem.Code])
    }

    /// Events that the server asked to send again. They wait until all others have been sent, and nobody suspects them.
    private var aside: Set<Int64> = []
    private let maximumLimit: Int
    private var limit: Int
    /// Refused alone since the last rest.
    private var suspects: [Int64: RequestProblem.Code] = [:]
    /// Were held, and are tried again since the server has accepted others in this pass.
    private var tried: Set<Int64> = []
    /// How much the server had accepted, of all files, when it last refused an event of this one alone.
    private var acceptedAtRefusal = 0
    /// Something between client and server does not let these pass, and lets others: one of them is asked again with each pause.
    private var blocked: Set<Int64> = []
    /// The one that was asked again last, and when.
    private var probed = (sequence: Int64(0), at: Duration?.none)
    /// These were in requests that were refused so, together with others: they wait until those have passed.
    private var undecided: Set<Int64> = []
    /// Requests refused in a row between client and server.
    private var refusals = 0
    /// Events of the first of them.
    private var walk = 0
    /// Whether this pass has asked for one of these.
    private var isProbed = false
    private var lastAccepted: Duration?
    /// Compressed, the request was refused; whether the same one passes uncompressed is not known yet.
    private(set) var doubtsCompression = false
    private var walksPlain = false
    private var lastRequest: Duration?
    private var lastProbe: Duration?

    init(batchSize: Int) {
        maximumLimit = max(batchSize, 1)
        limit = maximumLimit
    }

    /// - Parameters:
    ///   - isManual: Whether somebody asked: then a held event is tried again at once.
    ///   - accepted: Batches of any file that the server has accepted so far.
    ///   - now: A monotonic clock's reading.
    mutating func plan(_ counters: QueueCounters, isManual: Bool, accepted: Int = 0, now: Duration) -> Plan {
        if let lastRequest, now - lastRequest > Self.suspicionTime { rested() }
        // Some have been removed.
        if counters.sendable < blocked.count { blocked = [] }
        if counters.sendable <= aside.count + undecided.count + blocked.count {
            if !undecided.isEmpty { limit = min(limit, max(undecided.count / 2, 1)) }
            (aside, undecided) = ([], [])
        }
        if counters.sendable > blocked.count {
            return .batch(.oldest(limit: limit, besides: aside.union(undecided).union(blocked)))
        }
        if let probe = nextProbe(isManual: isManual, now: now) {
            return .batch(.oldest(limit: 1, besides: blocked.subtracting([probe])))
        }
        if counters.unreported > 0 { return .batch(.none) }
        if !blocked.isEmpty { isProbed = false }
        guard counters.held > 0 else { return blocked.isEmpty ? .drained : .onlyHeld }
        let isProbeDue = isManual || lastProbe.map { now - $0 >= Self.probeInterval } ?? true
        guard accepted > acceptedAtRefusal || (suspects.isEmpty && isProbeDue) else { return .onlyHeld }
        lastProbe = now
        return .batch(.held)
    }

    mutating func requested(now: Duration) { lastRequest = now }

    /// Whether the next request is to go uncompressed: what is said of an event must not be a proxy's trouble with gzip.
    func goesPlain(_ counters: QueueCounters) -> Bool { walksPlain || counters.held > 0 || !tried.isEmpty }

    /// A compressed request was refused: the same one is sent uncompressed, and so are those that look for the event.
    mutating func refusedCompressed() { (doubtsCompression, walksPlain) = (true, true) }

    // MARK: - Between client and server

    /// Something between client and server has refused a request, which says nothing about any event.
    ///
    /// What it held waits, and half as many others are tried at once; what waits is halved once those have passed. So no event is in each of these
    /// requests, most events pass before the one is found that does not, and where nothing passes that ends after log2 N + 1 requests, three at least
    /// (I16). The one that does not pass alone is *blocked*: it stays out of batches.
    ///
    /// - Parameter sendable: Events that could be sent, these included.
    mutating func blocked(_ sequences: [Int64], sendable: Int64) -> Detour {
        doubtsCompression = false
        let isAlone = sequences.count == 1
        if isAlone, blocked.contains(sequences[0]) { return onlyBlocked() }
        refusals += 1
        if refusals == 1 { walk = sequences.count }
        (limit, walksPlain) = (max(sequences.count / 2, 1), true)
        let passesOthers = lastAccepted.map { (lastRequest ?? $0) - $0 < Self.probeInterval } ?? false
        if isAlone, passesOthers {
            blocked.insert(sequences[0])
            (isProbed, probed.at) = (true, lastRequest)
            if sendable <= blocked.count { return onlyBlocked() }
        } else {
            undecided = undecided.count + sequences.count > Self.maximumUndecided ? Set(sequences) : undecided.union(sequences)
        }
        let most = Int.bitWidth - (passesOthers ? maximumLimit : walk).leadingZeroBitCount
        if refusals < max(most, 3), sendable > 1 { return .more }
        // The next attempt begins with others.
        (undecided, limit) = (Set(sequences), maximumLimit)
        return .pause
    }

    /// The pass ends with this.
    private mutating func onlyBlocked() -> Detour {
        isProbed = false
        return .onlyBlocked
    }

    var blocksAny: Bool { !blocked.isEmpty }

    /// Each in its turn.
    private mutating func nextProbe(isManual: Bool, now: Duration) -> Int64? {
        guard isManual ? !isProbed : probed.at.map({ now - $0 >= Self.probeInterval }) ?? true else { return nil }
        guard let next = blocked.filter({ $0 > probed.sequence }).min() ?? blocked.min() else { return nil }
        (probed, isProbed) = ((next, now), true)
        return next
    }

    /// - Parameters:
    ///   - count: Events of the batch.
    ///   - first: The sequence of its first.
    ///   - wasHeld: Whether it has been refused alone before.
    ///   - accepted: Batches of any file that the server has accepted so far.
    mutating func refused(count: Int, first: Int64, _ code: RequestProblem.Code, wasHeld: Bool = false, accepted: Int = 0) -> Next {
        doubtsCompression = false
        limit = max(count / 2, 1)
        guard count <= 1 else { return .more }
        if tried.remove(first) != nil || (wasHeld && accepted > acceptedAtRefusal) { return .bury }
        acceptedAtRefusal = accepted
        suspects[first] = code
        return suspects.count >= Self.maximumSuspects ? .holdAndPause : .hold
    }

    /// - Parameter accepted: How many events of the batch the server has settled. Without any it has accepted nothing.
    mutating func accepted(_ accepted: Int) -> Verdict {
        (doubtsCompression, walksPlain) = (false, false)
        guard accepted > 0 else { return .none }
        (refusals, lastAccepted) = (0, lastRequest)
        limit = min(limit * 2, maximumLimit)
        defer { suspects = [:] }
        return .bury(suspects)
    }

    /// The server asks to send these again.
    mutating func kept(_ sequences: [Int64]) {
        // So many are no exception: they come again in their order.
        if aside.count + sequences.count > Self.maximumAside { aside = [] } else { aside.formUnion(sequences) }
    }

    /// These have passed. If one of them was blocked before, all of those are tried again.
    mutating func passed(_ sequences: Set<Int64>) {
        if !blocked.isDisjoint(with: sequences) { blocked = [] }
    }

    /// All others up to here have been sent: what was left out of batches has its turn.
    ///
    /// - Returns: Whether that is anything.
    mutating func takeBack(upTo sequence: Int64) -> Bool {
        let before = aside.count + undecided.count
        (aside, undecided) = (aside.filter { $0 > sequence }, undecided.filter { $0 > sequence })
        return aside.count + undecided.count < before
    }

    /// These were held, and are tried again.
    mutating func released(_ sequences: [Int64]) { tried.formUnion(sequences) }

    /// The pass is over, or what was refused waits no more: what the server accepts from now on says nothing about what it refused before.
    mutating func rested() {
        (suspects, tried, refusals) = ([:], [], 0)
        (doubtsCompression, walksPlain, isProbed) = (false, false, false)
    }
}
