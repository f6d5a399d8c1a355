import HapaxModel

/// The session that changes the database: schema, grants, partitions. Under the admin role, if there is one, and with deadlines of its own, so
/// that long work holds up nobody's health check.
actor PostgresUpkeep {
    private let uri: String
    private let breaker: Locked<ConnectionBreaker>
    private let executor = SerialQueueExecutor(label: "hapax.postgres.upkeep")
    private var connection: PostgresConnection?

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Two servers must not make the same month at once. Any number that no other program is likely to use.
    private static let advisoryLock = 0x4861_7061_78

    init(uri: String, breaker: Locked<ConnectionBreaker>) {
        self.uri = uri
        self.breaker = breaker
    }

    func close() {
        connection = nil
    }

    /// Brings the schema up to date, makes the first partitions, and lets the serving role do what it must.
    ///
    /// - Parameters:
    ///   - server: The role that serves.
    ///   - today: Days since 1970-01-01; nil asks the database.
    func prepare(servedBy server: String, today: Int32?) throws(StoreError) {
        try withConnection { (connection) throws(StoreError) in
            try PostgresSchema.migrate(connection)
            try PostgresPartitions.create(connection, today: try Self.day(connection, today))
            try PostgresRoles.grant(connection, to: server)
        }
    }

    /// Makes the months that are due.
    ///
    /// - Parameter tell: Called with the months that cannot be made, since too much of them lies in DEFAULT, before any other is.
    /// - Returns: The same; nil if this role may make none, with how many are due.
    func perform(
        today: Int32?, tell: @Sendable ([CrowdedMonth]) -> Void
    ) throws(StoreError) -> (crowded: [CrowdedMonth]?, due: Int) {
        try withConnection { (connection) throws(StoreError) in
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
            // Another server is at it.
            guard isOurs else { return (crowded, due.count) }
            defer { _ = try? connection.query("SELECT pg_advisory_unlock($1)", [lock]) }
            let names = Set(crowded.map(\.month))
            // Again, behind the lock: another server may just have made some.
            for month in try translating({ () throws(PostgresError) in try PostgresPartitions.due(connection, today: today) })
            where !names.contains(month.text) {
                try PostgresPartitions.make(connection, month)
            }
            return (crowded, due.count)
        }
    }

    private static func day(_ connection: PostgresConnection, _ today: Int32?) throws(StoreError) -> Int32 {
        if let today { return today }
        // The database's day: a server whose clock is off must make no partitions for another century.
        let rows = try translating { () throws(PostgresError) in
            try connection.query("SELECT floor(extract(epoch FROM now()) / 86400)::int4")
        }
        return rows.first?[0].flatMap { Int32($0) } ?? 0
    }

    private func withConnection<Value>(
        _ body: (PostgresConnection) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        let connection: PostgresConnection
        if let known = self.connection {
            connection = known
        } else {
            // A migration takes as long as the table is large.
            connection = try PostgresConnection.open(uri, breaker, deadline: .seconds(6 * 60 * 60))
        }
        self.connection = connection
        defer { if connection.isBroken { self.connection = nil } }
        return try body(connection)
    }
}
