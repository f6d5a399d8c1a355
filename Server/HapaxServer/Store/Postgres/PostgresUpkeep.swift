import HapaxModel

/// The session that changes the database: schema, grants, partitions. It uses the admin role, if there is one. It is separate and has long
/// deadlines, so that its work does not delay health checks.
actor PostgresUpkeep {
    private let executor = SerialQueueExecutor(label: "hapax.postgres.upkeep")
    private var session: PostgresSession

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Keeps two servers from making the same month at once. An arbitrary number that no other program is likely to use.
    private static let advisoryLock = 0x4861_7061_78

    init(uri: String, breaker: Locked<ConnectionBreaker>) {
        // A migration takes as long as the table is large.
        session = PostgresSession(uri: uri, breaker: breaker, deadline: .seconds(6 * 60 * 60))
    }

    func close() {
        session.close()
    }

    /// Brings the schema up to date, makes the first partitions, and grants the serving role what it needs.
    ///
    /// - Parameters:
    ///   - server: The role that serves.
    ///   - today: Days since 1970-01-01; nil asks the database.
    func prepare(servedBy server: String, today: Int32?) throws(StoreError) {
        try session.use { (connection) throws(StoreError) in
            try PostgresSchema.migrate(connection)
            try PostgresPartitions.create(connection, today: try Self.day(connection, today))
            try PostgresRoles.grant(connection, to: server)
        }
    }

    /// Makes the months that are due.
    ///
    /// - Parameter tell: Called before any month is made, with the months that cannot be made because too many of their rows are in DEFAULT.
    /// - Returns: The same months, nil if this role may not make any; and how many months are due.
    func perform(
        today: Int32?, tell: @Sendable ([CrowdedMonth]) -> Void
    ) throws(StoreError) -> (crowded: [CrowdedMonth]?, due: Int) {
        // A month that has been made is not made again.
        try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            let today = try Self.day(connection, today)
            let (due, crowded) = try translating { () throws(PostgresError) in
                try connection.execute("SET lock_timeout = '\(PostgresPartitions.lockTimeout)'")
                let due = try PostgresPartitions.due(connection, today: today)
                guard try PostgresRoles.mayChange(connection) else { return (due, [CrowdedMonth]?.none) }
                return (due, try PostgresPartitions.crowded(connection, due))
            }
            guard let crowded else { return (nil, due.count) }
            tell(crowded)
            let lock = "\(Self.advisoryLock)"
            let isOurs = try translating { () throws(PostgresError) in
                try connection.query("SELECT pg_try_advisory_lock($1)", [lock]).first?[0] == "t"
            }
            // Another server is making the months.
            guard isOurs else { return (crowded, due.count) }
            defer { _ = try? connection.query("SELECT pg_advisory_unlock($1)", [lock]) }
            let names = Set(crowded.map(\.month))
            // Asked again under the lock: another server may just have made some.
            for month in try translating({ () throws(PostgresError) in try PostgresPartitions.due(connection, today: today) })
            where !names.contains(month.text) {
                try PostgresPartitions.make(connection, month)
            }
            return (crowded, due.count)
        }
    }

    /// Whether this role owns the tables. What follows has a connection that was there a moment ago.
    func mayChange() throws(StoreError) -> Bool {
        try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in try PostgresRoles.mayChange(connection) }
        }
    }

    /// Whether this role may make tables.
    func mayCreate() throws(StoreError) -> Bool {
        try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                try connection.query("SELECT has_schema_privilege(current_schema(), 'CREATE')").first?[0] == "t"
            }
        }
    }

    /// Whether this role may make temporary tables, as removing old months does.
    func mayMakeTemporary() throws(StoreError) -> Bool {
        try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                try connection.query("SELECT has_database_privilege(current_database(), 'TEMPORARY')").first?[0] == "t"
            }
        }
    }

    /// - Returns: The rows of the last statement.
    /// - Throws: ``StoreError/notPermitted`` if this role does not own the tables.
    func change(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) -> [[String?]] {
        guard try mayChange() else { throw .notPermitted }
        return try session.change(statements)
    }

    /// Rows of text, however long it takes.
    func answers(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) -> [[[String?]]] {
        try session.answers(statements)
    }

    /// Removes old versions of rows, whatever autovacuum would wait for (https://www.postgresql.org/docs/current/sql-vacuum.html).
    ///
    /// - Parameter tables: Their names, as SQL has them.
    func vacuum(_ tables: [String]) throws(StoreError) {
        // As often as it is done it is the same.
        try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                for table in tables { try connection.execute("VACUUM (ANALYZE) \(table)") }
            }
        }
    }

    /// Removes the rows of some days. Fails if it would have to wait for a lock for long.
    func clear(_ buckets: Range<Int32>) throws(StoreError) {
        guard try mayChange() else { throw .notPermitted }
        try session.use { (connection) throws(StoreError) in
            try PostgresPartitions.clear(connection, buckets)
        }
    }

    private static func day(_ connection: PostgresConnection, _ today: Int32?) throws(StoreError) -> Int32 {
        if let today { return today }
        // The database's day: a server whose clock is off must make no partitions for another century.
        let rows = try translating { () throws(PostgresError) in
            try connection.query("SELECT floor(extract(epoch FROM now()) / 86400)::int4")
        }
        guard let day = rows.first?[0].flatMap({ Int32($0) }) else { throw .unavailable("its clock cannot be read") }
        return day
    }
}
