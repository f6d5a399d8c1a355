/// What to do next with the queue: read, send, settle, rest. Knows counts, never events.
///
/// One batch is in flight at most (R9), every failure leads to a rest (D11), and only ``Action/settle`` and ``Action/condemn`` ever lead
/// to a removal (D12). A batch that the server refuses as such is halved down to the event that is to blame, a *suspect*. A suspect is
/// condemned to the dead letters only if the server has accepted another batch since the first refusal: to find out, the events behind
/// it are tried one by one. A server that refuses everything therefore costs no event.
struct DeliveryStateMachine: Sendable {
    enum Action: Hashable {
        case none
        /// Read the oldest events after the first `skipping`.
        case read(limit: Int, skipping: Int)
        case send
        /// Record the receipt's verdicts.
        case settle
        /// Move the suspects to the dead letters.
        case condemn
        case rest(Rest)
    }

    enum Rest: Hashable {
        /// The queue is empty.
        case drained
        /// Whoever asked for the pass does not want another request now; everything stays.
        case held
        /// Try again by itself after a backoff; call ``waitEnded()`` then.
        case backoff(failures: Int, retryAfter: Duration?)
        /// Try again after ``probeInterval``; call ``waitEnded()`` then.
        case paused
        case stopped
    }

    /// What an attempt came to.
    enum Answer: Hashable {
        case accepted
        case batchRefused
        case tryLater(retryAfter: Duration?)
        case pause
    }

    /// How often a server is asked again that refuses for a reason which time alone does not change.
    static let probeInterval: Duration = .seconds(300)

    /// So many events in a row refused, each alone: then it is the server.
    static let maximumSuspects = 16

    private enum State: Hashable {
        case idle  // → reading
        case reading  // → idle, sending, waiting
        case sending(count: Int)  // → settling, reading, condemning, waiting
        case settling  // → reading, condemning, waiting
        case condemning  // → reading, waiting
        case waiting  // → reading
        case stopped
    }

    private var state = State.idle
    private let maximumLimit: Int
    private var limit: Int
    private var failures = 0
    /// Leading events that were refused alone and are not settled.
    private var suspects = 0
    /// From a batch's first refusal until the batch size has recovered: whether another batch was accepted since.
    private var acceptedSinceRefusal: Bool?
    /// An upload was wanted while the queue was being read: what was stored meanwhile may have been missed.
    private var readAgain = false

    init(batchSize: Int) {
        maximumLimit = max(batchSize, 1)
        limit = maximumLimit
    }

    /// - Parameter manual: Someone asked: a rest is cut short, for one attempt. A policy's wish respects the rest (D11).
    mutating func uploadWanted(manual: Bool) -> Action {
        switch state {
        case .idle: return read()
        case .waiting where manual: return read()
        case .reading:
            readAgain = true
            return .none
        default: return .none
        }
    }

    mutating func batchRead(count: Int) -> Action {
        guard state == .reading else { return .none }
        if count > 0 {
            state = .sending(count: count)
            return .send
        }
        if readAgain { return read() }
        // Nothing behind the suspects could clear or convict them.
        if suspects > 0 { return pause() }
        state = .idle
        return .rest(.drained)
    }

    /// No permission for another request.
    mutating func held() -> Action {
        guard state == .reading else { return .none }
        // Suspects stay: one request at a time must come to a verdict, too (D13).
        state = .idle
        return .rest(.held)
    }

    /// Events were removed by somebody else, while no pass was under way.
    mutating func sourceChanged() {
        suspects = 0
    }

    mutating func readFailed() -> Action {
        guard state == .reading else { return .none }
        return backOff()
    }

    mutating func answered(_ answer: Answer) -> Action {
        guard case .sending(let count) = state else { return .none }
        switch answer {
        case .accepted:
            state = .settling
            return .settle
        case .batchRefused:
            acceptedSinceRefusal = acceptedSinceRefusal ?? false
            limit = max(count / 2, 1)
            if count > 1 { return read() }
            suspects += 1
            if acceptedSinceRefusal == true { return condemn() }
            return suspects < Self.maximumSuspects ? read() : pause()
        case .tryLater(let retryAfter): return backOff(retryAfter: retryAfter)
        case .pause: return pause()
        }
    }

    /// - Parameter kept: How many events of the batch the server wants again.
    mutating func settled(kept: Int) -> Action {
        guard state == .settling else { return .none }
        if acceptedSinceRefusal != nil { acceptedSinceRefusal = true }
        if suspects > 0 { return condemn() }
        recover()
        guard kept == 0 else { return backOff() }
        failures = 0
        return read()
    }

    mutating func settlingFailed() -> Action {
        guard state == .settling || state == .condemning else { return .none }
        return backOff()
    }

    mutating func condemned() -> Action {
        guard state == .condemning else { return .none }
        suspects = 0
        failures = 0
        return read()
    }

    /// The backoff, or the pause, is over.
    mutating func waitEnded() -> Action {
        state == .waiting ? read() : .none
    }

    mutating func stop() -> Action {
        state = .stopped
        return .rest(.stopped)
    }

    // MARK: - Transitions

    private mutating func read() -> Action {
        state = .reading
        readAgain = false
        return .read(limit: suspects > 0 ? 1 : limit, skipping: suspects)
    }

    private mutating func condemn() -> Action {
        state = .condemning
        return .condemn
    }

    private mutating func recover() {
        limit = min(limit * 2, maximumLimit)
        if limit == maximumLimit { acceptedSinceRefusal = nil }
    }

    private mutating func backOff(retryAfter: Duration? = nil) -> Action {
        state = .waiting
        suspects = 0
        failures += 1
        return .rest(.backoff(failures: failures, retryAfter: retryAfter))
    }

    private mutating func pause() -> Action {
        state = .waiting
        suspects = 0
        acceptedSinceRefusal = nil
        return .rest(.paused)
    }
}
