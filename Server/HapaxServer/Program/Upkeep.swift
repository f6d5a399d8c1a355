import HapaxModel
import Logging
import ServiceLifecycle

/// Makes partitions for future months, at once and daily, and asks every few seconds what other servers have changed.
struct UpkeepService: Service {
    let store: any EventStore
    let metrics: ServerMetrics
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64
    let logger: Logger
    var pause: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            try await withThrowingDiscardingTaskGroup { group in
                group.addTask { try await perform() }
                group.addTask { try await refresh() }
            }
        }
    }

    private func perform() async throws {
        while true {
            var interval = ServerLimits.upkeepInterval
            do throws(StoreError) {
                try await store.performUpkeep()
                metrics.upkeepPerformed(at: Timestamp(clampingUnixMilliseconds: currentTime()))
            } catch {
                // There is time to try again, because months are made long before they begin.
                logger.warning("Upkeep could not be done and will be tried again", metadata: ["store.error": "\(error)"])
                interval = ServerLimits.upkeepIntervalAfterFailure
            }
            try await pause(interval)
        }
    }

    private func refresh() async throws {
        while true {
            try await pause(ServerLimits.refreshInterval)
            // A failure needs no report here: while the store does not answer, requests are refused and logged.
            try? await store.refresh()
        }
    }
}
