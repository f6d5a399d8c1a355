import HapaxModel
import Logging

/// Events in PostgreSQL 14 or later, through a few writer sessions, some for reading, one for upkeep, and one for each other ``Purpose``.
package final class PostgresEventStore: EventStore {
    private let writers: [PostgresWriter]
    private let statements: PostgresSQLStore
    private let reported: Locked<Int64>
    private let allowsUnsafe: Bool
    private let known = Locked(Known())
    private let today: (@Sendable () -> Int32)?
    private let logger: Logger

    private struct Known {
        var horizon: Int32 = 0
        var crowdedMonths: [CrowdedMonth] = []
    }

    package struct Options: Sendable {
        /// Sessions that commit at the same time, 1…16. A second one works while the first waits for the disk.
        package var writers = 2
        /// Run on a database whose settings let an acknowledged event be lost. For experiments only.
        package var unsafeAllowNonDurableStore = false
        /// The URI of the same database with the role that owns the tables; nil if the serving role owns them, or must change nothing.
        package var admin: String?
        /// How long the database may take to answer one statement before the session is given up.
        package var answerDeadline = ServerLimits.commitAnswer
        /// How often a writer session checks again whether the database is durable and its clock is right.
        package var durabilityRecheck = Duration.seconds(10)

        package init() {}
    }

    /// Connects, brings the schema up to date and makes the first partitions.
    ///
    /// - Parameter today: Days since 1970-01-01; nil asks the database.
    /// - Throws: ``StoreError/unusable(_:)`` if the database would acknowledge before it is durable (I4), is too old, was migrated by a newer
    ///   server, or lacks something that this role may not create; ``StoreError/unavailable(_:)`` if it cannot be reached.
    package init(
        uri: String, options: Options = Options(), today: (@Sendable () -> Int32)? = nil, logger: Logger
    ) async throws(StoreError) {
        let (breaker, reported) = (Locked(ConnectionBreaker()), Locked<Int64>(0))
        (self.reported, allowsUnsafe) = (reported, options.unsafeAllowNonDurableStore)
        writers = (0..<max(1, options.writers)).map {
            PostgresWriter(uri: uri, number: $0, options: options, breaker: breaker, reported: reported)
        }
        statements = PostgresSQLStore(uri: uri, admin: options.admin ?? uri, breaker: breaker, reported: reported)
        self.today = today
        self.logger = logger
        let role = try await own.use { [allowsUnsafe] (connection) throws(StoreError) in
            try PostgresSettings.check(connection, uri, allowsUnsafe: allowsUnsafe)
        }
        // Once schema and partitions exist, a serving role without further rights is enough.
        let isPrepared = try await own.look(PostgresSchema.isPrepared)
        if options.admin != nil || !isPrepared {
            try await statements.upkeep.use { (connection) throws(StoreError) in
                try PostgresSchema.prepare(connection, servedBy: role, today: today?())
            }
        }
        for complaint in try await own.look(PostgresSettings.unsafe) {
            logger.warning("The store is not durable; an acknowledged event can be lost", metadata: ["store.setting": "\(complaint)"])
        }
        try await refresh()
    }

    package var sql: any SQLStore { statements }

    package var reader: any EventReader { statements.reader }

    private var own: PostgresSession { statements.own }

    package var writerCount: Int { writers.count }

    package var horizon: Int32 { known.withLock { $0.horizon } }

    package var crowdedMonths: [CrowdedMonth] { known.withLock { $0.crowdedMonths } }

    package func projectID(named name: String) async throws(StoreError) -> Int32 {
        let id = try await own.use { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                // Looked up first, because an INSERT that conflicts uses up a number.
                let select = "SELECT project_id FROM projects WHERE name = $1"
                let known = try connection.query(select, [name])
                if !known.isEmpty { return known }
                _ = try connection.query("INSERT INTO projects (name) VALUES ($1) ON CONFLICT DO NOTHING", [name])
                return try connection.query(select, [name])
            }
        }.first?[0].flatMap { Int32($0) }
        guard let id else { throw .unavailable("a project has no number") }
        return id
    }

    package func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64] {
        try await writers[writer].commit(group)
    }

    package func compare(_ records: [EventRecord], writer: Int) async throws(StoreError) -> [Bool?] {
        try await writers[writer].compare(records)
    }

    package func check() async throws(StoreError) {
        try await own.use { [reported, allowsUnsafe] (connection) throws(StoreError) in
            try PostgresSettings.checkWritable(connection)
            // While the clock is behind, the writers refuse to commit, so the store is not ready.
            try PostgresSettings.checkClock(connection, reported: reported.withLock { $0 })
            if !allowsUnsafe { try PostgresSettings.checkDurability(connection) }
        }
    }

    package func refresh() async throws(StoreError) {
        guard let horizon = try await own.query("SELECT horizon FROM retention").first?[0].flatMap({ Int32($0) }) else {
            throw .unavailable("its retention cannot be read")
        }
        known.withLock { $0.horizon = max($0.horizon, horizon) }
    }

    package func performUpkeep() async throws(StoreError) {
        let (crowded, due) = try await statements.upkeep.use(isRepeatable: true) { [known, today] (connection) throws(StoreError) in
            try PostgresPartitions.makeDue(connection, today: today?()) { months in known.withLock { $0.crowdedMonths = months } }
        }
        if crowded == nil {
            logger.warning(
                "This role may make no partitions; set store-admin before the last month begins, or ids of later months share one partition",
                metadata: ["store.months.left": "\(PostgresPartitions.monthsAhead - due)"])
        }
        for month in crowded ?? [] {
            logger.warning(
                "A month to come stays in the partition of all that have none: it holds more events than can be moved at once",
                metadata: ["store.month": "\(month.month)", "project": "\(month.project)", "events": "\(month.rows)"])
        }
    }

    package func close() async {
        await statements.close()
        for writer in writers { await writer.close() }
    }
}
