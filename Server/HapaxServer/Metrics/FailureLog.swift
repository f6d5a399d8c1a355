import HapaxModel
import Logging

/// Logs failures of the store, and its recovery. An outage fails thousands of requests, so the same failure is logged once in ten seconds, with
/// the number of suppressed ones.
final class FailureLog: Sendable {
    private struct Reported {
        var error: StoreError
        var at: ContinuousClock.Instant
        var suppressed = 0
        var since: ContinuousClock.Instant
        var count = 1
    }

    private let failure: Logger.Message
    private let recovery: Logger.Message
    private let level: Logger.Level
    private let logger: Logger
    private let now: @Sendable () -> ContinuousClock.Instant
    private let reported = Locked<Reported?>(nil)

    init(
        _ failure: Logger.Message, recovery: Logger.Message, level: Logger.Level = .warning, logger: Logger,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        (self.failure, self.recovery, self.level, self.logger, self.now) = (failure, recovery, level, logger, now)
    }

    func failed(_ error: StoreError) {
        let now = now()
        let suppressed: Int? = reported.withLock { last in
            last?.count += 1
            if let known = last, known.error.isLike(error), now < known.at + ServerLimits.logInterval {
                last?.suppressed += 1
                return nil
            }
            defer { last = Reported(error: error, at: now, since: last?.since ?? now, count: last?.count ?? 1) }
            return last?.suppressed ?? 0
        }
        guard let suppressed else { return }
        logger.log(level: level, failure, metadata: ["store.error": "\(error)", "suppressed.count": "\(suppressed)"])
    }

    func succeeded() {
        guard
            let last = reported.withLock({ last in
                defer { last = nil }
                return last
            })
        else { return }
        let seconds = (now() - last.since) / .seconds(1)
        logger.notice(recovery, metadata: ["failures.count": "\(last.count)", "failures.seconds": "\(Int(seconds))"])
    }
}
