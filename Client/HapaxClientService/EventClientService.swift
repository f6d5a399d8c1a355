import Foundation
import CoreMetrics
import HapaxClient
import HapaxModel
import Logging
import ServiceLifecycle

/// An ``EventClient`` with the life of a service: it drains when the service stops, and it never stops the service.
///
/// ```swift
/// let events = EventClientService(configuration, logger: logger)
/// let group = ServiceGroup(services: [events, server], gracefulShutdownSignals: [.sigterm], logger: logger)
/// ```
///
/// A `ServiceGroup` shuts its services down in reverse order, each when the one behind it has ended. So name this one **before** whatever
/// tracks: the web server then finishes its last requests while events are still taken, and only then they are drained. (Hummingbird's
/// `Application(services:)` keeps that order by itself.)
///
/// Without a configuration, or while the client cannot start, the service is disabled: it logs that, refuses and counts every event
/// (``refused``), and ``run()`` waits for shutdown like any other. Where time may help, as with a full disk, ``run()`` tries to start the client again, first within a second and then at least once a minute; the server learns from it
/// how many events were refused before.
public final class EventClientService: Service, Sendable {
    /// Whether it was given a configuration, or a client. If so and it is disabled, an event is refused that the service was meant to take.
    public let isConfigured: Bool
    private let drainTime: Duration
    private let logger: Logger
    private let clock: any ClientClock
    private let state: Locked<State>
    /// The client's own label, so that one alert covers all that is dropped.
    private let refusals: Counter
    /// nil if there is nothing to start. No function that throws: a typed error in its type takes a newer system on Apple's platforms.
    private let start: (@Sendable () -> Result<EventClient, StartError>)?

    private struct State {
        var client: EventClient?
        var startFailure: StartError?
        /// Attempts to start that failed in a row.
        var failures = 0
        var nextStart: (any ScheduledAction)?
        var isEnding = false
        var refused = 0
        var report: ShutdownReport?
    }

    /// What ``run()`` has for draining if nothing else is said: well within what supervisors usually grant before they kill.
    public static let defaultDrainTime: Duration = .seconds(8)

    /// Starts the client, if there is a configuration. Tracking begins to work at once, before ``run()``.
    ///
    /// - Parameters:
    ///   - configuration: nil disables. During a rolling restart two processes work in its directory; what the one leaves the other sends. Its
    ///     `logger` is `logger`, unless it has one.
    ///   - drainTime: How long a graceful shutdown delivers at most; what is left stays on disk for the next run. Less than what is granted
    ///     before the process is killed.
    public convenience init(_ configuration: EventClient.Configuration?, drainTime: Duration = defaultDrainTime, logger: Logger) {
        self.init(configuration, drainTime: drainTime, logger: logger, clock: SystemClock()) { configuration throws(StartError) in
            try EventClient.start(configuration)
        }
    }

    /// Takes over a client that has been started; it must not be shut down by anybody else.
    public init(_ client: EventClient, drainTime: Duration = defaultDrainTime, logger: Logger) {
        isConfigured = true
        self.drainTime = drainTime
        self.logger = logger
        clock = SystemClock()
        state = Locked(State(client: client))
        refusals = Self.refusals(nil)
        start = nil
    }

    init(
        _ configuration: EventClient.Configuration?, drainTime: Duration, logger: Logger, clock: any ClientClock,
        start: @escaping @Sendable (EventClient.Configuration) throws(StartError) -> EventClient
    ) {
        isConfigured = configuration != nil
        self.drainTime = drainTime
        self.logger = logger
        self.clock = clock
        state = Locked(State())
        refusals = Self.refusals(configuration?.metricsFactory)
        guard var configuration else {
            self.start = nil
            logger.warning("Events are disabled: no server is configured")
            return
        }
        configuration.logger = configuration.logger ?? logger
        self.start = { [configuration] in
            do throws(StartError) { return .success(try start(configuration)) } catch { return .failure(error) }
        }
        tryToStart()
    }

    private static func refusals(_ factory: (any MetricsFactory)?) -> Counter {
        Counter(
            label: "hapax.client.dropped", dimensions: [("reason", DropReason.disabled.rawValue)], factory: factory ?? MetricsSystem.factory
        )
    }

    /// nil while disabled: not configured, or ``startFailure``.
    public var client: EventClient? { state.withLock { $0.client } }

    /// Why the latest attempt to start the client failed; nil once it has started.
    public var startFailure: StartError? { state.withLock { $0.startFailure } }

    /// Events refused because the service was disabled; also counted by the metric `hapax.client.dropped`, reason `disabled`.
    public var refused: Int { state.withLock { $0.refused } }

    /// What was left when ``run()`` ended; nil before, and if disabled.
    public var report: ShutdownReport? { state.withLock { $0.report } }

    // MARK: - Start

    private func tryToStart() {
        guard let start else { return }
        switch start() {
        case .success(let client): started(client)
        case .failure(let failure): failed(failure)
        }
    }

    private func started(_ client: EventClient) {
        let (isTaken, hadFailed, refused) = state.withLock { state in
            guard !state.isEnding else { return (false, true, 0) }
            defer { (state.client, state.startFailure) = (client, nil) }
            // In this turn: a shutdown behind it counts them.
            client.takeOverRefusals(state.refused)
            return (true, state.startFailure != nil, state.refused)
        }
        guard isTaken else {
            // It came too late, as from a disk that hung. What it found there is the next one's.
            Task { await client.shutdown(within: .zero) }
            return
        }
        guard hadFailed else { return }
        logger.notice("Events are enabled: the client has started", metadata: ["hapax.refused": "\(refused)"])
    }

    private func failed(_ failure: StartError) {
        let isNews = state.withLock { state in
            defer { state.startFailure = failure }
            state.failures += 1
            return state.startFailure != failure
        }
        guard isNews else { return }
        let text = "Events are disabled: the client did not start" + (failure.mayPass ? ", and is tried again" : "")
        logger.error("\(text)", metadata: ["hapax.failure": "\(failure)"])
    }

    /// If it has not started, and may later. One attempt at a time, on a thread of its own: a disk may hang.
    private func startAgainLater() {
        state.withLock { state in
            guard state.client == nil, !state.isEnding, let failure = state.startFailure, failure.mayPass else { return }
            var randomness = SystemRandomNumberGenerator()
            let delay = RetryPolicy.start.delay(failures: state.failures, using: &randomness)
            state.nextStart = clock.schedule(after: delay) { [self] in
                BlockingExecutor.run("hapax.start") { [self] in
                    tryToStart()
                    startAgainLater()
                }
            }
        }
    }

    // MARK: - Life

    /// Waits for shutdown, then shuts the client down; until then a client that could not start is tried again. Never throws, and never ends
    /// before it is told to.
    ///
    /// On graceful shutdown events are refused from then on, those taken before are stored, and delivery goes on, backoff after backoff,
    /// until all is delivered, the drain time is over, or the server refuses for a reason that time does not change. When the task is
    /// cancelled, before or while that goes on, what has been tracked is stored and nothing more is sent.
    public func run() async {
        startAgainLater()
        try? await gracefulShutdown()
        let (client, refused) = state.withLock { state in
            state.isEnding = true
            state.nextStart?.cancel()
            return (state.client, state.refused)
        }
        guard let client else {
            if refused > 0 { logger.warning("Events were refused: they are disabled", metadata: ["hapax.refused": "\(refused)"]) }
            return
        }
        let report = await withTaskCancellationHandler {
            await client.shutdown(within: Task.isCancelled ? .zero : drainTime)
        } onCancel: {
            // Ends the one above.
            Task { await client.shutdown(within: .zero) }
        }
        state.withLock { $0.report = report }
        tell(report)
    }

    private func tell(_ report: ShutdownReport) {
        var metadata: Logger.Metadata = ["hapax.left": "\(report.stored)", "hapax.lost": "\(report.lost)"]
        if let failure = report.failure { metadata["hapax.failure"] = "\(failure)" }
        if report.lost > 0 {
            logger.error("Events are lost: they could not be stored", metadata: metadata)
        } else if report.stored > 0 {
            logger.warning("Events are left on disk for the next run", metadata: metadata)
        } else if report.mayLeaveMore {
            // No failure: perhaps another process works on them.
            logger.log(
                level: report.failure == nil ? .notice : .warning,
                "Nothing is left, but what a damaged file of the queue holds", metadata: metadata)
        } else {
            logger.info("Nothing is left to deliver", metadata: metadata)
        }
    }

    // MARK: - Tracking

    /// As ``EventClient/track(_:properties:id:time:distinctID:)``; if disabled, nil and counted in ``refused``.
    @discardableResult
    public func track(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        guard let client = clientOrRefusal() else { return nil }
        return client.track(name, properties: properties, id: id, time: time, distinctID: distinctID)
    }

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``.
    ///
    /// - Throws: ``TrackError``; if disabled, `refused(.disabled)`, counted in ``refused``.
    @discardableResult
    public func trackDurably(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        guard let client = clientOrRefusal() else { throw .refused(.disabled) }
        return try await client.trackDurably(name, properties: properties, id: id, time: time, distinctID: distinctID)
    }

    /// As ``track(_:properties:id:time:distinctID:)``, with the members of `value` as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// - Parameter value: One that is no JSON object makes the event a dead letter `invalid_properties`.
    @discardableResult
    public func track(
        _ name: String, encoding value: some Encodable, id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        track(name, properties: Properties(encoding: value), id: id, time: time, distinctID: distinctID)
    }

    /// As ``trackDurably(_:properties:id:time:distinctID:)``, with the members of `value` as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// - Parameter value: One that is no JSON object makes the event a dead letter `invalid_properties`.
    /// - Throws: ``TrackError``.
    @discardableResult
    public func trackDurably(
        _ name: String, encoding value: some Encodable, id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurably(name, properties: Properties(encoding: value), id: id, time: time, distinctID: distinctID)
    }

    /// - Returns: nil if the event is refused, which has been counted then.
    private func clientOrRefusal() -> EventClient? {
        let client = state.withLock { state in
            if state.client == nil { state.refused += 1 }
            return state.client
        }
        if client == nil { refusals.increment() }
        return client
    }
}
