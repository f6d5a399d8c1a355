import HapaxModel
import Logging
import ServiceLifecycle

/// Closes days as they become due, at once and every half a minute.
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
                    // Days stay as they are; whoever comes next goes on.
                    logger.warning("Reports could not be brought up to date and will be tried again", metadata: ["store.error": "\(error)"])
                }
                try await Task.sleep(for: ServerLimits.reportInterval)
            }
        }
    }
}
