#if Service
import HapaxClient
import HapaxModel
import Logging
import ServiceLifecycle

/// A client has the life of a service: it drains when the service stops, and it never stops the service.
///
/// ```swift
/// let events = EventClient(configuration, logger: logger)
/// let group = ServiceGroup(services: [events, server], gracefulShutdownSignals: [.sigterm], logger: logger)
/// ```
///
/// A `ServiceGroup` shuts its services down in reverse order, each when the one behind it has ended. So name this one **before** whatever
/// tracks: the web server then finishes its last requests while events are still taken, and only then they are drained. (Hummingbird's
/// `Application(services:)` keeps that order by itself.)
extension EventClient: Service {
    /// Waits for shutdown, then shuts the client down, and logs what is left. Never throws, and never ends before it is told to, whether or not
    /// the client has a configuration or could open its queue.
    ///
    /// On graceful shutdown events are refused from then on, those taken before are stored, and delivery goes on, backoff after backoff,
    /// until all is delivered, `Configuration.drainTime` is over, or the server refuses for a reason that time does not change. When
    /// the task is cancelled, before or while that goes on, what has been tracked is stored and nothing more is sent.
    public func run() async {
        try? await gracefulShutdown()
        let report = await withTaskCancellationHandler {
            await shutdown(within: Task.isCancelled ? .zero : drainTime)
        } onCancel: {
            // Ends the one above.
            Task { await shutdown(within: .zero) }
        }
        await log(report)
    }

    private func log(_ report: ShutdownReport) async {
        guard let logger else { return }
        if report.failure == .notOpen {
            let refused = await status().dropped.values.reduce(0, +)
            if refused > 0 { logger.warning("Events were refused: they are disabled", metadata: ["hapax.refused": "\(refused)"]) }
            return
        }
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
}
#else
#error("HapaxClientService is built with a trait: depend on Hapax with traits: [\"Service\"]")
#endif
