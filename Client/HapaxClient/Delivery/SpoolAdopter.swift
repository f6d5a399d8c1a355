import HapaxModel
import Logging

/// Delivers and removes the queues of clients that found the main queue taken.
///
/// A spool whose lock can be had belongs to nobody any more. It is delivered as the install it is, its dead letters go to the main queue,
/// and only an empty one is removed, while its lock is held. A crash anywhere leaves a spool that the next adopter takes up again.
actor SpoolAdopter {
    private let executor = BlockingExecutor(label: "hapax.spools")
    private let main: EventQueue
    private let durability: Durability
    private let endpoint: Endpoint
    private let transport: any EventTransport
    private let clock: any ClientClock
    private let logger: Logger?
    private let gate: RequestGate
    private let reporter: EventReporter
    /// Shared with the main queue: one server answers for all of them.
    private let witness: Locked<OutgoingEvent?>
    /// Whether the server has asked the main queue for a rest, or takes nothing of it for now (I16).
    private let leavesServerAlone: @Sendable () -> Bool
    private var running: Task<DeliveryState, Never>?
    private var current: Delivery<QueueBatchSource>?
    /// Begun so far, and whether somebody asked for the latest.
    private var looks = 0
    private var wasAskedFor = false
    private var counts = DeliveryCounts()
    /// What calls have reported already.
    private var reported = DeliveryCounts()
    private var isStopped = false
    /// In a row, since a spool was last delivered.
    private var failures = 0
    /// Monotonic; before that only a caller's wish tries again (I16).
    private var notBefore: Duration = .zero
    /// Where the latest look ended, if the server had refused all it got: the next one begins behind it.
    private var triedInVain: QueueDirectory?
    /// Why a spool could not be delivered at the latest look; nil if there was no such.
    nonisolated let failure = Locked<DeliveryFailure?>(nil)

    /// Stores the recovered end of a spool's session; durable on return. A result, because iOS 16 cannot keep a function that says what it
    /// throws (https://github.com/swiftlang/swift-evolution/blob/main/proposals/0413-typed-throws.md).
    nonisolated let sessionEnded = Locked<(@Sendable (EventQueue.OpenSession) async -> Result<Void, TrackError>)?>(nil)

    /// Where somebody asked for it, and the server refuses all it gets.
    private static let maximumVainRequests = 1_000

    /// Dead letters moved in one transaction.
    private static let lettersPerMove = 500

    init(
        main: EventQueue, durability: Durability, endpoint: Endpoint, transport: any EventTransport, clock: any ClientClock,
        logger: Logger?, gate: RequestGate, reporter: EventReporter, witness: Locked<OutgoingEvent?>,
        leavesServerAlone: @escaping @Sendable () -> Bool
    ) {
        self.leavesServerAlone = leavesServerAlone
        self.witness = witness
        self.gate = gate
        self.reporter = reporter
        self.main = main
        self.durability = durability
        self.endpoint = endpoint
        self.transport = transport
        self.clock = clock
        self.logger = logger
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Goes through the spools until the server takes nothing from one: the others would fare no better (I16). What it refuses of one says
    /// nothing about the others, though: they may have what it accepts, and that decides about what was refused (D13). Nor does a spool
    /// that the disk does not give.
    ///
    /// Called while under way, it goes through them once more: a queue may have been given up behind that look.
    ///
    /// - Returns: What was delivered since this call began and no other call has reported, and why it ended early if it did.
    /// - Parameter persistently: Whether a spool is tried backoff after backoff, until ``stop()``; also after a call that was under way.
    func adopt(persistently: Bool = false) async -> DeliveryState {
        await adopt(isManual: true, persistently: persistently)
    }

    private func adopt(isManual: Bool, persistently: Bool = false) async -> DeliveryState {
        let (before, looksBefore) = (counts, looks)
        var state: DeliveryState?
        while let running, state == nil {
            let beganSince = looks > looksBefore && wasAskedFor
            let joined = await running.value
            // That one may have given up at what a backoff later is over.
            if beganSince, !persistently { state = joined }
        }
        if state == nil {
            let task = Task {
                defer { running = nil }
                return await adoptAll(isManual: isManual, persistently: persistently)
            }
            (running, wasAskedFor) = (task, isManual)
            looks += 1
            state = await task.value
        }
        // Of calls that end together, one reports what was delivered.
        let delivered = counts - before.orLater(reported)
        if isManual { reported = counts }
        return DeliveryState(counts: delivered, failure: state?.failure, nextAttempt: state?.nextAttempt)
    }

    /// The same without being asked: looks for spools, and respects the backoff after one that could not be delivered.
    func adoptIfDue() async {
        guard running == nil, clock.monotonic >= notBefore, !leavesServerAlone() else { return }
        guard gate.permission(isManual: false) != .denied else { return }
        _ = await adopt(isManual: false)
    }

    func stop() async {
        isStopped = true
        await current?.stop()
        _ = await running?.value
    }

    private func adoptAll(isManual: Bool, persistently: Bool) async -> DeliveryState {
        var total = DeliveryState(counts: DeliveryCounts())
        var unusable: StorageFailure?
        var spools: [QueueDirectory] = []
        do throws(StorageFailure) { spools = try main.directory.spools() } catch { unusable = error }
        if let triedInVain, let index = spools.firstIndex(of: triedInVain) { spools = Array(spools[(index + 1)...] + spools[...index]) }
        triedInVain = nil
        var (left, undecided) = (spools[...], [QueueDirectory]())
        var refusal: DeliveryFailure?
        // Why a spool could not be read or changed, which says nothing about the others.
        var stuck: DeliveryFailure?
        while total.failure == nil {
            if left.isEmpty, witness.withLock({ $0 != nil }) { (left, undecided) = (undecided[...], []) }
            // The main queue may be told meanwhile.
            guard isManual || !leavesServerAlone(), let directory = left.popFirst() else {
                // Nothing was accepted from any.
                if !undecided.isEmpty { total.failure = refusal }
                break
            }
            if isStopped {
                total.failure = .shutDown
                break
            }
            var ids = UUIDv7Generator()
            let spool: EventQueue
            do throws(QueueOpenError) {
                spool = try EventQueue(
                    directory: directory, durability: durability, newInstallID: ids.next(unixMilliseconds: clock.unixMilliseconds),
                    isSpool: true, createsDirectory: false)
            } catch {
                // Its owner lives, or somebody has emptied and removed it; one that cannot be read is left for people to look at, and told.
                if case .unusable(let failure) = error, directory.isThere {
                    unusable = failure
                    logger?.warning("A spooled queue cannot be used", metadata: ["hapax.failure": "\(failure)"])
                }
                continue
            }
            if spool.isRedirected(to: endpoint) { reporter.redirected() }
            main.lendBallast(to: spool)
            let (delivered, awaitsWitness) = await deliver(spool, isManual: isManual, persistently: persistently)
            total.counts = total.counts + delivered.counts
            counts = counts + delivered.counts
            total.nextAttempt = [total.nextAttempt, delivered.nextAttempt].compactMap { $0 }.max()
            guard awaitsWitness else {
                if case .queue = delivered.failure { stuck = delivered.failure } else { total.failure = delivered.failure }
                continue
            }
            undecided.append(directory)
            refusal = delivered.failure
            if total.counts.attempts >= (isManual ? Self.maximumVainRequests : DeliveryStateMachine.maximumSuspects) {
                triedInVain = directory
                total.failure = refusal
            }
        }
        do { try main.gatherDrops() } catch { unusable = StorageFailure(error) }
        total.failure = total.failure ?? stuck
        rest(after: total)
        total.failure = total.failure ?? unusable.map { .queue($0) }
        failure.withLock { $0 = total.failure }
        return total
    }

    /// Each attempt is another delivery's first, so the failures before it are counted here; what the server asked for, it knows.
    private func rest(after total: DeliveryState) {
        guard total.failure != nil else {
            failures = 0
            notBefore = .zero
            return
        }
        failures += 1
        var randomness = SystemRandomNumberGenerator()
        let backoff = RetryPolicy.delivery.delay(failures: failures, using: &randomness)
        let asked = total.nextAttempt.map { Duration.milliseconds($0 - clock.unixMilliseconds) } ?? .zero
        notBefore = clock.monotonic + max(backoff, asked)
    }

    /// - Returns: What came of it, and whether that depends on what the server makes of other events.
    private func deliver(_ spool: EventQueue, isManual: Bool, persistently: Bool) async -> (state: DeliveryState, awaitsWitness: Bool) {
        var observer = DamageObserver()
        observer.buried = { [reporter] in reporter.settled($0, .all) }
        spool.observeDamage(observer)
        let delivery = Delivery(
            source: QueueBatchSource(queue: spool, clock: clock, settled: { [reporter] in reporter.settled($0, .all) }),
            endpoint: endpoint, transport: transport, clock: clock, logger: logger, witness: witness,
            attempted: { [reporter] in reporter.attempted(in: $0, answer: $1) },
            gate: { [gate] _ in gate.permission(isManual: isManual) })
        current = delivery
        if persistently { _ = await delivery.deliverAll() }
        var state = persistently ? await delivery.state : await delivery.drain()
        var awaitsWitness = await delivery.awaitsWitness
        await delivery.stop()
        main.addUnreportedLetters(spool.takeUnreportedLetters())
        current = nil
        var isRemoved = false
        var damaged: [DamagedFile] = []
        do {
            try await endSession(of: spool)
            try moveDeadLetters(of: spool)
            // What is to be told of it is told by the main queue: the spool is gone then.
            isRemoved = try spool.removeIfEmpty(adoptedBy: {
                try main.adopt($0)
                damaged = $0.damaged
            })
        } catch TrackError.notStored(let failure) {
            (state.failure, awaitsWitness) = (.queue(failure), false)
        } catch {
            (state.failure, awaitsWitness) = (.queue(StorageFailure(error)), false)
        }
        spool.close()
        // What is not taken now, as behind a shutdown, the main queue's next start tells.
        if isRemoved { for file in damaged { main.tellOfSalvaged(file) } }
        return (state, awaitsWitness)
    }

    /// Nobody else will end the session of an app that is gone. The event is durable in the main queue before the spool forgets it.
    private func endSession(of spool: EventQueue) async throws {
        guard let session = try spool.openSession(), let end = sessionEnded.withLock({ $0 }) else { return }
        do throws(TrackError) {
            try await end(session).get()
        } catch {
            switch error {
            // To somebody who does not want events none is owed.
            case .refused(let reason) where !reason.passes: break
            // Too old for this queue's quota, as a rule; and counted.
            case .discarded: break
            // It stays, with its spool, and holds no other up.
            case .refused, .shutDown: return
            case .notStored: throw error
            }
        }
        try spool.removeSession(start: session.start)
    }

    /// First they are durable in the main queue, then they leave the spool; in between they are in both, and adopting them again is nothing.
    private func moveDeadLetters(of spool: EventQueue) throws {
        while true {
            let letters = try spool.deadLetters(after: 0, limit: Self.lettersPerMove)
            if letters.isEmpty { return }
            try main.adoptDeadLetters(letters.map { $0.belonging(to: spool.installID) })
            _ = try spool.purgeDeadLetters(letters.map(\.number))
        }
    }
}
