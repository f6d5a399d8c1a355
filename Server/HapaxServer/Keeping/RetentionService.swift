import HapaxModel
import Logging
import ServiceLifecycle

/// Raises the horizon as months go by, and removes what lies below it.
struct RetentionService: Service {
    let retention: Retention
    let failures: FailureLog
    let logger: Logger

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            var next = ContinuousClock.now
            while true {
                var interval = ServerLimits.settingsInterval
                do {
                    if next <= .now {
                        try await retention.advance()
                        next = .now + ServerLimits.upkeepInterval
                    }
                    if let state = try await retention.perform() {
                        logger.notice("Events that are no longer kept were removed", metadata: ["kept.from": "\(state.firstDay ?? "")"])
                    }
                    failures.succeeded()
                } catch let error as StoreError {
                    failures.failed(error)
                    // Whoever reads all months waits behind each attempt.
                    interval = ServerLimits.upkeepIntervalAfterFailure
                }
                try await Task.sleep(for: interval)
            }
        }
    }
}
