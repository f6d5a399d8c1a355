import NIOCore

/// The deadlines of one connection. With an idle timeout alone a sender could hold a connection for ever by single bytes; with timeouts for
/// requests alone, by never reading the answer.
///
/// A value without clock: its owner reports what happens and when, performs the returned action, and calls ``expired(_:)`` at ``next``.
struct ConnectionDeadlines {
    private let limits: ServerLimits

    /// What the other side is doing.
    private enum Reading: Equatable {
        /// Between requests, nothing of the next one seen. Next: header.
        case idle
        /// A header block is due. Next: body.
        case header
        /// A body is due. Next: idle, or discarding if its request was answered before it had arrived.
        case body
        /// The rest of a refused body is read and thrown away. Next: done.
        case discarding(bytes: Int)
        /// Nothing more is read. The connection is closed when the answers have been taken.
        case done
    }

    /// What the owner must do.
    enum Action: Equatable {
        case none
        /// Pass the part on to the routes.
        case forward
        /// Throw the part away.
        case discard
        /// Refuse the request as too slow, then go on as after any other answer.
        case refuse
        /// Close at once.
        case close
    }

    private var reading = Reading.header
    /// The deadline of what is being read.
    private var readingDue: NIODeadline?
    /// When the whole body is due, however steadily it comes.
    private var bodyDue: NIODeadline?
    /// What has come of the body, and in how many parts.
    private var arrived = (bytes: 0, parts: 0)
    /// Requests that have begun and have not been answered to the end.
    private var unanswered = 0
    /// Answers that were written and that the other side has not taken yet.
    private var untaken = 0
    /// Whether the other side's system takes more of what is being written.
    private var hasRoom = true
    private var answerDue: NIODeadline?
    private var stopDue: NIODeadline?
    private var endsAfterAnswers = false

    init(limits: ServerLimits, openedAt now: NIODeadline) {
        self.limits = limits
        readingDue = now + TimeAmount(limits.header)
    }

    /// When ``expired(_:)`` is to be called; nil if nothing is due.
    var next: NIODeadline? { [readingDue, answerDue, stopDue].compactMap { $0 }.min() }

    /// Whether the connection rests between requests.
    private var isIdle: Bool { reading == .idle && unanswered == 0 && untaken == 0 }

    /// What the connection is doing, as ``ConnectionTable`` needs it.
    var phase: ConnectionTable.Phase {
        switch reading {
        case .header, .body, .discarding: .arriving
        case .idle, .done: unanswered > 0 ? .answering : untaken > 0 ? .answered : .idle
        }
    }

    /// Whether the body of the request that is being answered has not wholly arrived.
    var awaitsBody: Bool { unanswered == 1 && reading == .body }
    /// Whether the rest of a body is being read whose request has been answered already.
    var isDiscarding: Bool { if case .discarding = reading { true } else { false } }

    // MARK: - Requests

    /// Bytes have come that are not parsed yet.
    mutating func bytesArrived(_ now: NIODeadline) {
        guard reading == .idle else { return }
        reading = .header
        readingDue = now + TimeAmount(limits.header)
    }

    /// - Parameter closes: Whether the sender asked to close the connection after the answer.
    mutating func headArrived(_ now: NIODeadline, closes: Bool) -> Action {
        guard !isDone, stopDue == nil else { return .discard }
        guard unanswered < ServerLimits.pipelinedRequests else {
            reading = .done
            return .close
        }
        unanswered += 1
        endsAfterAnswers = endsAfterAnswers || closes
        reading = .body
        bodyDue = now + TimeAmount(limits.body)
        arrived = (0, 0)
        moreIsDue(now)
        return .forward
    }

    mutating func bodyArrived(_ count: Int, _ now: NIODeadline) -> Action {
        arrived = (arrived.bytes + count, arrived.parts + 1)
        if reading == .body || isDiscarding, arrived.bytes > ServerLimits.smallParts,
            arrived.bytes < arrived.parts * ServerLimits.averagePart
        {
            return endTooSlow()
        }
        switch reading {
        case .body:
            moreIsDue(now)
            return .forward
        case .discarding(let bytes):
            guard bytes + count <= ServerLimits.discardedBytes else { return .close }
            reading = .discarding(bytes: bytes + count)
            moreIsDue(now)
            return .discard
        case .idle, .header, .done: return .discard
        }
    }

    mutating func requestEnded(_ now: NIODeadline) -> Action {
        switch reading {
        case .body:
            reading = .idle
            (readingDue, bodyDue) = (nil, nil)
            restIfIdle(now)
            return .forward
        case .discarding:
            reading = .done
            (readingDue, bodyDue) = (nil, nil)
            return closeIfTaken()
        case .idle, .header, .done: return .discard
        }
    }

    private mutating func moreIsDue(_ now: NIODeadline) {
        readingDue = [bodyDue, now + TimeAmount(limits.stall)].compactMap { $0 }.min()
    }

    private var isDone: Bool { reading == .done || isDiscarding }

    // MARK: - Answers

    /// Whether the answer that now begins must carry `Connection: close`: its request has not wholly arrived, the sender asked for it, or the
    /// server stops.
    var answerCloses: Bool { unanswered == 1 && (reading == .body || endsAfterAnswers || stopDue != nil) }

    /// A reader that takes nothing of a long answer gets the same deadline as one that does not take its end.
    mutating func roomChanged(_ now: NIODeadline, hasRoom: Bool) {
        self.hasRoom = hasRoom
        if untaken == 0 { answerDue = hasRoom ? nil : now + TimeAmount(limits.answer) }
    }

    mutating func answerEnded(_ now: NIODeadline) {
        // An answer without a request refuses bytes that are not HTTP; nothing is read after that.
        if unanswered > 0 { unanswered -= 1 } else { reading = .done }
        untaken += 1
        if untaken == 1 { answerDue = now + TimeAmount(limits.answer) }
        if reading == .body && unanswered == 0 { reading = .discarding(bytes: 0) }
    }

    /// The other side's system has taken all of an answer.
    mutating func answerTaken(_ now: NIODeadline) -> Action {
        untaken -= 1
        answerDue = untaken > 0 || !hasRoom ? now + TimeAmount(limits.answer) : nil
        if unanswered == 0, !isDiscarding, endsAfterAnswers || stopDue != nil { reading = .done }
        restIfIdle(now)
        return closeIfTaken()
    }

    private mutating func restIfIdle(_ now: NIODeadline) {
        if isIdle { readingDue = now + TimeAmount(limits.idle) }
    }

    private func closeIfTaken() -> Action { reading == .done && untaken == 0 ? .close : .none }

    // MARK: - Time

    /// Graceful stop has begun. A request that has not wholly arrived is cut off, since it could delay the stop until its deadline; its sender
    /// sends it again.
    mutating func stopBegan(_ now: NIODeadline) -> Action {
        if stopDue == nil { stopDue = now + TimeAmount(limits.stop) }
        let waitsForRest = unanswered == 1 && reading == .body
        return waitsForRest || (unanswered == 0 && untaken == 0) ? .close : .none
    }

    mutating func expired(_ now: NIODeadline) -> Action {
        if let due = stopDue, due <= now { return .close }
        if let due = answerDue, due <= now { return .close }
        guard let due = readingDue, due <= now else { return .none }
        return endTooSlow()
    }

    private mutating func endTooSlow() -> Action {
        readingDue = nil
        switch reading {
        case .header where unanswered == 0:
            // The unfinished header counts as a request, so that its refusal is an answer like any other.
            unanswered = 1
        case .body where unanswered == 1: break
        default: return .close
        }
        reading = .done
        endsAfterAnswers = true
        return .refuse
    }

    /// The memory of the connection's body is needed for others.
    mutating func cut() -> Action {
        reading == .body && unanswered == 1 ? .refuse : .close
    }
}
