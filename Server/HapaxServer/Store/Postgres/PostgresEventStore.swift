import HapaxModel
import Logging

/// Events in PostgreSQL 14 or later, through a few writer sessions.
package final class PostgresEventStore: EventStore {
    private let administration: PostgresAdministration
    private let writers: [PostgresWriter]
    private let cachedHorizon = Locked<Int32>(0)
    package let needsUpkeep: Bool

    package struct Options: Sendable {
        /// Sessions that commit at the same time, 1…16. A second one works while the first waits for the disk.
        package var writers = 2
        /// Run on a database whose settings let an acknowledged event be lost. For experiments only.
        package var unsafeAllowNonDurableStore = false
        /// How long the database may take to answer one statement before the session is given up.
        package var answerDeadline = Duration.seconds(30)
        /// How often a session that works looks again whether the database is durable.
        package var durabilityRecheck = Duration.seconds(10)

        package init() {}
    }

    /// Connects, brings the schema up to date and prepares the months to come.
    ///
    /// - Parameter today: Days since 1970-01-01; nil asks the database.
    /// - Throws: ``StoreError/unusable(_:)`` if the database would acknowledge before it is durable (I4), is too old, or was migrated by a
    ///   newer server; ``StoreError/unavailable(_:)`` if it cannot be reached.
    package init(
        uri: String, options: Options = Options(), today: (@Sendable () -> Int32)? = nil, logger: Logger
    ) async throws(StoreError) {
        administration = PostgresAdministration(uri: uri, allowsUnsafe: options.unsafeAllowNonDurableStore, today: today)
        writers = (0..<max(1, options.writers)).map { PostgresWriter(uri: uri, number: $0, options: options) }
        let complaints = try await administration.prepare()
        for complaint in complaints {
            logger.warning("The store is not durable; an acknowledged event can be lost", metadata: ["store.setting": "\(complaint)"])
        }
        needsUpkeep = try await Self.upkeepIsDue(administration, logger)
        let horizon = try await administration.horizon()
        cachedHorizon.withLock { $0 = horizon }
    }

    /// Prepares the months to come. If somebody's long transaction forbids that, it can wait: the open partition takes what comes.
    private static func upkeepIsDue(_ administration: PostgresAdministration, _ logger: Logger) async throws(StoreError) -> Bool {
        do throws(StoreError) {
            try await administration.performUpkeep()
            return false
        } catch {
            guard try await administration.hasPartitions() else { throw error }
            logger.warning("Upkeep could not be done and will be tried again", metadata: ["store.error": "\(error)"])
            return true
        }
    }

    package var writerCount: Int { writers.count }

    package var horizon: Int32 { cachedHorizon.withLock { $0 } }

    package func projectID(named name: String) async throws(StoreError) -> Int32 {
        try await administration.projectID(named: name)
    }

    package func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64] {
        try await writers[writer].commit(group)
    }

    package func check() async throws(StoreError) {
        try await administration.check()
    }

    package func performUpkeep() async throws(StoreError) {
        try await administration.performUpkeep()
        let horizon = try await administration.horizon()
        cachedHorizon.withLock { $0 = max($0, horizon) }
    }

    package func close() async {
        for writer in writers { await writer.close() }
        await administration.close()
    }
}
