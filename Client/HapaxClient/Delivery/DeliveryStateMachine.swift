/// What to do next with the queue: read, send, settle, rest. Knows counts, never events.
///
/// One batch is in flight at most (R9), every failure leads to a rest (D11), and only ``Action/settle`` and ``Action/condemn`` ever lead
/// to a removal (D12). A batch that the server refuses as such is halved down to the event that is to blame, a *suspect*. A suspect is
/// condemned to the dead letters only when the server accepts something else of its install after it refused the suspect alone: to find
/// out, the events behind it are tried one by one, and then a *witness*, an event that was accepted and settled before and is merely sent
/// again, as that install. Each condemnation needs its own acceptance. A server that refuses everything therefore costs no event, whatever it accepted earlier.
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
        /// Send the witness again; its answer is no reason to settle anything.
        case testify
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

    /// How long a suspicion outlasts the last request of its pass, where somebody has ended that between two requests.
    static let suspicionTime: Duration = .seconds(60)

    /// So many events refused in one pass, each alone: then only a witness can tell whether it is the server.
    static let maximumSuspects = 16

    private enum State: Hashable {
        case idle  // → reading, testifying
        case reading  // → idle, sending, testifying, waiting
        case sending(count: Int)  // → settling, reading, testifying, waiting
        case settling(count: Int)  // → reading, condemning, testifying, waiting
        case testifying  // → condemning, idle, waiting
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
    /// Events refused alone in this pass, behind the suspects.
    private var scouted = 0
    /// How many leading events earlier passes found refused: this one looks behind them once the first is refused again. So even more
    /// poison events than a pass may try cannot block the queue for ever.
    private var reach = 0
    private var hasWitness = false
    /// An upload was wanted while the queue was being read: what was stored meanwhile may have been missed.
    private var readAgain = false
    /// The pass was held when the witness was to be sent: the next one begins there.
    private var owesTestimony = false

    init(batchSize: Int) {
        maximumLimit = max(batchSize, 1)
        limit = maximumLimit
    }

    /// - Parameter manual: Someone asked: a rest is cut short, for one attempt. A policy's wish respects the rest (D11).
    mutating func uploadWanted(manual: Bool) -> Action {
        switch state {
        case .idle: return owesTestimony ? testify() : read()
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
        // Nothing is left behind the suspects that could clear or convict them.
        if suspects > 0 {
            if isScouting { reach = 0 }
            return testify()
        }
        state = .idle
        return .rest(.drained)
    }

    /// No permission for another request, from who asked for this pass.
    mutating func held() -> Action {
        guard state == .reading || state == .testifying else { return .none }
        // Suspects stay: one request at a time must come to a verdict, too (D13).
        owesTestimony = state == .testifying && suspects > 0
        state = .idle
        return .rest(.held)
    }

    /// No request may be made at all, for as long as it takes: what the server accepts afterwards says nothing about what it refused before.
    mutating func denied() -> Action {
        guard state == .reading || state == .testifying else { return .none }
        suspicionEnded()
        return held()
    }

    /// The server has accepted something that another machine had sent.
    mutating func witnessFound() {
        hasWitness = true
    }

    /// Events were removed by somebody else, while no pass was under way.
    mutating func sourceChanged() {
        suspicionEnded()
        reach = 0
        hasWitness = false
    }

    /// Between two passes: what the server accepts from now on says nothing about what it refused before.
    mutating func suspicionEnded() {
        suspects = 0
        scouted = 0
        owesTestimony = false
    }

    mutating func readFailed() -> Action {
        guard state == .reading else { return .none }
        return backOff()
    }

    mutating func answered(_ answer: Answer) -> Action {
        if state == .testifying { return testified(answer) }
        guard case .sending(let count) = state else { return .none }
        switch answer {
        case .accepted:
            state = .settling(count: count)
            return .settle
        case .batchRefused:
            limit = max(count / 2, 1)
            if count > 1 { return read() }
            if isScouting { scouted += 1 } else { suspects += 1 }
            guard suspects + scouted >= Self.maximumSuspects else { return read() }
            reach = max(reach, suspects) + scouted
            return testify()
        case .tryLater(let retryAfter): return backOff(retryAfter: retryAfter)
        case .pause: return pause()
        }
    }

    /// - Parameters:
    ///   - kept: How many events of the batch the server wants again. If that is all of them, it has accepted nothing.
    ///   - convicts: Whether the batch differed from the suspects' in nothing but the events.
    ///   - testifies: Whether there is a witness: one of its events that was stored, or an earlier one.
    mutating func settled(kept: Int, convicts: Bool = true, testifies: Bool = true) -> Action {
        guard case .settling(let count) = state else { return .none }
        guard kept < count else { return backOff() }
        hasWitness = testifies
        if suspects > 0, !convicts {
            reach = max(reach, suspects) + scouted
            return testify()
        }
        reach = 0
        if suspects > 0 { return condemn() }
        limit = min(limit * 2, maximumLimit)
        guard kept == 0 else { return backOff() }
        failures = 0
        return read()
    }

    mutating func settlingFailed() -> Action {
        switch state {
        case .settling, .condemning: return backOff()
        default: return .none
        }
    }

    mutating func condemned() -> Action {
        guard state == .condemning else { return .none }
        suspects = 0
        scouted = 0
        failures = 0
        return read()
    }

    /// The backoff, or the pause, is over.
    mutating func waitEnded() -> Action {
        state == .waiting ? read() : .none
    }

    /// The next backoff is a first one: somebody waits and has little time.
    mutating func failuresForgiven() {
        failures = 0
    }

    mutating func stop() -> Action {
        state = .stopped
        return .rest(.stopped)
    }

    // MARK: - Transitions

    private mutating func read() -> Action {
        state = .reading
        readAgain = false
        return .read(limit: limit, skipping: isScouting ? reach + scouted : suspects)
    }

    /// Whether the next event to try is not the one behind the suspects, but one that no pass has tried yet.
    private var isScouting: Bool { suspects > 0 && reach > suspects }

    private mutating func testify() -> Action {
        owesTestimony = false
        guard hasWitness else { return pause() }
        state = .testifying
        return .testify
    }

    private mutating func testified(_ answer: Answer) -> Action {
        switch answer {
        case .accepted:
            reach = 0
            return condemn()
        case .batchRefused, .pause: return pause()
        case .tryLater(let retryAfter): return backOff(retryAfter: retryAfter)
        }
    }

    private mutating func condemn() -> Action {
        state = .condemning
        return .condemn
    }

    private mutating func backOff(retryAfter: Duration? = nil) -> Action {
        state = .waiting
        suspects = 0
        scouted = 0
        failures += 1
        return .rest(.backoff(failures: failures, retryAfter: retryAfter))
    }

    private mutating func pause() -> Action {
        state = .waiting
        suspects = 0
        scouted = 0
        return .rest(.paused)
    }
}
