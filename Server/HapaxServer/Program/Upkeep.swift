import HapaxModel
import Logging

/// Makes partitions for future months.
struct Upkeep: Sendable {
    let store: any EventStore
    let metrics: ServerMetrics
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64
    let logger: Logger

    func perform() async throws(StoreError) {
        do throws(StoreError) {
            try await store.performUpkeep()
            metrics.upkeepPerformed(at: Timestamp(clampingUnixMilliseconds: currentTime()))
        } catch {
            // There is time to try again, because months are made long before they begin.
            logger.warning("Upkeep could not be done and will be tried again", metadata: ["store.error": "\(error)"])
            throw error
        }
    }
}
