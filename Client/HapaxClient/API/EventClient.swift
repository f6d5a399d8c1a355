import CoreMetrics
import Foundation
import HapaxModel
import Logging

/// Takes events, keeps them on disk until the server has acknowledged each, and never loses or reorders one.
///
/// Safe to use from any thread. Any number of clients, in any number of processes, work in one queue directory, each with a file of its own.
///
/// A client always exists. Until its queue is open it is *disabled*: it refuses events and counts them as ``DropReason/disabled``, remembers what
/// it was given of users, consent, properties and the app, and does it when the queue opens.
public final class EventClient: Sendable {
    /// Opens the queue. Returns instead of throwing: a typed error in its type takes a newer system on Apple's platforms.
    typealias Open = @Sendable (Configuration, DeliveryHub, EventTimers) -> Result<OpenClient, StartError>

    /// What a client is whose queue was open from the start; looked at first, since it takes no lock.
    private let first: OpenClient?
    /// The same, which this client keeps: for each event, counting one more reference would cost as much as a lock.
    private let unowned: Unmanaged<OpenClient>?
    private let state: Locked<State>
    private let hub: DeliveryHub
    let timers: EventTimers
    let clock: any ClientClock
    private let openQueue: Open

    struct State {
        var opened: OpenClient?
        /// Its queue is open, and earlier calls are still to be performed.
        var opening: OpenClient?
        var configuration: Configuration?
        var logger: Logger?
        /// Whether ``EventClient/bootstrap(_:)`` has been called, for the shared client.
        var isBootstrapped = false
        var startFailure: StartError?
        /// Says that the device has been unlocked.
        var unlocked: (any NSObjectProtocol)?
        /// Attempts to open that failed in a row.
        var failures = 0
        var nextAttempt: (any ScheduledAction)?
        var isShutDown = false
        /// Events refused while it is closed, by reason, and what counts them for metrics.
        var refused: [String: Int64] = [:]
        var refusals: [String: Counter] = [:]
        /// Why events are refused while it is closed.
        var refusal: DropReason { if case .unreadable? = startFailure { .unreadable } else { .disabled } }
        /// Whether it has been said that the shared client refuses while another one is open.
        var isOvershadowed = false
        /// Calls made while it was closed that are still to be performed.
        var wishes = Wishes()
        /// All calls made while it was closed, for getters.
        var context = EventContext(identity: Identity(anonymousID: ""))
    }

    /// What is to be done when the queue is open. Of calls that replace each other the last one counts, so it never grows.
    struct Wishes {
        var consent: Consent?
        /// What the settings were changed to, and what they were before.
        var uploads: (changed: UploadSettings, before: UploadSettings)?
        var isReset = false
        var login: String??
        var common: [String: PropertyValue?] = [:]
        var attach: (@Sendable (OpenClient) -> Void)?
        /// The latest that says how the app stands.
        var signal: LifecycleSignal?
        var screen: (name: String, properties: Properties)?

        var isEmpty: Bool {
            consent == nil && uploads == nil && !isReset && login == nil && common.isEmpty && attach == nil && signal == nil
                && screen == nil
        }
    }

    // MARK: - Making one

    /// Takes a file of the queue's directory and begins to upload what is in it; waits for the disk for some 30 ms at most.
    ///
    /// In a preview of Xcode's it is disabled. If opening fails the client is disabled (``startFailure``), logs it once, and tries again where time may help, as with a full disk: first within a
    /// second, then at least once a minute.
    public convenience init(server: URL, writeKey: String) {
        self.init(Configuration(server: server, writeKey: writeKey))
    }

    /// As ``init(server:writeKey:)``.
    ///
    /// - Parameters:
    ///   - configuration: nil for a client that stays disabled, as in a preview or in a service that runs without events.
    ///   - logger: In place of the configuration's.
    public convenience init(_ configuration: Configuration?, logger: Logger? = nil) {
        self.init(Self.unlessInPreview(configuration, logger), logger: logger, clock: SystemClock(), open: Self.openQueue)
    }

    /// Xcode runs an app's code to show its views, again with each change: nobody uses it then, and nothing of it is an event.
    static func unlessInPreview(
        _ configuration: Configuration?, _ logger: Logger? = nil, environment: [String: String] = ProcessInfo.processInfo.environment
    ) -> Configuration? {
        guard let configuration, environment["XCODE_RUNNING_FOR_PREVIEWS"] == "1" else { return configuration }
        (logger ?? configuration.logger)?.warning("Events are disabled in a preview")
        return nil
    }

    /// For those who must know at once: takes a file of the directory and begins to upload what is in it.
    ///
    /// - Throws: ``StartError``; nothing has been changed then.
    public static func start(_ configuration: Configuration) throws(StartError) -> EventClient {
        try start(configuration, clock: SystemClock()) { SystemTransport.make() }
    }

    package static func start(
        _ configuration: Configuration, clock: any ClientClock, transport: () -> any EventTransport
    ) throws(StartError) -> EventClient {
        let (hub, timers) = (DeliveryHub(), EventTimers())
        let client = try OpenClient.open(configuration, clock: clock, hub: hub, timers: timers, transport: transport)
        client.begin()
        return EventClient(configuration, client, hub, timers, clock)
    }

    private init(
        _ configuration: Configuration, _ client: OpenClient, _ hub: DeliveryHub, _ timers: EventTimers, _ clock: any ClientClock
    ) {
        (first, self.hub, self.timers, self.clock, openQueue) = (client, hub, timers, clock, Self.openQueue)
        unowned = .passUnretained(client)
        state = Locked(State(configuration: configuration, logger: configuration.logger))
    }

    init(_ configuration: Configuration?, logger: Logger? = nil, clock: any ClientClock, open: @escaping Open) {
        var configuration = configuration
        if let logger { configuration?.logger = logger }
        let (hub, timers) = (DeliveryHub(), EventTimers())
        (self.hub, self.timers, self.clock, openQueue) = (hub, timers, clock, open)
        var state = State(configuration: configuration, logger: configuration?.logger ?? logger)
        state.context.identity.configuredID = configuration?.distinctID
        state.context.consent = configuration?.consent ?? .granted
        let opening = configuration.map { open($0, hub, timers) }
        switch opening {
        case .success(let client):
            (first, unowned) = (client, .passUnretained(client))
            client.begin()
        case .failure, nil: (first, unowned) = (nil, nil)
        }
        self.state = Locked(state)
        if case .failure(let failure) = opening { failed(failure) }
    }

    private static let openQueue: Open = { configuration, hub, timers in
        do throws(StartError) {
            return .success(try OpenClient.open(configuration, clock: SystemClock(), hub: hub, timers: timers) { SystemTransport.make() })
        } catch {
            return .failure(error)
        }
    }

    deinit {
        let (attempt, unlocked) = state.withLock { ($0.nextAttempt, $0.unlocked) }
        attempt?.cancel()
        if let unlocked { NotificationCenter.default.removeObserver(unlocked) }
    }

    // MARK: - The shared one

    private static let ofTheProcess = notBootstrapped(clock: SystemClock(), open: openQueue)

    /// What is shared, before ``bootstrap(_:)``.
    static func notBootstrapped(logger: Logger? = nil, clock: any ClientClock, open: @escaping Open) -> EventClient {
        let client = EventClient(nil, logger: logger, clock: clock, open: open)
        client.state.withLock { $0.startFailure = .notBootstrapped }
        return client
    }

    /// A test's own.
    @TaskLocal package static var sharedOfTask: EventClient?

    /// The process's shared client, always the same one but for a test's own (HapaxTestKit); disabled until ``bootstrap(_:)`` has given it a configuration (R2).
    public static var shared: EventClient { sharedOfTask ?? ofTheProcess }

    /// Gives the shared client its configuration, once; as early as possible, since events before are refused. A later call changes nothing
    /// and logs a warning, and so does one after the client's ``shutdown(within:)``, which is final.
    ///
    /// - Parameter configuration: nil leaves the shared client as it is, disabled until a later call.
    public static func bootstrap(_ configuration: Configuration?) { ofTheProcess.take(unlessInPreview(configuration)) }

    func take(_ configuration: Configuration?) {
        // A launch without events, as in a preview, leaves the one call to another.
        guard configuration != nil else { return }
        let (isFirst, isShutDown) = state.withLock { state in
            guard !state.isBootstrapped else { return (false, false) }
            state.isBootstrapped = true
            (state.configuration, state.logger, state.startFailure) = (configuration, configuration?.logger, nil)
            state.context.identity.configuredID = configuration?.distinctID
            if state.wishes.consent == nil { state.context.consent = configuration?.consent ?? .granted }
            return (true, state.isShutDown)
        }
        if isShutDown {
            configuration?.logger?.warning("The shared client was shut down before it had a configuration: events stay disabled")
        }
        guard isFirst else {
            (logger ?? configuration?.logger)?.warning("The shared client has been given its configuration before: this one is left aside")
            return
        }
        tryToOpen()
    }

    // MARK: - Opening

    /// Whether it was given a configuration. If so and it is disabled, an event is refused that it was meant to take.
    public var isConfigured: Bool { state.withLock { $0.configuration != nil } }

    /// Why the latest attempt to open the queue failed; nil once it is open, and for a client that was made with nil for its configuration. Of
    /// ``shared`` it is ``StartError/notBootstrapped`` before ``bootstrap(_:)``.
    public var startFailure: StartError? { state.withLock { $0.startFailure } }

    /// What HapaxClientService needs to know.
    package var drainTime: Duration { state.withLock { $0.configuration?.drainTime } ?? .zero }
    package var logger: Logger? { state.withLock { $0.logger } }

    /// nil while the queue is closed.
    package var open: OpenClient? { first ?? state.withLock { $0.opened } }

    private func tryToOpen() {
        let (configuration, consent) = state.withLock { state in
            (state.isShutDown ? nil : state.configuration, state.refusal == .unreadable ? state.wishes.consent : nil)
        }
        guard let configuration else { return }
        // What the user says now needs no earlier word. Where it cannot be written, opening fails as before.
        if let consent { try? QueueDirectory(path: configuration.queue.directory.path).setConsent(consent) }
        switch openQueue(configuration, hub, timers) {
        case .success(let client): opened(client)
        case .failure(let failure): failed(failure)
        }
    }

    private func opened(_ client: OpenClient) {
        var hasBegun = false
        while true {
            let (wishes, failure, isShutDown) = state.withLock { state in
                defer { state.wishes = Wishes() }
                state.opening = client
                if state.wishes.isEmpty, hasBegun, !state.isShutDown {
                    // In this turn: a shutdown behind it counts them.
                    client.takeOverRefusals(state.refused)
                    (state.opened, state.opening) = (client, nil)
                    defer { (state.startFailure, state.nextAttempt) = (nil, nil) }
                    return (Wishes?.none, state.startFailure, false)
                }
                return (state.wishes, nil, state.isShutDown)
            }
            if isShutDown {
                // It came too late, as from a disk that hung. What it found there is the next one's.
                Task { await client.shutdown(within: .zero) }
                return
            }
            guard let wishes else {
                guard failure != nil else { return }
                client.configuration.logger?.notice(
                    "Events are enabled: the client has started",
                    metadata: ["hapax.refused": "\(state.withLock { $0.refused.values.reduce(0, +) })"])
                return
            }
            // Before anything is tracked or sent (D16).
            if let consent = wishes.consent {
                do throws(ConsentError) { try client.setConsent(consent) } catch { client.reporter.consentIsNotKept(error) }
            }
            if let uploads = wishes.uploads { client.updateUploads { $0.take(uploads.changed, over: uploads.before) } }
            if !hasBegun { client.begin() }
            hasBegun = true
            if wishes.isReset { client.reset() }
            client.updateCommonProperties { for (name, value) in wishes.common { $0[name] = value } }
            if let login = wishes.login { client.identify(login) }
            wishes.attach?(client)
            if let signal = wishes.signal { client.handle(signal) }
            if let screen = wishes.screen { client.trackScreen(screen.name, properties: screen.properties) }
        }
    }

    private func failed(_ failure: StartError) {
        let isNews = state.withLock { state in
            defer { state.startFailure = failure }
            state.failures += 1
            if failure.mayPass, !state.isShutDown {
                var randomness = SystemRandomNumberGenerator()
                let delay = RetryPolicy.start.delay(failures: state.failures, using: &randomness)
                state.nextAttempt = clock.schedule(after: delay) { [weak self] in self?.tryAgain() }
            }
            return state.startFailure != failure
        }
        if failure.mayPass { tryWhenUnlocked() }
        guard isNews, let logger else { return }
        let text = "Events are disabled: the client did not start" + (failure.mayPass ? ", and is tried again" : "")
        logger.error("\(text)", metadata: ["hapax.failure": "\(failure)"])
    }

    /// Before a phone is first unlocked after its start, an app that was launched in the background cannot open its files
    /// (https://developer.apple.com/documentation/uikit/uiapplication/protecteddatadidbecomeavailablenotification).
    private func tryWhenUnlocked() {
        guard state.withLock({ $0.unlocked == nil }) else { return }
        let name = NSNotification.Name("UIApplicationProtectedDataDidBecomeAvailable")
        let unlocked = NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) { [weak self] _ in
            self?.tryAgain()
        }
        state.withLock { $0.unlocked = unlocked }
    }

    /// One attempt at a time, on a thread of its own: a disk may hang.
    private func tryAgain() {
        let next = state.withLock { state in
            defer { state.nextAttempt = nil }
            return state.nextAttempt
        }
        guard let next else { return }
        next.cancel()
        BlockingExecutor.run("hapax.start") { [weak self] in self?.tryToOpen() }
    }

    /// Does something now, or notes it until the queue is open.
    func whenOpen(_ call: (OpenClient) -> Void, else note: (inout State) -> Void) {
        if let open = openOrNote(note) { call(open) }
    }

    /// - Returns: nil if the queue is closed and it has been noted.
    func openOrNote(_ note: (inout State) -> Void) -> OpenClient? {
        if let first { return first }
        return state.withLock { state in
            if state.opened == nil { note(&state) }
            return state.opened
        }
    }

    /// The same for what must hold before anything else is done with a queue that opens at this moment.
    func openingOrNote(_ note: (inout State) -> Void) -> OpenClient? {
        if let first { return first }
        return state.withLock { state in
            if state.opened == nil { note(&state) }
            return state.opened ?? state.opening
        }
    }

    var context: EventContext { open?.writer.intake.withLock { $0.context } ?? state.withLock { $0.context } }

    /// - Returns: nil if the event is refused, which has been counted then.
    func openOrRefusal() -> OpenClient? {
        if let first { return first }
        // The shared client, for each event.
        state.lock()
        let alreadyOpened = state.locked.pointee.opened
        state.unlock()
        if let alreadyOpened { return alreadyOpened }
        let (opened, reason, known, factory) = state.withLock { state in
            let reason = state.refusal.rawValue
            if state.opened == nil { state.refused[reason, default: 0] += 1 }
            return (state.opened, reason, state.refusals[reason], state.configuration?.metricsFactory)
        }
        guard opened == nil else { return opened }
        #if DEBUG
        warnIfOvershadowed()
        #endif
        // The client's own label, so that one alert covers all that is dropped. Not under the lock, since it is the app's code, and not before it is
        // needed: an app may still choose its metrics.
        let refusals =
            known
            ?? Counter(
                label: "hapax.client.dropped", dimensions: [("reason", reason)], factory: factory ?? MetricsSystem.factory)
        state.withLock { if $0.configuration != nil { $0.refusals[reason] = refusals } }
        refusals.increment()
        return nil
    }

    /// Who has made a client, and tracks with the shared one, learns it while the app is made.
    private func warnIfOvershadowed() {
        guard ClientPresence.isAny else { return }
        let isNews = state.withLock { state in
            defer { state.isOvershadowed = state.startFailure == .notBootstrapped }
            return state.startFailure == .notBootstrapped && !state.isOvershadowed
        }
        guard isNews else { return }
        (logger ?? Configuration.standardLogger).warning(
            "EventClient.shared refuses events, while another client is open: give it its configuration by EventClient.bootstrap(_:), or track with that client"
        )
    }

    // MARK: - Tracking

    /// Takes an event. Never waits for disk or network; the event is on disk some milliseconds later.
    ///
    /// What is lost if the process ends before that: this event. Use ``trackDurably(_:properties:id:time:distinctID:)`` where that matters.
    ///
    /// - Parameters:
    ///   - name: What happened, 1…200 bytes of UTF-8.
    ///   - properties: Its own; they win over automatic and common ones.
    ///   - id: Made by the client, unless it is given. A derived one, which is to say a UUID of version 8, makes your retry the same event, whatever else it says by then. Under any
    ///     other id the first event stays; one whose name, distinct id or properties have other values is a dead letter `conflict`. So it is if only
    ///     a common or automatic property has changed.
    ///   - time: When it happened, to the millisecond, in the years 1970…9999; now if nil.
    ///   - distinctID: Whom it concerns, 1…200 bytes; whom ``identity`` says if nil.
    /// - Returns: The event's id; nil if it was refused, for a ``DropReason``. A refusal is counted in ``EventClient/Status/dropped``, on disk within a second. An event over
    ///   a limit is not refused: it goes to the dead letters with its reason.
    @discardableResult
    public func track(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        if let unowned {
            return unowned._withUnsafeGuaranteedRef {
                $0.track(name, properties: properties, id: id, time: time, distinctID: distinctID)
            }
        }
        return trackOnceOpened(name, properties, id, time, distinctID)
    }

    @inline(never)
    private func trackOnceOpened(
        _ name: String, _ properties: Properties, _ id: EventID, _ time: Date?, _ distinctID: String?
    ) -> EventID? {
        openOrRefusal()?.track(name, properties: properties, id: id, time: time, distinctID: distinctID)
    }

    /// Takes an event and returns when it is on disk: it then survives what the configured ``Durability`` says.
    ///
    /// A cancelled task does not wait: it gets `cancelled` at once, and the event is stored all the same.
    ///
    /// - Returns: The event's id.
    /// - Throws: ``TrackError``; `refused` and `removed` are counted in ``EventClient/Status/dropped``. After `notStored`, `cancelled` and `shutDown` the
    ///   event may still be delivered: call again with the same id. That is the same event for sure if the id is derived.
    @discardableResult
    public func trackDurably(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        guard let open = openOrRefusal() else { throw .refused(state.withLock { $0.refusal }) }
        return try await open.trackDurably(name, properties: properties, id: id, time: time, distinctID: distinctID)
    }
}

// MARK: - Delivery

extension EventClient {
    /// Stores what has been tracked, then uploads what this client's file holds by then, until all of that is settled or an attempt fails. A
    /// backoff is cut short for one attempt. What is tracked meanwhile waits for the next upload.
    ///
    /// Returns at once when the calling task is cancelled, with the failure ``DeliveryFailure/cancelled``; the request under way is answered
    /// and settled all the same, and no other is made.
    ///
    /// While the app is in the background this takes time that the system must grant: the report's failure is
    /// ``DeliveryFailure/noBackgroundTime`` if it does not.
    ///
    /// - Parameter limit: How long it may take; then it returns as for a cancelled task, with ``DeliveryFailure/outOfTime``. nil for as long as it
    ///   takes.
    @discardableResult
    public func flush(within limit: Duration? = nil) async -> FlushReport {
        await open?.flush(within: limit) ?? FlushReport(DeliveryCounts(), remaining: 0, failure: .notOpen)
    }

    /// When events are uploaded without being asked.
    public var uploads: UploadSettings {
        open?.uploads ?? state.withLock { $0.wishes.uploads?.changed ?? $0.configuration?.uploads ?? UploadSettings() }
    }

    /// Changes it, field by field. A different interval uploads now and restarts the timer; nothing else does (R22).
    ///
    /// - Parameter change: Given a copy. Of two changes of one field at the same time the later one counts.
    public func updateUploads(_ change: (inout UploadSettings) -> Void) {
        // Not under a lock: it may ask the client.
        let before = uploads
        var changed = before
        change(&changed)
        let open = openOrNote { state in
            let configured = state.configuration?.uploads ?? UploadSettings()
            var wish = state.wishes.uploads ?? (changed: configured, before: configured)
            wish.changed.take(changed, over: before)
            state.wishes.uploads = wish
        }
        open?.updateUploads { $0.take(changed, over: before) }
    }

    /// What becomes of this client's events from now on: stored, duplicate, rejected, dropped, each reported after its commit.
    ///
    /// Queues of other clients that this one delivers because they found its own taken are included: what is reported is what this client
    /// learned from the server. Any number of subscribers; none of them ever holds up tracking or delivery.
    ///
    /// - Parameter bufferLimit: Deliveries that wait for this subscriber, from 1. One who takes longer loses the oldest, and learns how
    ///   many by ``EventDelivery/missed(_:)`` in their place.
    public func deliveries(bufferLimit: Int = EventDeliveries.defaultBufferLimit) -> EventDeliveries {
        EventDeliveries(subscription: hub.subscribe(limit: bufferLimit))
    }

    /// What was not stored and is not sent again by itself.
    public var deadLetters: DeadLetters { DeadLetters(client: open) }

    /// What waits in this client's file to be delivered, the oldest first; for people who look at a running process. What is still in memory is not in it.
    ///
    /// The disk is read on the delivery's thread, beside what it sends.
    ///
    /// - Parameter limit: At most so many; none if it is less than 1.
    /// - Throws: ``StorageFailure``; also while the queue is closed.
    public func waiting(limit: Int = 100) async throws(StorageFailure) -> [WaitingEvent] {
        guard let open else { throw .notOpen }
        return try await open.waiting(limit: limit)
    }

    /// How the client's file and its delivery stand.
    ///
    /// While the queue is closed all of it is nothing, but for ``Status/startFailure`` and what was refused.
    public func status() async -> Status {
        guard let open else { return state.withLock { Status(startFailure: $0.startFailure, refused: $0.refused) } }
        return await open.status()
    }

    /// Deletes every event of this client's file, those that wait and the dead letters, for ever; ``Consent/denied`` deletes only what waited for consent.
    ///
    /// A request in flight is awaited first, and what it delivered stays delivered. Waiting events that are deleted are counted in
    /// ``EventClient/Status/removed`` and, under `purged`, in ``EventClient/Status/dropped``. Durable on return. Events tracked during the call may stay, and so
    /// do damaged files that were set aside, if they are kept (``QueueSettings/keepsDamagedFiles``).
    ///
    /// - Returns: How many were deleted.
    /// - Throws: ``StorageFailure``; what was deleted before it stays deleted.
    @discardableResult
    public func purge() async throws(StorageFailure) -> Int {
        guard let open else { throw .notOpen }
        return try await open.purge()
    }

    /// Refuses new events, stores those it has, uploads while time is left, and closes the queue.
    ///
    /// Uploading goes on, backoff after backoff, until the client's file is empty, the time is over, or the server refuses for a reason that time
    /// does not change (a wrong key).
    ///
    /// Call it once, last. What is on disk is sent by any other client on this directory. What is stuck at the limit, as a commit on a disk that
    /// hangs, is left behind and ends by itself: then the file stays locked until it has. Cancelling the task changes nothing; calling it
    /// again with less time does.
    ///
    /// - Parameter limit: For all of it; storing has at least 500 ms, and closing 100 ms more. Zero stores without uploading.
    @discardableResult
    public func shutdown(within limit: Duration) async -> ShutdownReport {
        let attempt = state.withLock { state in
            state.isShutDown = true
            return state.nextAttempt
        }
        attempt?.cancel()
        if let open { return await open.shutdown(within: limit) }
        hub.end()
        return ShutdownReport(stored: 0, lost: 0, failure: .notOpen)
    }
}
