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
    let parts: Parts
    var batchIDs = UUIDv7Generator()
    var randomness: any RandomNumberGenerator & Sendable

    var size: BatchSize
    /// By the installs of their files.
    var machines: [EventID: DeliveryStateMachine] = [:]
    /// Of any file, uncompressed: a proxy may spoil only those that are compressed.
    var acceptedBatches = 0
    private var isStepping = false
    private(set) var waiters: [CheckedContinuation<Void, Never>] = []
    var isStopped = false

    /// Failures in a row, and until when a policy sends nothing, by the monotonic clock.
    var failures = 0
    var notBefore = Duration.zero
    var timer: (any ScheduledAction)?
    var timerNumber = 0
    private(set) var pass: Task<Void, Never>?
    private var isWantedAgain = false
    /// Who waits for the end of a rest.
    var rests: [CommitWaiter] = []

    /// Of the own file.
    private var counts = DeliveryCounts() { didSet { publish() } }
    /// What calls have reported already.
    private var reported = DeliveryCounts()
    var lastFailure: DeliveryFailure? { didSet { publish() } }
    /// What the server said of it, or of what it refused in another file.
    var lastDetail: String? { didSet { publish() } }
    var refusals = RefusalEpisode()
    /// Of requests that something else than the server refuses, while others pass.
    var detours = RefusalEpisode()
    var nextAttempt: Int64? { didSet { publish() } }
    /// Whether requests are compressed; off once this was seen to fail on the way, until the process ends.
    var compresses = true
    /// Why events are held, or do not pass.
    var lastRefusal: DeliveryFailure?
    private let published = Locked(DeliveryState(counts: DeliveryCounts()))

    /// What a delivery works with.
    struct Parts: Sendable {
        var endpoint: Endpoint
        var transport: any EventTransport
        var clock: any ClientClock
        var pause: DestinationPause
        var notes: DestinationNotes
        var logger: Logger?
        var retryPolicy = RetryPolicy.delivery
        var randomness: any RandomNumberGenerator & Sendable = SystemRandomNumberGenerator()
        /// What the user has agreed to, asked before every request.
        var consent: @Sendable () -> KeptConsent = { KeptConsent(consent: .granted) }
        /// Asked before every request, with whether somebody asked for its pass (R23, R31, R33).
        var gate: @Sendable (_ isManual: Bool) -> RequestPermission = { _ in .granted(timeout: nil) }
        /// Called when a pass begins that nobody asked for; what it returns, when that ends.
        var beginPass: @Sendable () -> @Sendable () -> Void = { {} }
        /// Called after each request, with how long it took.
        var attempted: @Sendable (Duration, AnswerClassifier.Answer) -> Void = { _, _ in }
        /// Called with the project that a receipt names.
        var named: @Sendable (_ project: String) -> Void = { _ in }
        /// Called after a settlement, with whether it was the client's own file's; and after other changes of the counters.
        var settled: @Sendable ([Settlement], DeliveryScope) -> Void = { _, _ in }
        /// Makes an event of the client's own, as that a file was damaged.
        var makeEvent: MakeEvent
    }

    /// nil while the user denies consent.
    typealias MakeEvent = @Sendable (_ name: String, _ id: EventID, Properties, Origin) -> PreparedEvent?

    /// Of an event that the client makes itself.
    struct Origin: Sendable {
        /// Whether it is of the client's own file: another process's events have nothing of this one's common properties.
        var isOwn: Bool
        /// nil: now.
        var time: Int64?
        /// nil: whom this client's events concern.
        var distinctID: String?
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
        /// What the server said of it.
        package var detail: String?
    }

    init(_ file: QueueFile, _ parts: Parts) {
        self.file = file
        self.parts = parts
        randomness = parts.randomness
        size = BatchSize(first: parts.endpoint.batchSize, grows: parts.endpoint.batchSizeGrows)
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    package var state: DeliveryState { DeliveryState(counts: counts, failure: lastFailure, detail: lastDetail, nextAttempt: nextAttempt) }

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
            let end = parts.beginPass()
            repeat {
                isWantedAgain = false
                while await step(file, isManual: false).next == .more {}
            } while isWantedAgain && !isResting && !isStopped
            pass = nil
            end()
        }
    }

    /// The last event of a file that is to be sent, as it stands at one moment.
    struct Bound: Hashable, Sendable {
        var install: EventID
        var sequence: Int64

        /// nil while a damaged file is recovered: its events come again under later sequences.
        init?(_ file: QueueFile) {
            guard !file.isRecovering else { return nil }
            (install, sequence) = (file.counters.installID, file.counters.created)
        }
    }

    /// Delivers until nothing waits or an attempt fails, during a rest at once (R13), and goes on only while `permission` is granted.
    ///
    /// - Parameters:
    ///   - bound: What comes after it is left; nil for all.
    ///   - isReported: Whether somebody reads what it has delivered.
    /// - Returns: What was delivered since this call began and no other call has reported, and why it ended early if it did.
    func drain(
        isManual: Bool = true, upTo bound: Bound? = nil, isReported: Bool = true, permission: (@Sendable () -> RequestPermission)? = nil
    ) async -> (state: DeliveryState, next: Step.Next) {
        let before = counts
        var last = Step(next: .more)
        while last.next == .more { last = await step(file, isManual: isManual, upTo: bound, permission: permission) }
        var state = state
        state.counts = counts - before.orLater(reported)
        if isReported { reported = counts }
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

    /// Changes the file while no request is under way, behind the one in flight.
    func exclusively<Value>(_ change: () throws -> Value) async rethrows -> Value {
        await beginStep()
        defer { endStep() }
        machines[file.counters.installID]?.rested()
        return try change()
    }

    /// Does what the user has decided about what waits for it, behind the request that is under way.
    func consentChanged() async {
        // What fails is done by the next commit, or before the next request.
        if (try? await exclusively { try file.decidePending(parts.consent()) }) == true { parts.settled([], .own) }
        uploadWanted()
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
    ///   - bound: What comes after it is left.
    ///   - asksProject: Whether there is a request also if nothing waits: its receipt names the project.
    ///   - permission: Asked before the request.
    func step(
        _ file: QueueFile, isManual: Bool, upTo bound: Bound? = nil, asksProject: Bool = false,
        permission: (@Sendable () -> RequestPermission)? = nil
    ) async -> Step {
        await beginStep()
        defer { endStep() }
        let isOwn = file === self.file
        var step = await attempt(file, isManual: isManual, upTo: bound, asksProject: asksProject, permission: permission)
        if isOwn { counts = counts + step.counts }
        conclude(&step, isOwn: isOwn, file)
        return step
    }
}
