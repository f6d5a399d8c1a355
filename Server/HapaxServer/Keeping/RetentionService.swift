import HapaxModel
import Logging
import ServiceLifecycle

/// Raises the horizon as months go by, and removes what lies below it.
struct RetentionService: Service {
    let retention: Retention
    /// Whether the store answers: an outage is reported once, by ``StoreWatch``.
    let isStoreThere: @Sendable () async -> Bool
    let failures: FailureLog
    let logger: Logger

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            var next = ContinuousClock.now
            while true {
                try await Task.sleep(for: try await step(&next))
            }
        }
    }

    /// - Returns: How long to wait.
    private func step(_ next: inout ContinuousClock.Instant) async throws -> Duration {
        // Whether anything waits to be removed is not known: that is no failure to remove it.
        let isDue: Bool
        do throws(StoreError) {
            let state = try await retention.state()
            isDue = state.cleared < state.horizon
        } catch { return ServerLimits.settingsInterval }
        guard isDue || next <= .now else { return ServerLimits.settingsInterval }
        do {
            if next <= .now {
                try await retention.advance()
                next = .now + ServerLimits.upkeepInterval
            }
            if let state = try await retention.perform() {
                logger.notice("Events that are no longer kept were removed", metadata: ["kept.from": "\(state.firstDay ?? "")"])
            }
            failures.succeeded()
            return ServerLimits.settingsInterval
        } catch let error as StoreError {
            guard await isStoreThere() else { return ServerLimits.settingsInterval }
            failures.failed(error)
            // Whoever reads all months waits behind each attempt.
            return ServerLimits.upkeepIntervalAfterFailure
        }
    }
}
