import HapaxModel

/// What to send next of one file, and what an answer means for it. Knows counts and sequences, never events.
///
/// A batch that the server refuses as such is halved down to the event that is to blame, which is *held*: it stays out of batches while the
/// rest goes on. It becomes a dead letter only when the server accepts something else after it refused the event alone. If there was a rest in
/// between, or what was accepted is of another file, the server may have been mended, and gets to see the event once more: it is a dead letter if
/// it is refused again.
/// A server that refuses everything costs no event.
struct DeliveryStateMachine: Sendable {
    /// How often a server is asked again that refuses for a reason which time alone does not change.
    static let probeInterval: Duration = .seconds(300)

    /// How long a suspicion outlasts the last request, where steps are asked for one by one.
    static let suspicionTime: Duration = .seconds(60)

    /// So many events refused in one pass, each alone: then it may be the server.
    static let maximumSuspects = 16

    /// So many events are left out of batches because the server asked to send them again.
    static let maximumAside = 1_000

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
        if counters.sendable <= aside.count { aside = [] }
        if counters.sendable > 0 { return .batch(.oldest(limit: limit, besides: aside)) }
        if counters.unreported > 0 { return .batch(.none) }
        guard counters.held > 0 else { return .drained }
        let isProbeDue = isManual || lastProbe.map { now - $0 >= Self.probeInterval } ?? true
        guard accepted > acceptedAtRefusal || (suspects.isEmpty && isProbeDue) else { return .onlyHeld }
        lastProbe = now
        return .batch(.held)
    }

    mutating func requested(now: Duration) { lastRequest = now }

    /// - Parameters:
    ///   - count: Events of the batch.
    ///   - first: The sequence of its first.
    ///   - wasHeld: Whether it has been refused alone before.
    ///   - accepted: Batches of any file that the server has accepted so far.
    mutating func refused(count: Int, first: Int64, _ code: RequestProblem.Code, wasHeld: Bool = false, accepted: Int = 0) -> Next {
        limit = max(count / 2, 1)
        guard count <= 1 else { return .more }
        if tried.remove(first) != nil || (wasHeld && accepted > acceptedAtRefusal) { return .bury }
        acceptedAtRefusal = accepted
        suspects[first] = code
        return suspects.count >= Self.maximumSuspects ? .holdAndPause : .hold
    }

    /// - Parameter accepted: How many events of the batch the server has settled. Without any it has accepted nothing.
    mutating func accepted(_ accepted: Int) -> Verdict {
        guard accepted > 0 else { return .none }
        limit = min(limit * 2, maximumLimit)
        defer { suspects = [:] }
        return .bury(suspects)
    }

    /// The server asks to send these again.
    mutating func kept(_ sequences: [Int64]) {
        // So many are no exception: they come again in their order.
        if aside.count + sequences.count > Self.maximumAside { aside = [] } else { aside.formUnion(sequences) }
    }

    /// All others up to here have been sent: what was left out of batches has its turn.
    ///
    /// - Returns: Whether that is anything.
    mutating func takeBack(upTo sequence: Int64) -> Bool {
        let before = aside.count
        aside = aside.filter { $0 > sequence }
        return aside.count < before
    }

    /// These were held, and are tried again.
    mutating func released(_ sequences: [Int64]) { tried.formUnion(sequences) }

    /// The pass is over, or what was refused waits no more: what the server accepts from now on says nothing about what it refused before.
    mutating func rested() { (suspects, tried) = ([:], []) }
}
