import HapaxModel
import Logging

/// Raises the horizon as months go by, and removes what lies below it.
struct RetentionService: Sendable {
    private let retention: Retention
    /// Whether the store answers: an outage is reported once, by ``StoreWatch``.
    private let isStoreThere: @Sendable () async -> Bool
    private let failures: FailureLog
    private let logger: Logger

    init(retention: Retention, isStoreThere: @escaping @Sendable () async -> Bool, logger: Logger) {
        (self.retention, self.isStoreThere, self.logger) = (retention, isStoreThere, logger)
        failures = FailureLog(
            "Events that are no longer kept could not be removed", recovery: "They could be removed", logger: logger)
    }

    func advance() async throws { try await reporting { try await retention.advance() } }

    /// - Throws: Also if readers of all months would wait for each further attempt: then the next one comes later.
    func remove() async throws {
        try await reporting(triesSoon: true) {
            guard let state = try await retention.perform() else { return }
            logger.notice("Events that are no longer kept were removed", metadata: ["kept.from": "\(state.firstDay ?? "")"])
        }
    }

    /// - Parameter triesSoon: Whether an outage of the store is no failure of a turn.
    private func reporting(triesSoon: Bool = false, _ work: () async throws -> Void) async throws {
        do {
            try await work()
            failures.succeeded()
        } catch let error as StoreError {
            if await isStoreThere() { failures.failed(error) } else if triesSoon { return }
            throw error
        }
    }
}
