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
/// Without a configuration, or with one that cannot be started, the service is disabled: it logs that once, refuses and counts every event
/// (``refused``), and ``run()`` waits for shutdown like any other.
public final class EventClientService: Service, Sendable {
    /// nil if disabled: not configured, or ``startFailure``.
    public let client: EventClient?
    /// Why the client could not start.
    public let startFailure: StartError?
    private let drainTime: Duration
    private let logger: Logger
    private let state = Locked(State())
    /// The client's own label, so that one alert covers all that is dropped.
    private let refusals: Counter

    private struct State {
        var refused = 0
        var report: ShutdownReport?
    }

    /// What ``run()`` has for draining if nothing else is said: well within what supervisors usually grant before they kill.
    public static let defaultDrainTime: Duration = .seconds(8)

    /// Starts the client, if there is a configuration. Tracking begins to work at once, before ``run()``.
    ///
    /// - Parameters:
    ///   - configuration: nil disables. Consider ``EventClient/Configuration/whenQueueIsTaken`` `= .spool`: during a rolling restart the
    ///     process before may still hold the queue. Its `logger` is `logger`, unless it has one.
    ///   - drainTime: How long a graceful shutdown delivers at most; what is left stays on disk for the next run. Less than what is granted
    ///     before the process is killed.
    public init(_ configuration: EventClient.Configuration?, drainTime: Duration = defaultDrainTime, logger: Logger) {
        self.drainTime = drainTime
        self.logger = logger
        refusals = Self.refusals(configuration?.metricsFactory)
        guard var configuration else {
            (client, startFailure) = (nil, nil)
            logger.warning("Events are disabled: no server is configured")
            return
        }
        configuration.logger = configuration.logger ?? logger
        do throws(StartError) {
            client = try EventClient.start(configuration)
            startFailure = nil
        } catch {
            (client, startFailure) = (nil, error)
            logger.error("Events are disabled: the client did not start", metadata: ["hapax.failure": "\(error)"])
        }
    }

    /// Takes over a client that has been started; it must not be shut down by anybody else.
    public init(_ client: EventClient, drainTime: Duration = defaultDrainTime, logger: Logger) {
        self.client = client
        startFailure = nil
        self.drainTime = drainTime
        self.logger = logger
        refusals = Self.refusals(nil)
    }

    private static func refusals(_ factory: (any MetricsFactory)?) -> Counter {
        Counter(
            label: "hapax.client.dropped", dimensions: [("reason", DropReason.disabled.rawValue)], factory: factory ?? MetricsSystem.factory
        )
    }

    /// Events refused because the service is disabled; also counted by the metric `hapax.client.dropped`, reason `disabled`.
    public var refused: Int { state.withLock { $0.refused } }

    /// What was left when ``run()`` ended; nil before, and if disabled.
    public var report: ShutdownReport? { state.withLock { $0.report } }

    // MARK: - Life

    /// Waits for shutdown, then shuts the client down. Never throws, and never ends before it is told to.
    ///
    /// On graceful shutdown events are refused from then on, those taken before are stored, and delivery goes on, backoff after backoff,
    /// until all is delivered, the drain time is over, or the server refuses for a reason that time does not change. When the task is
    /// cancelled, before or while that goes on, what has been tracked is stored and nothing more is sent.
    public func run() async {
        try? await gracefulShutdown()
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
                "Nothing is left in this queue, but queues beside it, or damaged files, may hold events", metadata: metadata)
        } else {
            logger.info("Nothing is left to deliver", metadata: metadata)
        }
    }

    // MARK: - Tracking

    /// As ``EventClient/track(_:properties:id:time:distinctID:)``; if disabled, nil and counted in ``refused``.
    @discardableResult
    public func track(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Int64? = nil, distinctID: String? = nil
    ) -> EventID? {
        guard let client else {
            refuse()
            return nil
        }
        return client.track(name, properties: properties, id: id, time: time, distinctID: distinctID)
    }

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``.
    ///
    /// - Throws: ``TrackError``; if disabled, `refused(.disabled)`, counted in ``refused``.
    @discardableResult
    public func trackDurably(
        _ name: String, properties: Properties = [:], id: EventID? = nil, time: Int64? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        guard let client else {
            refuse()
            throw .refused(.disabled)
        }
        return try await client.trackDurably(name, properties: properties, id: id, time: time, distinctID: distinctID)
    }

    private func refuse() {
        state.withLock { $0.refused += 1 }
        refusals.increment()
    }
}
