import HapaxModel
import Logging

/// Performs what ``DeliveryStateMachine`` decides, over any source of events.
///
/// One task at a time carries a pass from its first read to its rest. A rest that ends by itself is scheduled with the clock.
package actor Delivery<Source: BatchSource> {
    private let executor = BlockingExecutor(label: "hapax.delivery")
    let source: Source
    let endpoint: Endpoint
    let transport: any EventTransport
    let clock: any ClientClock
    let retryPolicy: RetryPolicy
    let logger: Logger?
    var randomness: any RandomNumberGenerator & Sendable
    var batchIDs = UUIDv7Generator()

    var machine: DeliveryStateMachine
    var pass: Task<Void, Never>?
    /// Told who wanted no other request, if it was that.
    var waiters: [CheckedContinuation<RequestLimits.Number?, Never>] = []
    var limitWaiters: [CheckedContinuation<Void, Never>] = []
    var timer: (any ScheduledAction)?
    var restNumber = 0

    /// Asked before every request, with whether somebody asked for its pass (R23, R31, R33).
    let gate: @Sendable (_ isManual: Bool) -> RequestPermission
    var isManual = false
    /// Told of each request, with how long it took.
    let attempted: @Sendable (Duration, AnswerClassifier.Answer) -> Void
    /// Asked before the gate.
    var limits = RequestLimits()
    /// How many wait for the pass to end before its next request, or change the source then.
    var exclusives = 0
    var timeout: Duration?
    /// A request was granted, and has not been made yet.
    var mayRequestOnce = false

    var batch = SourceBatch(events: [])
    var verdicts: [Receipt.Result] = []
    /// Of one install: the server may refuse that, and not the events.
    var suspects: [Settlement] = []
    /// Monotonic: a pass that begins later suspects nobody.
    var suspectedUntil = Duration.zero
    /// How many of the oldest events the batch in hand left out.
    var skipped = 0
    /// Something that the server has accepted, from this source or from one that shares it: sent again, it shows whether the server still
    /// accepts anything.
    let witness: Locked<OutgoingEvent?>
    /// What the suspects' batches said besides the events: the witness is to differ in nothing else.
    var refusedEnvelope = EventBatch.Envelope()
    /// Whether the latest pass ended at events of which nobody can say yet whether it is they or the server.
    var awaitsWitness = false
    var counts = DeliveryCounts() { didSet { publish() } }
    /// What calls have reported already.
    var reported = DeliveryCounts()
    var lastFailure: DeliveryFailure? { didSet { publish() } }
    var nextAttempt: Int64? { didSet { publish() } }
    /// Monotonic: until then the server asked for no request.
    let leftAloneUntil = Locked(Duration.zero)
    private let published = Locked(DeliveryState(counts: DeliveryCounts()))
    var isResting = true
    /// How many have begun.
    var rests = 0
    /// How many times ``end(_:)`` was called.
    var endings = 0
    /// Who wants no other request in this pass.
    var heldBy: RequestLimits.Number?
    /// The same for the pass before the latest rest.
    var wasHeldBy: RequestLimits.Number?
    /// For those who want none at all while they change the source.
    static var exclusive: RequestLimits.Number { 0 }
    var ending: Ending?
    var endingWaiters: [CheckedContinuation<Ending?, Never>] = []

    /// Where no more attempts are made but for a wish or a rare probe.
    package enum Ending: Sendable {
        case drained
        case paused
        case stopped
    }

    package init(
        source: Source, endpoint: Endpoint, transport: any EventTransport, clock: any ClientClock, logger: Logger? = nil,
        gate: @escaping @Sendable (_ isManual: Bool) -> RequestPermission = { _ in .granted(timeout: nil) }
    ) {
        self.init(
            source: source, endpoint: endpoint, transport: transport, clock: clock, logger: logger, retryPolicy: .delivery,
            randomness: SystemRandomNumberGenerator(), gate: gate)
    }

    init(
        source: Source, endpoint: Endpoint, transport: any EventTransport, clock: any ClientClock, logger: Logger?,
        retryPolicy: RetryPolicy = .delivery, randomness: any RandomNumberGenerator & Sendable = SystemRandomNumberGenerator(),
        witness: Locked<OutgoingEvent?> = Locked(nil),
        attempted: @escaping @Sendable (Duration, AnswerClassifier.Answer) -> Void = { _, _ in },
        gate: @escaping @Sendable (_ isManual: Bool) -> RequestPermission = { _ in .granted(timeout: nil) }
    ) {
        self.attempted = attempted
        self.witness = witness
        self.gate = gate
        self.source = source
        self.endpoint = endpoint
        self.transport = transport
        self.clock = clock
        self.logger = logger
        self.retryPolicy = retryPolicy
        self.randomness = randomness
        machine = DeliveryStateMachine(batchSize: endpoint.batchSize)
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    package var state: DeliveryState {
        DeliveryState(counts: counts, failure: lastFailure, nextAttempt: nextAttempt)
    }

    /// The same for those who must not wait: the actor may be waiting for the disk.
    package nonisolated var latestState: DeliveryState { published.withLock { $0 } }

    private func publish() {
        let state = state
        published.withLock { $0 = state }
    }

    /// Whether the server has not taken what it was sent last. This delivery goes on trying: whoever asked it for others meanwhile would make a
    /// second request in each backoff (I16).
    nonisolated let isUnanswered = Locked(false)

    nonisolated var leavesServerAlone: Bool { clock.monotonic < leftAloneUntil.withLock { $0 } }

    nonisolated var hasWitness: Bool { witness.withLock { $0 != nil } }

    /// Starts a pass unless one is under way or, for a policy's wish, a rest is.
    package func uploadWanted(manual: Bool) {
        // A rest that the server asked for outlasts what ended ours, as a purge.
        if !manual, isResting, leavesServerAlone { return }
        isManual = manual || (isManual && !isResting)
        wanted(manual: manual)
    }

    /// Delivers until the source is empty or an attempt fails, during a backoff at once (R13).
    ///
    /// - Returns: What was delivered since this call began and no other call has reported, and why it ended early if it did.
    package func drain() async -> DeliveryState {
        await drain(limit: nil)
    }

    /// The same, and goes on only while `permission` is granted. Holds for a pass that is under way, too, from its next request on.
    package func drain(permission: @escaping @Sendable () -> RequestPermission) async -> DeliveryState {
        await drain(limit: permission)
    }

    private func drain(limit: (@Sendable () -> RequestPermission)?) async -> DeliveryState {
        let before = counts
        var (isDenied, hasJoined) = (false, false)
        var unused: RequestPermission?
        while true {
            // Asked before a rest is cut short: a rest that nobody may end goes on (D11).
            let first = unused ?? (isResting ? limit?() : nil)
            if first == .denied || first == .unwanted { break }
            isDenied = isResting && gate(true) == .denied
            if isDenied { break }
            hasJoined = true
            let number = limit.map { limits.add(first: first, $0) }
            isManual = true
            wanted(manual: true)
            let holder = isResting ? nil : await rested(since: rests)
            unused = number.flatMap { limits.remove($0) }
            limitEnded()
            // A pass that was held by somebody else: that call ends now, and this one goes on.
            guard let holder, holder != number else { break }
            await othersLimitsEnd()
        }
        var state = self.state
        // Of calls that end together, one reports what was delivered.
        state.counts = hasJoined ? counts - before.orLater(reported) : DeliveryCounts()
        // Of one within limits nobody reads more than whether something was sent.
        if hasJoined, limit == nil { reported = counts }
        if isDenied { state.failure = .noBackgroundTime }
        if ending == .stopped, state.failure == nil { state.failure = .shutDown }
        return state
    }

    private func othersLimitsEnd() async {
        while isLimited {
            await withCheckedContinuation { if isLimited { limitWaiters.append($0) } else { $0.resume() } }
        }
    }

    func limitEnded() {
        guard !isLimited else { return }
        let waiting = limitWaiters
        limitWaiters = []
        for waiter in waiting { waiter.resume() }
    }

    /// Whether a call of ``deliverAll()`` waits for its end.
    var isAwaited: Bool { !endingWaiters.isEmpty }

    /// Whether somebody limits the pass under way.
    var isLimited: Bool { exclusives > 0 || !limits.isEmpty }

    /// Ends a pass after its request in flight, and changes the source while none is under way.
    func exclusively<Value>(_ change: () throws -> Value) async rethrows -> Value {
        exclusives += 1
        defer {
            exclusives -= 1
            limitEnded()
        }
        while !isResting { await restBegins() }
        // What was suspected may be gone, and what is purged must not be sent again.
        machine.sourceChanged()
        suspects = []
        witness.withLock { $0 = nil }
        return try change()
    }

    /// Delivers, backoff after backoff, until the source is empty, the server refuses for a reason that time does not change, or
    /// ``stop()`` is called. Backoffs begin anew, however often delivery has failed before; a server's `Retry-After` is obeyed.
    package func deliverAll() async -> Ending {
        machine.failuresForgiven()
        while true {
            // In the background nothing may be sent, whoever asks.
            if isResting, gate(true) == .denied { return .paused }
            isManual = true
            wanted(manual: true)
            if let ending { return ending }
            let before = endings
            let ended = await withCheckedContinuation { waiter in
                if endings != before { waiter.resume(returning: ending) } else { endingWaiters.append(waiter) }
            }
            if let ended { return ended }
            await othersLimitsEnd()
        }
    }

    /// Returns when no attempt is under way: the source is empty, or a rest has begun.
    package func restBegins() async {
        if !isResting { _ = await rested(since: rests) }
    }

    /// Returns at the next rest behind so many. Looked at again where the waiter is kept: each `await` may let another job of this actor in,
    /// and does where the caller's task prefers an executor.
    private func rested(since before: Int) async -> RequestLimits.Number? {
        await withCheckedContinuation { waiter in
            if rests != before { waiter.resume(returning: wasHeldBy) } else { waiters.append(waiter) }
        }
    }

    /// Nothing is sent any more. What is in flight must be ended by closing the transport; returns when it has ended.
    package func stop() async {
        if lastFailure == nil, !isResting { lastFailure = .shutDown }
        _ = machine.stop()
        timer?.cancel()
        timer = nil
        nextAttempt = nil
        await pass?.value
        end(.stopped)
    }
}
