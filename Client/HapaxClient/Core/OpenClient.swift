import CoreMetrics
import Foundation
import HapaxModel
import Logging

/// A client whose queue is open: the parts of ``EventClient``, and what they call each other for.
package final class OpenClient: Sendable {
    let configuration: EventClient.Configuration
    let file: QueueFile
    let writer: QueueWriter
    let delivery: Delivery
    let leftovers: Leftovers
    let scheduler: UploadScheduler
    let transport: any EventTransport
    let clock: any ClientClock
    let timers: EventTimers
    let screens: Locked<Screens>
    let lifecycle: AppLifecycle
    let gate: RequestGate
    let session: SessionMarker
    /// Whether refusals are to be counted on disk by a commit of their own.
    let isCountScheduled = Locked(false)
    /// Of the directory, for all who work in it.
    let consent: Locked<ConsentMark>
    let identifications: Identifications
    /// Whether the file was still there when the client closed it; nil before.
    let wasThereAtClose = Locked<Bool?>(nil)
    let reporter: EventReporter
    /// nil once it is shut down.
    let presence: Locked<ClientPresence?>

    /// Takes a file of the directory and begins to upload what is in it.
    ///
    /// - Throws: ``StartError``; nothing has been changed then.
    package static func start(_ configuration: EventClient.Configuration) throws(StartError) -> OpenClient {
        try start(configuration, clock: SystemClock()) { SystemTransport.make() }
    }

    static func start(
        _ configuration: EventClient.Configuration, clock: any ClientClock, transport: () -> any EventTransport
    ) throws(StartError) -> OpenClient {
        let client = try open(configuration, clock: clock, transport: transport)
        client.begin()
        return client
    }

    /// Takes a file of the directory. Nothing is tracked or sent before ``begin()``.
    ///
    /// - Parameter hub: Tells subscribers, who may have come before.
    static func open(
        _ configuration: EventClient.Configuration, clock: any ClientClock, hub: DeliveryHub = DeliveryHub(),
        timers: EventTimers = EventTimers(), transport: () -> any EventTransport
    ) throws(StartError) -> OpenClient {
        let (endpoint, destinations) = (try configuration.endpoint(), try configuration.destinations())
        EventClient.Configuration.prepareNetwork()
        try configuration.checkDirectory(refusingSharedContainers: SharedContainer.isRefused)
        let directory = QueueDirectory(path: configuration.queue.directory.path)
        var ids = UUIDv7Generator()
        let newID = ids.next(unixMilliseconds: clock.unixMilliseconds)
        let (file, kept): (QueueFile, (identity: KeptIdentity, failure: StorageFailure?))
        do throws(QueueOpenError) {
            file = try QueueFile.first(
                of: endpoint.destination, or: endpoint.destinations, in: directory, install: newID,
                durability: configuration.queue.durability, quota: configuration.queue.quota,
                keepsDamagedFiles: configuration.queue.keepsDamagedFiles)
        } catch {
            switch error {
            case .taken: throw .queueUnusable(StorageFailure(errno: EBUSY))
            case .unusable(let failure): throw .queueUnusable(failure)
            }
        }
        let consent: ConsentMark
        do {
            try ConsentFile(directory).begin(configuration.consent)
            consent = try ConsentMark(directory)
            try file.decidePending(consent.known)
            // Sessions are read behind this, where a failure would be taken for none.
            if configuration.isApp { _ = (try file.keptSession(), try file.openSession()) }
            // Where it cannot be written, the next start tries again; nothing of it is sent.
            if consent.known.consent == .denied { try? IdentityFile(directory).forgetWaiting() }
            kept = try IdentityFile(directory).load(
                newID: ids.next(unixMilliseconds: clock.unixMilliseconds).description,
                first: configuration.anonymousID.flatMap { Identity.isValid($0) ? $0 : nil })
        } catch {
            file.close()
            throw error is UnreadableFile ? .unreadable(StorageFailure(error)) : .queueUnusable(StorageFailure(error))
        }
        let client = OpenClient(
            configuration, endpoint, destinations, file, kept.identity, consent, clock: clock, hub: hub, timers: timers,
            transport: transport())
        if client.presence.withLock({ $0?.isAlone == false }) {
            configuration.logger?.warning(
                "Another client of this process sends to the same server from the same directory: keep one for all")
        }
        if let failure = kept.failure { client.reporter.identityIsUnknown(failure) }
        configuration.warnOfIdentity()
        return client
    }

    /// What an app is given to say how it stands, before it is taken for one that never does.
    private static let attachTime: Duration = .seconds(10)

    /// Tracks the end of a session that has none, and begins to upload; of an app once it is known whether it is shown. Called once.
    func begin() {
        recoverAppEnd()
        scheduler.startTimer()
        guard configuration.isApp else { return beginUploads() }
        lifecycle.withRecord { $0.isAwaited = true }
        let awaiting = clock.schedule(after: Self.attachTime) { [weak self] in self?.wasNotAttached() }
        lifecycle.withRecord { $0.awaiting = awaiting }
    }

    private func wasNotAttached() {
        guard lifecycle.stopAwaiting() else { return }
        if scheduler.policy.uploadsByItself, lifecycle.withRecord({ $0.adapter == nil }) {
            configuration.logger?.warning(
                """
                Events are uploaded without knowing whether the app is shown: call attach() of the client when the app starts, or handle(_:) with \
                its signals; for what is no app set isApp = false
                """)
        }
        beginUploads()
    }

    func beginUploads() {
        scheduler.eventsStored(depth: sendable, immediate: false)
        if scheduler.policy.uploadsByItself { Task { [leftovers] in await leftovers.sendIfDue() } }
    }

    /// Each part is handed those that it calls, and nothing holds the client.
    private init(
        _ configuration: EventClient.Configuration, _ endpoint: Endpoint, _ destinations: Set<EventID>, _ file: QueueFile,
        _ identity: KeptIdentity, _ mark: ConsentMark, clock: any ClientClock, hub: DeliveryHub, timers: EventTimers,
        transport: any EventTransport
    ) {
        self.configuration = configuration
        self.file = file
        self.clock = clock
        self.timers = timers
        self.transport = transport
        presence = Locked(ClientPresence("\(endpoint.destination) \(file.directory.path)"))
        let consent = Locked(mark)
        self.consent = consent
        let lifecycle = AppLifecycle()
        self.lifecycle = lifecycle
        let debug = configuration.debug.isOn ? DebugMode(output: configuration.debug.output) : nil

        let automatic = SharedProperties.accepted(
            configuration.automatic.properties ? AutomaticProperties.collect(appVersion: configuration.automatic.appVersion) : [:])
        var context = EventContext(
            identity: Identity(
                anonymousID: identity.anonymousID, loginID: identity.loginID, configuredID: configuration.distinctID),
            automatic: automatic.properties)
        var refused = automatic.refused
        if configuration.isApp {
            let kept = SharedProperties.accepted(identity.common, over: automatic.properties)
            context.common = kept.properties
            refused += kept.refused
            context.session = (try? file.keptSession()) ?? AppSession(id: file.counters.installID, began: 0, lastActivity: 0)
        }
        let intake = Locked(
            Intake(
                capacity: configuration.queue.mailboxCapacity, maximumBytes: configuration.queue.mailboxBytes, context: context,
                consent: mark.known,
                quota: file.account))
        // Goes on with the session of the run before, or, with none or one that is over, begins another.
        intake.withLock { $0.continueSession(at: clock.unixMilliseconds) }
        let reporter = EventReporter(
            factory: configuration.metricsFactory ?? MetricsSystem.factory, hub: hub, logger: configuration.logger,
            now: { clock.monotonic }
        ) { file.counters }
        self.reporter = reporter
        let policy = Locked(FlushPolicy(configuration.uploads, now: clock.monotonic))
        let gate = RequestGate(lifecycle: lifecycle) {
            // The app's code, which may take its time, is not asked under the lock.
            let network = configuration.network()
            return policy.withLock { $0.uploadsByItself && $0.allows(network) }
        }
        self.gate = gate
        let currentConsent: @Sendable () -> KeptConsent = {
            let (kept, failure) = consent.withLock { ($0.current(), $0.takeFailure()) }
            if let failure { reporter.consentIsUnreadable(failure) }
            return kept
        }
        let session = SessionMarker(file: file, clock: clock) { intake.withLock { $0.context } }
        let (screens, identifications) = (Locked(Screens()), Identifications(IdentityFile(file.directory)))
        (self.session, self.screens, self.identifications) = (session, screens, identifications)
        let whenTakenAgain = Locked<(@Sendable () -> Void)?>(nil)
        let makeEvent: Delivery.MakeEvent = { name, id, properties, origin in
            let context = intake.withLock { $0.context }
            let time = origin.time ?? clock.unixMilliseconds
            let encoded = Event(
                id: id, name: name, time: time, distinctID: origin.distinctID ?? context.identity.distinctID, properties: properties
            ).encoded(over: origin.isOwn ? context.encodedBase : EncodedProperties(context.automatic))
            let kept = currentConsent()
            if kept.consent == .denied { return nil }
            return PreparedEvent(id: id, time: time, bytes: encoded.bytes, problem: encoded.problem, pending: kept.pending)
        }
        let projects = ProjectNotes(file.directory, endpoint) { reporter.projectsAreUnreadable($0) }
        let delivery = Delivery(
            file,
            Delivery.Parts(
                endpoint: endpoint, transport: transport, clock: clock,
                pause: DestinationPause(path: file.directory.pausePath, destination: endpoint.destination),
                notes: DestinationNotes(file.directory, endpoint), logger: configuration.logger,
                consent: currentConsent, gate: { gate.permission(isManual: $0) }, beginPass: { gate.beginPass() },
                attempted: { reporter.attempted(in: $0, answer: $1) }, named: { projects.note($0) },
                settled: { reporter.settled($0, $1) }, makeEvent: makeEvent))
        self.delivery = delivery
        let leftovers = Leftovers(
            beside: file, delivery, of: destinations, named: endpoint.destinations, projects, clock: clock, reporter: reporter,
            consent: currentConsent,
            makeEvent: makeEvent)
        self.leftovers = leftovers
        let scheduler = UploadScheduler(
            policy: policy, clock: clock, depth: { Self.sendable(file) }, network: configuration.network,
            ticked: {
                if policy.withLock({ $0.uploadsByItself }) { Task { await leftovers.sendIfDue() } }
            }
        ) {
            Task { await delivery.uploadWanted() }
        }
        self.scheduler = scheduler
        let onStored = configuration.onStored
        writer = QueueWriter(
            intake: intake, clock: clock, maximumGroupBytes: file.room.groupBytes,
            immediateEvents: { debug == nil ? policy.withLock { $0.settings.immediateEvents } : nil },
            learnConsent: {
                // Under the lock of the mark, as in a change of our own, which this must not undo (D16).
                let change = consent.withLock { mark -> (now: KeptConsent, before: KeptConsent)? in
                    let (now, before) = (mark.current(), intake.withLock { $0.consent })
                    guard now != before else { return nil }
                    if now.consent == .denied { Self.forgetSession(session, screens, identifications, intake) }
                    intake.withLock { $0.change(now) }
                    return (now, before)
                }
                if let change, change.before.consent == .denied, change.now.consent != .denied { whenTakenAgain.withLock { $0 }?() }
                return change?.now
            },
            keepIdentity: { change in
                // In a directory that was removed no later run would find it.
                try file.requireFile()
                // What another process has changed meanwhile stays.
                _ = try IdentityFile(file.directory).change { kept in
                    let common = kept.common
                    change.change(&kept)
                    // Services share a directory: what one of them says of all its events is not the others'.
                    if !configuration.isApp { kept.common = common }
                }
            },
            commit: { events, dropped, committed in
                let (ends, consent) = (session.ends(in: events), currentConsent())
                let commit = try identifications.prepare(events, consent)
                let appended = try file.append(
                    commit.events, dropped: dropped, now: clock.unixMilliseconds, consent: consent, known: commit.known, ending: ends,
                    committed: committed)
                session.stored(ends)
                debug?.stored(commit.events, appended)
                if let onStored {
                    for (index, event) in commit.events.enumerated()
                    where appended.sequences[index] != nil && appended.deadLetters[index] == nil {
                        onStored(event.bytes)
                    }
                }
                identifications.committed(commit, events, appended)
                return QueueWriter.Committed(depth: Self.sendable(file), appended: appended)
            },
            flush: { try file.flushDrive() },
            reporter: reporter,
            stored: {
                session.eventsStored()
                scheduler.eventsStored(depth: $0.depth, immediate: $0.immediate)
            })
        whenTakenAgain.withLock { $0 = { [weak self] in self?.beginSessionAgain() } }
        logRefused(refused)
    }

    deinit {
        scheduler.stop()
        _ = lifecycle.stopAwaiting()
        transport.close()
        reporter.end()
        // Nobody is left who would count them.
        if writer.intake.withLock({ !$0.uncounted.isEmpty }) { writer.whenStored {} }
    }

    /// The user has denied consent: of what was deleted there is no end and no screen, and a user who logs in again is identified again.
    func forgetSession() { Self.forgetSession(session, screens, identifications, writer.intake) }

    private static func forgetSession(
        _ session: SessionMarker, _ screens: Locked<Screens>, _ identifications: Identifications, _ intake: Locked<Intake>
    ) {
        session.forget()
        identifications.forget()
        screens.withLock { $0.told = nil }
        intake.withLock { $0.context.screenName = nil }
    }

    /// Events that an upload would send now, or what is still to be recovered.
    private static func sendable(_ file: QueueFile) -> Int {
        let counters = file.counters
        return max(Int(counters.sendable), file.isRecovering || counters.unreported > 0 ? 1 : 0)
    }

    private var sendable: Int { Self.sendable(file) }

    // MARK: - Tracking

    @discardableResult
    package func track(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        switch admit(name, properties, id, time?.unixMilliseconds, distinctID) {
        case .admitted(let id, let wake):
            if wake { writer.wake() }
            return id
        case .refused: return nil
        }
    }

    @discardableResult
    package func trackDurably(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurablySequenced(name, properties: properties, id: id, time: time, distinctID: distinctID).id
    }

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``, with the sequence that the event got; nil if its id was waiting already.
    ///
    /// - Parameter isKept: Whether the caller keeps it if it is refused for a while, and tries again: then that counts nothing.
    package func trackDurablySequenced(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil,
        isKept: Bool = false
    ) async throws(TrackError) -> (id: EventID, sequence: Int64?) {
        let waiter = CommitWaiter()
        switch admit(name, properties, id, time?.unixMilliseconds, distinctID, waiter, isKept: isKept) {
        case .admitted(let id, let wake):
            if wake { writer.wake() }
            return (id, try await waiter.waitUnlessCancelled())
        case .refused(let reason): throw .refused(reason)
        }
    }
}

/// That a client works in this process, as long as it does.
final class ClientPresence: Sendable {
    private static let all = Locked<[String: Int]>([:])
    private let place: String
    /// Whether it was the only one at its place when it came.
    let isAlone: Bool

    /// Whether any client works in this process.
    static var isAny: Bool { all.withLock { !$0.isEmpty } }

    init(_ place: String) {
        self.place = place
        isAlone = Self.all.withLock { all in
            all[place, default: 0] += 1
            return all[place] == 1
        }
    }

    deinit {
        Self.all.withLock { all in
            let left = (all[place] ?? 1) - 1
            all[place] = left > 0 ? left : nil
        }
    }
}
