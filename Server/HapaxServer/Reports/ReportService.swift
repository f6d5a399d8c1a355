import HapaxModel
import Logging
import ServiceLifecycle

/// Closes days as they become due, at once and every few seconds.
struct ReportService: Service {
    let closing: DayClosing
    /// Whether the store answers: an outage is reported once, by ``StoreWatch``.
    let isStoreThere: @Sendable () async -> Bool
    let logger: Logger
    var pause: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            var (known, isClockDoubted, failed): ([String: StoreError], Bool, StoreError?) = ([:], false, nil)
            while true {
                do throws(StoreError) {
                    let outcome = try await closing.perform()
                    // An error after the server has begun to stop is no failure.
                    if Task.isCancelled { return }
                    failed = nil
                    if let outcome {
                        report(outcome, known, isClockDoubted)
                        (known, isClockDoubted) = (outcome.failures, outcome.clockAhead > 0)
                    }
                } catch {
                    if Task.isCancelled { return }
                    // Nothing is lost: the next attempt, of this server or another, goes on where this one ended.
                    if error != failed, await isStoreThere() {
                        logger.warning(
                            "Reports could not be brought up to date and will be tried again", metadata: ["store.error": "\(error)"])
                        failed = error
                    }
                }
                try await pause(ServerLimits.reportInterval)
            }
        }
    }

    /// A line for what is new, and for what is over.
    private func report(_ outcome: DayClosing.Outcome, _ known: [String: StoreError], _ wasClockDoubted: Bool) {
        if outcome.clockAhead > 0, !wasClockDoubted {
            logger.error(
                """
                The store's clock has jumped ahead: no day closes for an hour, until it is right again or hapax-server clock accept says that it is
                """, metadata: ["clock.ahead.seconds": "\(outcome.clockAhead / 1_000)"])
        } else if outcome.clockAhead == 0, wasClockDoubted {
            logger.notice("The store's clock is believed again: days close by it")
        }
        for (project, error) in outcome.failures.sorted(by: { $0.key < $1.key }) where known[project] != error {
            logger.error(
                "The days of a project cannot be closed; those of others are",
                metadata: ["project": "\(project)", "store.error": "\(error)"])
        }
        for project in known.keys.sorted() where outcome.failures[project] == nil {
            logger.notice("The days of the project close again", metadata: ["project": "\(project)"])
        }
    }
}
