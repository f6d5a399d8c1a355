import HapaxModel
import Logging
import ServiceLifecycle

/// Closes days as they become due, at once and every few seconds.
struct ReportService: Service {
    let closing: DayClosing
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64
    let logger: Logger

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            while true {
                do throws(StoreError) {
                    try await closing.perform(now: currentTime() / 1_000)
                } catch {
                    // An error after the server has begun to stop is no failure.
                    if Task.isCancelled { return }
                    // Nothing is lost: the next attempt, of this server or another, goes on where this one ended.
                    logger.warning("Reports could not be brought up to date and will be tried again", metadata: ["store.error": "\(error)"])
                }
                try await Task.sleep(for: ServerLimits.reportInterval)
            }
        }
    }
}
