import HapaxModel
import Logging

/// Sends what files hold, one request at a time: ``step(_:isManual:permission:)`` reads a batch, sends it and settles it in one transaction.
///
/// A pass is a loop of steps. Whoever wants one (the timer, a count, `flush`, the background, a shutdown, a file that nobody owns) loops with
/// its own permission; steps of several loops follow each other.
package actor Delivery {
    private let executor = BlockingExecutor(label: "hapax.delivery")
    /// The client's own file.
    let file: QueueFile
    private let parts: Parts
    private var batchIDs = UUIDv7Generator()
    private var randomness: any RandomNumberGenerator & Sendable

    /// By the installs of their files.
    private var machines: [EventID: DeliveryStateMachine] = [:]
    /// Of any file.
    private var acceptedBatches = 0
    private var isStepping = false
    private(set) var waiters: [CheckedContinuation<Void, Never>] = []
    private var isStopped = false

    /// Failures in a row, and until when a policy sends nothing, by the monotonic clock.
    private var failures = 0
    private var notBefore = Duration.zero
    private var timer: (any ScheduledAction)?
    private var timerNumber = 0
    private(set) var pass: Task<Void, Never>?
    private var isWantedAgain = false

    /// Of the own file.
    private var counts = DeliveryCounts() { didSet { publish() } }
    /// What calls have reported already.
    private var reported = DeliveryCounts()
    private var lastFailure: DeliveryFailure? { didSet { publish() } }
    private var nextAttempt: Int64? { didSet { publish() } }
    /// Why events are held.
    private var lastRefusal: DeliveryFailure?
    private let published = Locked(DeliveryState(counts: DeliveryCounts()))

    /// What a delivery works with.
    struct Parts: Sendable {
        var endpoint: Endpoint
        var transport: any EventTransport
        var clock: any ClientClock
        var pause: DestinationPause
        var logger: Logger?
        var retryPolicy = RetryPolicy.delivery
        var randomness: any RandomNumberGenerator & Sendable = SystemRandomNumberGenerator()
        /// Asked before every request, with whether somebody asked for its pass (R23, R31, R33).
        var gate: @Sendable (_ isManual: Bool) -> RequestPermission = { _ in .granted(timeout: nil) }
        /// Told of each request, with how long it took.
        var attempted: @Sendable (Duration, AnswerClassifier.Answer) -> Void = { _, _ in }
        /// Told of what was settled, and whether it was the client's own file's; and of other changes of the counters.
        var settled: @Sendable ([Settlement], DeliveryScope) -> Void = { _, _ in }
        /// Makes an event of the client's own, as that a file was damaged.
        var makeEvent: @Sendable (_ name: String, _ id: EventID, Properties, _ time: Int64?, _ distinctID: String?) -> PreparedEvent
    }

    /// What one step came to.
    package struct Step: Sendable {
        package enum Next: Hashable, Sendable {
            /// Call again.
            case more
            /// Nothing waits.
            case drained
            /// Nothing but events that the server has refused alone: they wait for others that it accepts, or to be tried again.
            case onlyHeld
            /// Whoever limits the pass wants no other request now.
            case held
            /// No request may be made now.
            case denied
            /// Nothing more is sent for so long, but for who asks.
            case wait(Duration)
            /// The same, for a reason that time alone does not change.
            case pause(Duration)
            case stopped
        }

        package var next: Next
        package var counts = DeliveryCounts()
        package var failure: DeliveryFailure?
    }

    init(_ file: QueueFile, _ parts: Parts) {
        self.file = file
        self.parts = parts
        randomness = parts.randomness
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    package var state: DeliveryState { DeliveryState(counts: counts, failure: lastFailure, nextAttempt: nextAttempt) }

    /// The same for those who must not wait: the actor may be waiting for the disk.
    package nonisolated var latestState: DeliveryState { published.withLock { $0 } }

    private func publish() {
        let state = state
        published.withLock { $0 = state }
    }

    // MARK: - Passes

    /// Starts a pass that nobody waits for, unless a rest is under way.
    func uploadWanted() {
        guard pass == nil else {
            isWantedAgain = true
            return
        }
        guard !isResting, !isStopped else { return }
        begin()
    }

    private func begin() {
        pass = Task {
            repeat {
                isWantedAgain = false
                while await step(file, isManual: false).next == .more {}
            } while isWantedAgain && !isResting && !isStopped
            pass = nil
        }
    }

    /// Whether a policy may not send, because of this client's failures or another's to the same server.
    var isResting: Bool {
        if parts.clock.monotonic < notBefore { return true }
        let now = parts.clock.unixMilliseconds
        guard let pause = parts.pause.current(now: now), pause.until > now else { return false }
        if timer == nil { schedule(.milliseconds(pause.until - now)) }
        return true
    }

    /// Delivers until nothing waits or an attempt fails, during a rest at once (R13), and goes on only while `permission` is granted.
    ///
    /// - Returns: What was delivered since this call began and no other call has reported, and why it ended early if it did.
    package func drain(
        isManual: Bool = true, permission: (@Sendable () -> RequestPermission)? = nil
    ) async -> (state: DeliveryState, next: Step.Next) {
        let before = counts
        var last = Step(next: .more)
        while last.next == .more { last = await step(file, isManual: isManual, permission: permission) }
        var state = state
        state.counts = counts - before.orLater(reported)
        // Of a pass within limits nobody reads more than whether something was sent.
        if permission == nil { reported = counts }
        state.failure = last.failure
        return (state, last.next)
    }

    /// Delivers, backoff after backoff, until nothing waits, the server refuses for a reason that time does not change, or ``stop()`` is
    /// called. Backoffs begin anew, however often delivery has failed before; a server's `Retry-After` is obeyed.
    package func deliverAll() async -> Step {
        failures = 0
        parts.pause.forgive()
        while true {
            let step = await stepThroughRests()
            if step.next != .more { return step }
        }
    }

    /// One step of the own file; a rest behind it is waited for.
    func stepThroughRests() async -> Step {
        var step = await step(file, isManual: true)
        guard case .wait = step.next else { return step }
        await restEnds()
        step.next = isStopped ? .stopped : .more
        return step
    }

    /// Returns when the rest is over, or there is no reason for it any more.
    private func restEnds() async {
        if isStopped { return }
        let end = CommitWaiter()
        rests.append(end)
        _ = try? await end.wait()
    }

    private func endRests() {
        for end in rests { end.tell(.success(nil)) }
        rests = []
    }

    /// Who waits for the end of a rest.
    private var rests: [CommitWaiter] = []

    /// Changes the file while no request is under way, behind the one in flight.
    func exclusively<Value>(_ change: () throws -> Value) async rethrows -> Value {
        await beginStep()
        defer { endStep() }
        machines[file.counters.installID]?.rested()
        return try change()
    }

    /// On this actor's thread, also while a request is in flight.
    func perform<Value: Sendable>(_ work: @Sendable () throws -> Value) rethrows -> Value { try work() }

    /// Nothing is sent any more. What is in flight must be ended by closing the transport; returns when it has ended.
    package func stop() async {
        isStopped = true
        timer?.cancel()
        timer = nil
        nextAttempt = nil
        endRests()
        await beginStep()
        endStep()
    }

    // MARK: - One step at a time

    private func beginStep() async {
        guard isStepping else {
            isStepping = true
            return
        }
        await withCheckedContinuation { waiters.append($0) }
    }

    /// Whoever waits has the next turn, in the order in which they came.
    private func endStep() {
        if waiters.isEmpty { isStepping = false } else { waiters.removeFirst().resume() }
    }

    /// Sends one request of a file, or finds that there is nothing to send.
    ///
    /// - Parameters:
    ///   - isManual: Whether somebody asked: then a rest is cut short.
    ///   - permission: Asked before the request.
    func step(
        _ file: QueueFile, isManual: Bool, permission: (@Sendable () -> RequestPermission)? = nil
    ) async -> Step {
        await beginStep()
        defer { endStep() }
        let isOwn = file === self.file
        var step = await perform(file, isManual: isManual, permission: permission)
        if isOwn { counts = counts + step.counts }
        conclude(&step, isOwn: isOwn, file)
        return step
    }

    private func perform(_ file: QueueFile, isManual: Bool, permission: (@Sendable () -> RequestPermission)?) async -> Step {
        if isStopped { return Step(next: .stopped, failure: .shutDown) }
        if !isManual, isResting { return Step(next: .held) }
        var step = Step(next: .more)
        let (plan, batch): (DeliveryStateMachine.Plan, QueueBatch)
        let recoveryFailure = recover(file)
        do {
            (plan, batch) = try read(file, isManual: isManual)
        } catch {
            step.failure = .queue(StorageFailure(error))
            return backingOff(step)
        }
        step.counts.deadLettered = batch.damaged.count
        switch plan {
        case .batch: break
        case .drained, .onlyHeld:
            guard file.isRecovering else {
                step.next = plan == .drained ? .drained : .onlyHeld
                if plan == .onlyHeld { step.failure = lastRefusal }
                return step
            }
            step.failure = recoveryFailure
            return recoveryFailure == nil ? step : backingOff(step)
        }
        switch permission?() {
        case .denied?: return Step(next: .denied, counts: step.counts)
        case .unwanted?: return Step(next: .held, counts: step.counts)
        default: break
        }
        guard case .granted(let timeout) = parts.gate(isManual) else {
            // A policy tries again by itself; who asked must learn of it.
            return Step(next: .denied, counts: step.counts, failure: isManual ? .noBackgroundTime : nil)
        }
        let answer = await send(batch, timeout: timeout)
        step.counts.attempts += 1
        return received(answer, batch, wasHeld: plan == .batch(.held), file, step)
    }

    /// A chunk of what a damaged file held. What cannot be recovered now, as on a full disk, keeps nothing else back.
    private func recover(_ file: QueueFile) -> DeliveryFailure? {
        guard file.isRecovering else { return nil }
        do {
            _ = try file.recoverChunk(now: parts.clock.unixMilliseconds) { parts.makeEvent($0, $1, $2, nil, nil) }
            return nil
        } catch {
            return .queue(StorageFailure(error))
        }
    }

    private func read(_ file: QueueFile, isManual: Bool) throws -> (DeliveryStateMachine.Plan, QueueBatch) {
        let now = parts.clock.unixMilliseconds
        if try file.removeDue(now: now) { parts.settled([], .own) }
        var damaged: [Settlement] = []
        // Until something is found: all of a batch may have been damaged, and damage of the file makes another one take over.
        while true {
            let plan = machine(of: file) {
                $0.plan(file.counters, isManual: isManual, accepted: acceptedBatches, now: parts.clock.monotonic)
            }
            guard case .batch(let kind) = plan else { return (plan, QueueBatch(damaged: damaged)) }
            var batch = try file.nextBatch(kind, maximumBytes: parts.endpoint.maximumBatchBytes, now: now)
            if !batch.damaged.isEmpty { parts.settled(batch.damaged, file === self.file ? .own : .all) }
            damaged += batch.damaged
            batch.damaged = damaged
            if !batch.events.isEmpty || kind == .none { return (plan, batch) }
        }
    }

    private func machine<Value>(of file: QueueFile, _ body: (inout DeliveryStateMachine) -> Value) -> Value {
        body(&machines[file.counters.installID, default: DeliveryStateMachine(batchSize: parts.endpoint.batchSize)])
    }

    private func send(_ batch: QueueBatch, timeout: Duration?) async -> AnswerClassifier.Answer {
        let batchID = batchIDs.next(unixMilliseconds: parts.clock.unixMilliseconds)
        var envelope = batch.said.envelope
        envelope.batchID = batchID
        envelope.sentAt = min(max(parts.clock.unixMilliseconds, 0), EventLimits.maximumTime)
        var request = parts.endpoint.request(EventBatch(envelope: envelope, events: batch.events.map(\.wire)).encoded())
        request.timeout = timeout ?? request.timeout
        let start = parts.clock.monotonic
        let outcome = await parts.transport.send(request)
        let answer = AnswerClassifier.classify(
            outcome, batchID: batchID, sent: batch.events.map(\.id), now: parts.clock.unixMilliseconds)
        parts.attempted(parts.clock.monotonic - start, answer)
        return answer
    }

    private func received(
        _ answer: AnswerClassifier.Answer, _ batch: QueueBatch, wasHeld: Bool, _ file: QueueFile, _ before: Step
    ) -> Step {
        var step = before
        machine(of: file) { $0.requested(now: parts.clock.monotonic) }
        do {
            switch answer {
            case .accepted(let verdicts): return try settle(verdicts, batch, file, step)
            case .batchRefused(let code):
                step.failure = .status(code.status, code: code.rawValue)
                lastRefusal = step.failure
                guard let first = batch.events.first?.sequence else {
                    step.next = .pause(DeliveryStateMachine.probeInterval)
                    return step
                }
                let next = machine(of: file) {
                    $0.refused(
                        count: batch.events.count, first: first, code, wasHeld: wasHeld, accepted: acceptedBatches)
                }
                if next == .more { return step }
                if next == .bury {
                    let outcome = BatchOutcome(buried: [first: Self.reason(code)])
                    _ = record(try file.settle(outcome, now: parts.clock.unixMilliseconds), file, &step)
                    return step
                }
                try file.hold(first)
                // What others have left keeps nobody else waiting.
                if next == .holdAndPause { step.next = file === self.file ? .pause(DeliveryStateMachine.probeInterval) : .onlyHeld }
                return step
            case .tryLater(let failure, let retryAfter):
                step.failure = failure
                return backingOff(step, retryAfter)
            case .pause(let failure):
                step.failure = failure
                step.next = .pause(DeliveryStateMachine.probeInterval)
                return step
            }
        } catch {
            step.failure = .queue(StorageFailure(error))
            return backingOff(step)
        }
    }

    private func settle(_ verdicts: [Receipt.Result], _ batch: QueueBatch, _ file: QueueFile, _ before: Step) throws -> Step {
        var step = before
        var outcome = BatchOutcome(said: batch.said)
        outcome.settlements = zip(batch.events, verdicts).compactMap { event, verdict in
            Self.fate(verdict).map { Settlement(event: event, fate: $0) }
        }
        if !outcome.settlements.isEmpty { acceptedBatches += 1 }
        if case .bury(let suspects) = machine(of: file, { $0.accepted(outcome.settlements.count) }) {
            // One of them may be what the server has accepted.
            let settled = Set(outcome.settlements.map(\.event.sequence))
            for (sequence, code) in suspects where !settled.contains(sequence) {
                outcome.buried[sequence] = Self.reason(code)
            }
            outcome.releasesHeld = true
        }
        let released = record(try file.settle(outcome, now: parts.clock.unixMilliseconds), file, &step)
        machine(of: file) { $0.released(released) }
        let kept = batch.events.count - outcome.settlements.count
        guard kept > 0 else { return step }
        step.failure = .askedToRetry(events: kept)
        return backingOff(step)
    }

    private static func reason(_ code: RequestProblem.Code) -> (reason: String, detail: String) {
        (code.rawValue, "\(DeliveryFailure.status(code.status, code: code.rawValue))")
    }

    /// - Returns: Held events that are tried again.
    private func record(_ done: (settled: [Settlement], released: [Int64]), _ file: QueueFile, _ step: inout Step) -> [Int64] {
        for settlement in done.settled { step.counts.count(settlement.fate) }
        parts.settled(done.settled, file === self.file ? .own : .all)
        return done.released
    }

    /// nil: the event stays where it is.
    private static func fate(_ verdict: Receipt.Result) -> Settlement.Fate? {
        switch verdict.outcome {
        case .stored: .stored
        case .duplicate: .duplicate
        case .conflict, .rejected, .expired:
            .deadLetter(
                reason: String((verdict.reason ?? verdict.outcome.rawValue).prefix(64)), detail: String((verdict.detail ?? "").prefix(500)))
        case .retry: nil
        }
    }

    // MARK: - Resting

    private func backingOff(_ step: Step, _ retryAfter: Duration? = nil) -> Step {
        var step = step
        failures = max(failures, parts.pause.current(now: parts.clock.unixMilliseconds)?.failures ?? 0) + 1
        func open(_ randomness: inout some RandomNumberGenerator & Sendable) -> Duration {
            parts.retryPolicy.delay(failures: failures, retryAfter: retryAfter, using: &randomness)
        }
        step.next = .wait(open(&randomness))
        return step
    }

    private func conclude(_ step: inout Step, isOwn: Bool, _ file: QueueFile) {
        switch step.next {
        case .more:
            if step.failure == nil, step.counts.attempts > 0 { answered() }
            if step.failure != nil || step.counts.attempts > 0 { note(step.failure, isOwn) }
            return
        case .drained:
            if step.failure == nil, isOwn { lastFailure = nil }
        case .wait(let delay), .pause(let delay):
            note(step.failure, isOwn)
            // Another file's trouble is its own.
            if !isOwn, case .queue? = step.failure { break }
            schedule(delay)
            notBefore = parts.clock.monotonic + delay
            let until = parts.clock.unixMilliseconds + Int64(delay / .milliseconds(1))
            if case .queue? = step.failure {} else { parts.pause.set(DestinationPause.Pause(until: until, failures: failures)) }
        case .onlyHeld:
            // Others may come meanwhile, and are sent at once.
            note(step.failure, isOwn)
            if isOwn { schedule(DeliveryStateMachine.probeInterval) }
            return
        case .held: return
        case .denied, .stopped: break
        }
        machine(of: file) { $0.rested() }
    }

    private func note(_ failure: DeliveryFailure?, _ isOwn: Bool) {
        if let failure {
            // That we ended an attempt ourselves says less than why the one before failed.
            if failure == .transport(.aborted), lastFailure != nil { return }
            parts.logger?.info("Upload failed", metadata: ["hapax.failure": "\(failure)"])
        }
        if isOwn { lastFailure = failure }
    }

    private func answered() {
        failures = 0
        notBefore = .zero
        timer?.cancel()
        timer = nil
        nextAttempt = nil
        endRests()
        parts.pause.set(nil)
    }

    private func schedule(_ delay: Duration) {
        timer?.cancel()
        guard !isStopped else { return }
        timerNumber += 1
        let number = timerNumber
        nextAttempt = parts.clock.unixMilliseconds + Int64(delay / .milliseconds(1))
        timer = parts.clock.schedule(after: delay) { [weak self] in
            Task { [weak self] in await self?.waitEnded(number) }
        }
    }

    private func waitEnded(_ number: Int) {
        // A timer that fired while it was being cancelled belongs to an older rest.
        guard number == timerNumber, timer != nil else { return }
        timer = nil
        nextAttempt = nil
        notBefore = .zero
        endRests()
        uploadWanted()
    }
}
