import HapaxModel
import Logging

/// Performs what ``DeliveryStateMachine`` decides, over any source of events.
///
/// One task at a time carries a pass from its first read to its rest. A rest that ends by itself is scheduled with the clock.
package actor Delivery<Source: BatchSource> {
    private let source: Source
    private let endpoint: Endpoint
    private let transport: any EventTransport
    private let clock: any ClientClock
    private let retryPolicy: RetryPolicy
    private let logger: Logger?
    private var randomness: any RandomNumberGenerator & Sendable
    private var batchIDs = UUIDv7Generator()

    private var machine: DeliveryStateMachine
    private var pass: Task<Void, Never>?
    /// Told whether the pass was held by somebody's permission.
    private var waiters: [CheckedContinuation<Bool, Never>] = []
    private var permissionWaiters: [CheckedContinuation<Void, Never>] = []
    private var timer: (any ScheduledAction)?
    private var restNumber = 0

    /// Asked before every request, with whether somebody asked for its pass (R23, R31, R33).
    private let gate: @Sendable (_ isManual: Bool) -> RequestPermission
    private var isManual = false
    /// Told of each request, with how long it took.
    private let attempted: @Sendable (Duration, AnswerClassifier.Answer) -> Void
    /// Asked before each request; nil grants.
    private var permission: (@Sendable () -> RequestPermission)?
    private var firstPermission: RequestPermission?
    private var timeout: Duration?

    private var batch = SourceBatch(events: [])
    private var verdicts: [Receipt.Result] = []
    private var suspects: [Settlement] = []
    /// How many of the oldest events the batch in hand left out.
    private var skipped = 0
    /// Something that the server has accepted: sent again, it shows whether the server still accepts anything.
    private var witness: SourceBatch?
    private var counts = DeliveryCounts()
    /// What calls have reported already.
    private var reported = DeliveryCounts()
    private var lastFailure: DeliveryFailure?
    private var nextAttempt: Int64?
    private var isResting = true
    private var isHeld = false
    private var ending: Ending?
    private var endingWaiters: [CheckedContinuation<Ending?, Never>] = []

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
        attempted: @escaping @Sendable (Duration, AnswerClassifier.Answer) -> Void = { _, _ in },
        gate: @escaping @Sendable (_ isManual: Bool) -> RequestPermission = { _ in .granted(timeout: nil) }
    ) {
        self.attempted = attempted
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

    package var state: DeliveryState {
        DeliveryState(counts: counts, failure: lastFailure, nextAttempt: nextAttempt)
    }

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

    private func drain(isLimited: Bool) async -> DeliveryState {
        // Asked before a rest is cut short: a rest that nobody may end goes on (D11).
        if isResting, gate(true) == .denied {
            return DeliveryState(counts: DeliveryCounts(), failure: .noBackgroundTime, nextAttempt: nextAttempt)
        }
        let before = counts
        while true {
            isManual = true
            begin(machine.uploadWanted(manual: true))
            guard await restBegins(), !isLimited else { break }
            // Held by somebody who had permission to ask for: that call ends now, and this one needs none.
            while permission != nil { await withCheckedContinuation { permissionWaiters.append($0) } }
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

    private func permissionEnded() {
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
            if let ending, isResting { return ending }
            if let ending = await withCheckedContinuation({ endingWaiters.append($0) }) { return ending }
            // Held by somebody who had permission to ask for: that pass is over, and this one needs none.
        }
    }

    /// Returns when no attempt is under way: the source is empty, or a rest has begun.
    ///
    /// - Returns: Whether it ended because somebody who limits it wants no further request.
    @discardableResult
    package func restBegins() async -> Bool {
        isResting ? false : await withCheckedContinuation { waiters.append($0) }
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
        rest()
    }

    // MARK: - The pass

    private func begin(_ action: DeliveryStateMachine.Action) {
        guard action != .none else { return }
        timer?.cancel()
        timer = nil
        nextAttempt = nil
        isResting = false
        isHeld = false
        ending = nil
        pass = Task { await perform(action) }
    }

    private func perform(_ first: DeliveryStateMachine.Action) async {
        var action = first
        while true {
            switch action {
            case .none: return rest()
            case .read(let limit, let skipping): action = await read(limit: limit, skipping: skipping)
            case .send: action = await send()
            case .settle: action = await settle()
            case .condemn: action = await condemn()
            case .testify: action = await testify()
            case .rest(let rest): return begin(rest)
            }
        }
    }

    private func read(limit: Int, skipping: Int) async -> DeliveryStateMachine.Action {
        let asked = firstPermission ?? permission?()
        firstPermission = nil
        // Whoever asked does not want another; the gate has nothing to say then.
        isHeld = asked == .denied
        guard !isHeld, mayRequest() else { return machine.held() }
        skipped = skipping
        do {
            batch = try await source.nextBatch(limit: limit, maximumBytes: endpoint.maximumBatchBytes, skipping: skipping)
            return machine.batchRead(count: batch.events.count)
        } catch {
            failed(.queue(StorageFailure(error)))
            return machine.readFailed()
        }
    }

    /// Asks the gate, and keeps the timeout that it gives.
    private func mayRequest() -> Bool {
        switch gate(isManual) {
        case .granted(let timeout):
            self.timeout = timeout
            return true
        case .denied:
            // A policy tries again by itself; who asked must learn of it.
            if isManual { failed(.noBackgroundTime) }
            return false
        }
    }

    private func send() async -> DeliveryStateMachine.Action {
        let answer = await attempt(batch)
        switch answer {
        case .accepted(let results):
            verdicts = results
            return machine.answered(.accepted)
        case .batchRefused(let code):
            let failure = DeliveryFailure.status(code.status, code: code.rawValue)
            failed(failure)
            // One that stands farther behind was only tried to learn about the server.
            if let event = batch.events.first, batch.events.count == 1, skipped == suspects.count {
                suspects.append(Settlement(event: event, fate: .deadLetter(reason: code.rawValue, detail: "\(failure)")))
            }
            return machine.answered(.batchRefused)
        case .tryLater(let failure, let retryAfter):
            failed(failure)
            return machine.answered(.tryLater(retryAfter: retryAfter))
        case .pause(let failure):
            failed(failure)
            return machine.answered(.pause)
        }
    }

    private func attempt(_ batch: SourceBatch) async -> AnswerClassifier.Answer {
        let batchID = batchIDs.next(unixMilliseconds: clock.unixMilliseconds)
        var envelope = batch.envelope
        envelope.batchID = batchID
        envelope.sentAt = min(max(clock.unixMilliseconds, 0), EventLimits.maximumTime)
        let body = EventBatch(envelope: envelope, events: batch.events.map(\.bytes)).encoded()
        var request = endpoint.request(body)
        request.timeout = timeout ?? request.timeout
        let start = clock.monotonic
        let outcome = await transport.send(request)
        counts.attempts += 1
        let answer = AnswerClassifier.classify(
            outcome, batchID: batchID, sent: batch.events.map(\.id), now: clock.unixMilliseconds)
        attempted(clock.monotonic - start, answer)
        return answer
    }

    /// The witness was settled when it was accepted: the server finds a duplicate, and nothing is recorded or counted.
    private func testify() async -> DeliveryStateMachine.Action {
        guard let witness else { return machine.answered(.pause) }
        guard mayRequest() else { return machine.answered(.tryLater(retryAfter: nil)) }
        switch await attempt(witness) {
        case .accepted(let results):
            let isAccepted = !results.contains { $0.outcome == .retry }
            return machine.answered(isAccepted ? .accepted : .tryLater(retryAfter: nil))
        case .batchRefused: return machine.answered(.batchRefused)
        case .tryLater(let failure, let retryAfter):
            failed(failure)
            return machine.answered(.tryLater(retryAfter: retryAfter))
        case .pause(let failure):
            failed(failure)
            return machine.answered(.pause)
        }
    }

    private func settle() async -> DeliveryStateMachine.Action {
        let settlements = zip(batch.events, verdicts).compactMap { event, verdict in
            Self.fate(verdict).map { Settlement(event: event, fate: $0) }
        }
        let kept = batch.events.count - settlements.count
        guard await record(settlements) else { return machine.settlingFailed() }
        if let event = settlements.last?.event { witness = SourceBatch(events: [event], envelope: batch.envelope) }
        if kept > 0 { failed(.askedToRetry(events: kept)) } else { lastFailure = nil }
        return machine.settled(kept: kept)
    }

    private func condemn() async -> DeliveryStateMachine.Action {
        guard await record(suspects) else { return machine.settlingFailed() }
        suspects = []
        lastFailure = nil
        return machine.condemned()
    }

    /// nil: the event stays where it is.
    private static func fate(_ verdict: Receipt.Result) -> Settlement.Fate? {
        switch verdict.outcome {
        case .stored: .stored
        case .duplicate: .duplicate
        case .conflict, .rejected, .expired:
            .deadLetter(reason: verdict.reason ?? verdict.outcome.rawValue, detail: verdict.detail ?? "")
        case .retry: nil
        }
    }

    private func record(_ settlements: [Settlement]) async -> Bool {
        do {
            if !settlements.isEmpty { try await source.settle(settlements) }
        } catch {
            failed(.queue(StorageFailure(error)))
            return false
        }
        for settlement in settlements { counts.count(settlement.fate) }
        return true
    }

    private func failed(_ failure: DeliveryFailure) {
        // That we ended an attempt ourselves says less than why the one before failed.
        if failure == .transport(.aborted), lastFailure != nil { return }
        lastFailure = failure
        logger?.info("Upload failed", metadata: ["hapax.failure": "\(failure)", "hapax.events": "\(batch.events.count)"])
    }

    // MARK: - Rest

    private func begin(_ kind: DeliveryStateMachine.Rest) {
        if kind != .held { suspects = [] }
        switch kind {
        case .drained:
            lastFailure = nil
            end(.drained)
        case .held: end(nil)
        case .stopped: end(.stopped)
        case .paused:
            schedule(DeliveryStateMachine.probeInterval)
            end(.paused)
        case .backoff(let failures, let retryAfter):
            schedule(delay(failures, retryAfter))
        }
        rest()
    }

    /// - Parameter ending: nil if there is more to do.
    private func end(_ ending: Ending?) {
        self.ending = ending
        let waiting = endingWaiters
        endingWaiters = []
        for waiter in waiting { waiter.resume(returning: ending) }
    }

    private func delay(_ failures: Int, _ retryAfter: Duration?) -> Duration {
        func open(_ randomness: inout some RandomNumberGenerator & Sendable) -> Duration {
            retryPolicy.delay(failures: failures, retryAfter: retryAfter, using: &randomness)
        }
        return open(&randomness)
    }

    private func schedule(_ delay: Duration) {
        restNumber += 1
        let number = restNumber
        nextAttempt = clock.unixMilliseconds + Int64(delay / .milliseconds(1))
        timer = clock.schedule(after: delay) { [weak self] in
            Task { [weak self] in await self?.waitEnded(number) }
        }
    }

    private func waitEnded(_ number: Int) {
        // A timer that fired while it was being cancelled belongs to an older rest.
        guard number == restNumber, timer != nil else { return }
        // A policy's wish during the rest takes nothing from those who wait for the end.
        isManual = !endingWaiters.isEmpty
        begin(machine.waitEnded())
    }

    private func rest() {
        isResting = true
        let waiting = waiters
        waiters = []
        for waiter in waiting { waiter.resume(returning: isHeld) }
    }
}
