import HapaxModel
import Logging
import ServiceLifecycle

/// Prepares the store for the days to come, at once and daily, and learns what other servers have changed.
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
                // The months are made long before they begin.
                logger.warning("Upkeep could not be done and will be tried again", metadata: ["store.error": "\(error)"])
                interval = ServerLimits.upkeepIntervalAfterFailure
            }
            try await pause(interval)
        }
    }

    private func refresh() async throws {
        while true {
            try await pause(ServerLimits.refreshInterval)
            // If the store does not answer, senders are told so already.
            try? await store.refresh()
        }
    }
}
