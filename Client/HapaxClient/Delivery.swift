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
    /// Told whether the pass was held by somebody's permission.
    var waiters: [CheckedContinuation<Bool, Never>] = []
    var permissionWaiters: [CheckedContinuation<Void, Never>] = []
    var timer: (any ScheduledAction)?
    var restNumber = 0

    /// Asked before every request, with whether somebody asked for its pass (R23, R31, R33).
    let gate: @Sendable (_ isManual: Bool) -> RequestPermission
    var isManual = false
    /// Told of each request, with how long it took.
    let attempted: @Sendable (Duration, AnswerClassifier.Answer) -> Void
    /// Asked before each request; nil grants.
    var permission: (@Sendable () -> RequestPermission)?
    var firstPermission: RequestPermission?
    var timeout: Duration?

    var batch = SourceBatch(events: [])
    var verdicts: [Receipt.Result] = []
    var suspects: [Settlement] = []
    /// How many of the oldest events the batch in hand left out.
    var skipped = 0
    /// Something that the server has accepted, from this source or from one that shares it: sent again, it shows whether the server still
    /// accepts anything.
    let witness: Locked<OutgoingEvent?>
    /// What the latest refused batch said besides its events: the witness is to differ in nothing else.
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
    var isHeld = false
    /// Whether the pass before the latest rest was held.
    var wasHeld = false
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
    nonisolated var latestState: DeliveryState { published.withLock { $0 } }

    private func publish() {
        let state = state
        published.withLock { $0 = state }
    }

    nonisolated var leavesServerAlone: Bool { clock.monotonic < leftAloneUntil.withLock { $0 } }

    nonisolated var hasWitness: Bool { witness.withLock { $0 != nil } }

    /// Starts a pass unless one is under way or, for a policy's wish, a rest is.
    package func uploadWanted(manual: Bool) {
        isManual = manual || (isManual && !isResting)
        begin(machine.uploadWanted(manual: manual))
    }

    /// Delivers until the source is empty or an attempt fails, during a backoff at once (R13).
    ///
    /// - Returns: What was delivered since this call began and no other call has reported, and why it ended early if it did.
    package func drain() async -> DeliveryState {
        await drain(isLimited: false)
    }

    func drain(isLimited: Bool) async -> DeliveryState {
        // Asked before a rest is cut short: a rest that nobody may end goes on (D11).
        if isResting, gate(true) == .denied {
            return DeliveryState(counts: DeliveryCounts(), failure: .noBackgroundTime, nextAttempt: nextAttempt)
        }
        let before = counts
        while true {
            isManual = true
            begin(machine.uploadWanted(manual: true))
            let before = isResting ? nil : rests
            guard let before, await rested(since: before), !isLimited else { break }
            await othersPermissionEnds()
        }
        var state = self.state
        // Of calls that end together, one reports what was delivered.
        state.counts = counts - before.orLater(reported)
        reported = counts
        if ending == .stopped, state.failure == nil { state.failure = .shutDown }
        return state
    }

    /// The same, and goes on only while `permission` is granted. Holds for a pass that is under way, too, from its next request on.
    package func drain(permission: @escaping @Sendable () -> RequestPermission) async -> DeliveryState {
        // Asked before a rest is cut short: a rest that nobody may end goes on (D11).
        let first = isResting ? permission() : nil
        if first == .denied { return DeliveryState(counts: DeliveryCounts(), failure: lastFailure, nextAttempt: nextAttempt) }
        firstPermission = first
        self.permission = permission
        defer { permissionEnded() }
        return await drain(isLimited: true)
    }

    /// A pass was held by somebody who had permission to ask for: that call ends now, and the caller needs none.
    private func othersPermissionEnds() async {
        while permission != nil {
            await withCheckedContinuation { if permission == nil { $0.resume() } else { permissionWaiters.append($0) } }
        }
    }

    func permissionEnded() {
        (permission, firstPermission) = (nil, nil)
        let waiting = permissionWaiters
        permissionWaiters = []
        for waiter in waiting { waiter.resume() }
    }

    /// Whether a call of ``deliverAll()`` waits for its end.
    var isAwaited: Bool { !endingWaiters.isEmpty }

    /// Whether somebody limits the pass under way.
    var isLimited: Bool { permission != nil }

    /// Whether the pass under way ends before its next request.
    var isDenied: Bool { permission?() == .denied }

    /// Ends a pass after its request in flight, and changes the source while none is under way.
    func exclusively<Value>(_ change: () throws -> Value) async rethrows -> Value {
        while !isResting {
            permission = { .denied }
            await restBegins()
            permissionEnded()
        }
        // What was suspected may be gone.
        machine.sourceChanged()
        suspects = []
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
            begin(machine.uploadWanted(manual: true))
            if let ending { return ending }
            let before = endings
            let ended = await withCheckedContinuation { waiter in
                if endings != before { waiter.resume(returning: ending) } else { endingWaiters.append(waiter) }
            }
            if let ended { return ended }
            await othersPermissionEnds()
        }
    }

    /// Returns when no attempt is under way: the source is empty, or a rest has begun.
    ///
    /// - Returns: Whether it ended because somebody who limits it wants no further request.
    @discardableResult
    package func restBegins() async -> Bool {
        isResting ? false : await rested(since: rests)
    }

    /// Returns at the next rest behind so many. Looked at again where the waiter is kept: each `await` may let another job of this actor in,
    /// and does where the caller's task prefers an executor.
    private func rested(since before: Int) async -> Bool {
        await withCheckedContinuation { waiter in
            if rests != before { waiter.resume(returning: wasHeld) } else { waiters.append(waiter) }
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
