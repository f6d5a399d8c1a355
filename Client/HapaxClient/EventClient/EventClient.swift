import CoreMetrics
import HapaxModel

/// Takes events, keeps them on disk until the server has acknowledged each, and never loses or reorders one.
///
/// Safe to use from any thread. One client at a time works on a queue directory.
public final class EventClient: Sendable {
    let configuration: Configuration
    let queue: EventQueue
    let writer: QueueWriter
    let delivery: Delivery<QueueBatchSource>
    let scheduler: UploadScheduler
    let adopter: SpoolAdopter?
    let transport: any EventTransport
    let clock: any ClientClock
    let flushesBeforeBackground: Locked<Bool>
    let timers = Locked(EventTimers())
    let lifecycle = AppLifecycle()
    let gate: RequestGate
    let session: SessionMarker
    /// Whether refusals are to be counted on disk by a commit of their own.
    let isCountScheduled = Locked(false)
    /// Of the directory, so that it holds for those who spool there, too.
    let optOutMark: Locked<OptOutMark>
    /// What became of the file until the queue was closed; nil before.
    let fileAtClose = Locked<EventQueue.FileState?>(nil)
    let reporter: EventReporter
    /// Why it does not know for whom it acts.
    let identityFailure: StorageFailure?

    /// Opens the queue and begins to upload what is in it.
    ///
    /// - Throws: ``StartError``; nothing has been changed then.
    public static func start(_ configuration: Configuration) throws(StartError) -> EventClient {
        try start(configuration) { $1() }
    }

    /// A step of the start that asks the app's code, which may ask for the client.
    typealias Recovery = (EventClient, _ recover: () -> Void) -> Void

    static func start(_ configuration: Configuration, recovery: Recovery) throws(StartError) -> EventClient {
        try start(configuration, clock: SystemClock(), recovery: recovery) { SystemTransport.make() }
    }

    package static func start(
        _ configuration: Configuration, clock: any ClientClock, transport: () -> any EventTransport
    ) throws(StartError) -> EventClient {
        try start(configuration, clock: clock, recovery: { $1() }, transport: transport)
    }

    static func start(
        _ configuration: Configuration, clock: any ClientClock, recovery: Recovery, transport: () -> any EventTransport
    ) throws(StartError) -> EventClient {
        let endpoint = try configuration.endpoint()
        Configuration.prepareNetwork()
        try configuration.checkDirectory(refusingSharedContainers: SharedContainer.isRefused)
        let queue: EventQueue
        do throws(QueueOpenError) {
            queue = try EventQueue.open(
                configuration.queueDirectory, whenTaken: configuration.whenQueueIsTaken, durability: configuration.durability,
                quota: configuration.quota, clock: clock)
        } catch {
            switch error {
            case .taken: throw .queueTaken
            case .unusable(let failure): throw .queueUnusable(failure)
            }
        }
        let client: EventClient
        do {
            client = try EventClient(configuration, endpoint, queue, clock: clock, transport: transport())
        } catch {
            queue.close()
            throw .queueUnusable(StorageFailure(error))
        }
        let isRedirected = queue.isRedirected(to: endpoint)
        // Tells of damage that opening found, and takes over what can be read; an upload waits for it.
        Task { [queue = client.queue] in await queue.salvage() }
        recovery(client) {
            client.recoverAppEnd()
            // A logger may ask for the client as well.
            if isRedirected { client.reporter.redirected() }
            if let failure = client.identityFailure { client.reporter.identityIsUnknown(failure) }
        }
        client.scheduler.startTimer()
        client.scheduler.eventsStored(depth: Int(queue.books.depth), immediate: false)
        if let adopter = client.adopter, client.scheduler.policy.uploadsByItself { Task { await adopter.adoptIfDue() } }
        return client
    }

    private init(
        _ configuration: Configuration, _ endpoint: Endpoint, _ queue: EventQueue, clock: any ClientClock, transport: any EventTransport
    ) throws {
        self.configuration = configuration
        self.queue = queue
        self.clock = clock
        self.transport = transport
        flushesBeforeBackground = Locked(configuration.flushBeforeEnterBackground)
        optOutMark = Locked(OptOutMark(path: QueueDirectory(path: configuration.queueDirectory).optOutPath))
        let (context, identityFailure) = try Self.context(configuration, queue)
        self.identityFailure = identityFailure
        // The last that may meet damage before the queue tells of it: those of a file that is set aside then must not be taken for waiting.
        let ids = try queue.waitingIDs()

        // The parts know each other only through these closures; each holds what it calls, and nothing holds the client.
        let policy = FlushPolicy(
            bulkSize: configuration.flushBulkSize, interval: configuration.flushInterval, immediateEvents: configuration.immediateEvents,
            networkPolicy: configuration.flushNetworkPolicy, preset: configuration.preset,
            isAutomatic: configuration.uploadsAutomatically, now: clock.monotonic)
        let later = Locked<Delivery<QueueBatchSource>?>(nil)
        let laterAdopter = Locked<SpoolAdopter?>(nil)
        let scheduler = UploadScheduler(
            policy: policy, clock: clock, depth: { max(Int(queue.books.depth), queue.unsalvagedFiles) }, network: configuration.network,
            ticked: {
                guard let adopter = laterAdopter.withLock({ $0 }) else { return }
                Task { await adopter.adoptIfDue() }
            }
        ) {
            guard let delivery = later.withLock({ $0 }) else { return }
            Task { await delivery.uploadWanted(manual: false) }
        }
        // Weakly: the scheduler leads to the delivery, which keeps the gate.
        let gate = RequestGate(lifecycle: lifecycle) { [weak scheduler] in
            guard let policy = scheduler?.policy else { return false }
            return policy.uploadsByItself && policy.allows(configuration.network())
        }
        self.gate = gate
        let debug = configuration.debugMode ? DebugMode(output: configuration.debugOutput) : nil
        let session = SessionMarker(queue: queue, clock: clock)
        let ownIntake = Locked<Locked<Intake>?>(nil)
        let reporter = EventReporter(
            factory: configuration.metricsFactory ?? MetricsSystem.factory, logger: configuration.logger
        ) { queue.books }
        self.reporter = reporter
        let writer = QueueWriter(
            intake: Intake(
                lastSequence: queue.books.lastSequence, waitingIDs: ids, capacity: configuration.mailboxCapacity,
                maximumBytes: configuration.mailboxBytes, context: context, quota: queue.account),
            clock: clock, maximumGroupBytes: queue.room.groupBytes,
            immediateEvents: { debug == nil ? scheduler.policy.immediateEvents : nil },
            commit: { [optOutMark] events, dropped, committed in
                // Another client may have opted out, or in, beside this one: track itself asks no disk.
                ownIntake.withLock { $0 }.map { Self.follow(optOutMark, $0) }
                let appended = try queue.append(events, dropped: dropped, now: clock.unixMilliseconds, committed: committed)
                debug?.stored(appended.events)
                return QueueWriter.Committed(depth: Int(queue.books.depth), appended: appended)
            },
            flush: { try queue.flushDrive() },
            reporter: reporter,
            stored: {
                session.eventsStored()
                scheduler.eventsStored(depth: $0.depth, immediate: $0.immediate)
            })
        self.session = session
        let intake = writer.intake
        ownIntake.withLock { $0 = intake }
        // Weakly: who waits in the mailbox may hold the queue.
        queue.observeWaitingIDs { [weak intake] change in intake?.withLock { $0.waitingChanged(change) } }
        let source = QueueBatchSource(
            queue: queue, clock: clock, discarded: { reporter.booksChanged() }, settled: { reporter.settled($0) })
        let witness = Locked<OutgoingEvent?>(nil)
        delivery = Delivery(
            source: source, endpoint: endpoint, transport: transport, clock: clock, logger: configuration.logger, witness: witness,
            attempted: { reporter.attempted(in: $0, answer: $1) }, gate: { gate.permission(isManual: $0) })
        later.withLock { [delivery] in $0 = delivery }
        self.scheduler = scheduler
        self.writer = writer
        queue.observeDamage(Self.damageObserver(queue, writer, session, reporter, clock))
        adopter =
            queue.isSpool
            ? nil
            : SpoolAdopter(
                main: queue, durability: configuration.durability, endpoint: endpoint, transport: transport, clock: clock,
                logger: configuration.logger, gate: gate, reporter: reporter, witness: witness,
                leavesServerAlone: { [delivery] in delivery.leavesServerAlone || delivery.isUnanswered.withLock { $0 } })
        laterAdopter.withLock { [adopter] in $0 = adopter }
        adopter?.sessionEnded.withLock { $0 = { [weak self] in await self?.recoverAppEnd(of: $0) ?? .failure(.shutDown) } }
    }

    deinit {
        scheduler.stop()
        transport.close()
        reporter.end()
        // Nobody is left who would count them.
        if writer.intake.withLock({ !$0.uncounted.isEmpty }) { writer.whenStored {} }
    }

    // MARK: - Tracking

    /// Takes an event. Never waits for disk or network; the event is on disk some milliseconds later. Only a client that found the queue
    /// taken looks each time whether a file is there: whoever holds the queue may have opted out.
    ///
    /// What is lost if the process ends before that: this event. Use ``trackDurably(_:properties:id:time:distinctID:)`` where that matters.
    ///
    /// - Parameters:
    ///   - name: What happened, 1…200 bytes of UTF-8.
    ///   - id: Your own, to make your retry the same event. While it waits in the queue, the first event under it stays; one with another name,
    ///     other properties or of somebody else is a dead letter `conflict` then, unless the id is derived, which is to say a UUID of version 8.
    ///   - time: When it happened, in Unix milliseconds, 0…253402300799999; now if nil.
    ///   - distinctID: Whom it concerns, 1…200 bytes; ``distinctID`` if nil.
    /// - Returns: The event's id; nil if it was refused, for a ``DropReason``. A refusal is counted in ``Status/dropped``, on disk within a second. An event over
    ///   a limit is not refused: it goes to the dead letters with its reason.
    @discardableResult
    public func track(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Int64? = nil, distinctID: String? = nil
    ) -> EventID? {
        let admission = admit(name, properties, id, time, distinctID)
        switch admission {
        case .admitted(let id, _, let wake), .alreadyQueued(let id, let wake):
            if wake { writer.wake() }
            return id
        case .refused: return nil
        }
    }

    /// Takes an event and returns when it is on disk: it then survives what the configured ``Durability`` says.
    ///
    /// - Returns: The event's id.
    /// - Throws: ``TrackError``; `refused` and `discarded` are counted in ``Status/dropped``. After `notStored` and `shutDown` the event may
    ///   still be delivered: call again with the same id.
    @discardableResult
    public func trackDurably(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Int64? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurablySequenced(name, properties: properties, id: id, time: time, distinctID: distinctID).id
    }

    /// The same, with the sequence that the event got; nil if its id was waiting already.
    ///
    /// - Parameter isKept: Whether the caller keeps it if it is refused for a while, and tries again: then that counts nothing.
    package func trackDurablySequenced(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Int64? = nil, distinctID: String? = nil,
        isKept: Bool = false
    ) async throws(TrackError) -> (id: EventID, sequence: Int64?) {
        let called = clock.unixMilliseconds
        var time = time
        while true {
            let waiter = CommitWaiter()
            let admission = admit(name, properties, id, time, distinctID, waiter, isKept: isKept)
            switch admission {
            case .admitted(let id, let sequence, let wake):
                if wake { writer.wake() }
                try await waiter.wait()
                return (id, sequence)
            case .alreadyQueued(let id, let wake):
                if wake { writer.wake() }
                try await waiter.wait()
                // If not, it has become a dead letter, or has been delivered: the server tells whether that was the same.
                if writer.intake.withLock({ $0.isWaiting(id) }) { return (id, nil) }
                time = time ?? called
            case .refused(let reason): throw .refused(reason)
            }
        }
    }
}
