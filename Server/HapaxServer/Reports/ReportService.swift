import HapaxModel
import Logging

/// Closes days as they become due, and says in the log what is new about that, and what is over.
actor ReportService {
    private let closing: DayClosing
    /// Whether the store answers: an outage is reported once, by ``StoreWatch``.
    private let isStoreThere: @Sendable () async -> Bool
    private let logger: Logger
    /// What was said last.
    private var (known, isClockDoubted, failed): ([String: StoreError], Bool, StoreError?) = ([:], false, nil)

    init(closing: DayClosing, isStoreThere: @escaping @Sendable () async -> Bool, logger: Logger) {
        (self.closing, self.isStoreThere, self.logger) = (closing, isStoreThere, logger)
    }

    func closeDays() async {
        do throws(StoreError) {
            let outcome = try await closing.perform()
            failed = nil
            if let outcome, !Task.isCancelled { report(outcome) }
        } catch {
            // Nothing is lost: the next attempt, of this server or another, goes on where this one ended. An error after the server has begun to
            // stop is no failure.
            guard !Task.isCancelled, error != failed, await isStoreThere() else { return }
            logger.warning("Reports could not be brought up to date and will be tried again", metadata: ["store.error": "\(error)"])
            failed = error
        }
    }

    private func report(_ outcome: DayClosing.Outcome) {
        if outcome.clockAhead > 0, !isClockDoubted {
            logger.error(
                """
                The store's clock has jumped ahead: no day closes for an hour, until it is right again or hapax-server clock accept says that it is
                """, metadata: ["clock.ahead.seconds": "\(outcome.clockAhead / 1_000)"])
        } else if outcome.clockAhead == 0, isClockDoubted {
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
        (known, isClockDoubted) = (outcome.failures, outcome.clockAhead > 0)
    }
}
