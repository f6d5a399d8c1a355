import HapaxModel

/// The session for everything that is not an event: settings, schema, partitions, projects, health.
actor PostgresAdministration {
    private let uri: String
    private let currentTime: @Sendable () -> Int64
    private let executor = SerialQueueExecutor(label: "hapax.postgres.administration")
    private var connection: PostgresConnection?

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// For COPY inside transactions, `unnest` of several arrays and runtime pruning 13 would do; 14 is the oldest that is tested.
    private static let oldestMajorVersion = 14

    init(uri: String, currentTime: @escaping @Sendable () -> Int64) {
        self.uri = uri
        self.currentTime = currentTime
    }

    func close() {
        connection = nil
    }

    /// - Returns: The settings that make the store unsafe, if that was allowed.
    func prepare(allowingUnsafe: Bool) throws(StoreError) -> [String] {
        try withConnection { (connection) throws(StoreError) in
            guard connection.majorVersion >= Self.oldestMajorVersion else {
                throw .unusable("PostgreSQL \(connection.majorVersion) is too old; \(Self.oldestMajorVersion) or later is needed")
            }
            let complaints = try unsafeSettings(connection)
            guard complaints.isEmpty || allowingUnsafe else {
                throw .unusable(
                    "an acknowledged event could be lost with \(complaints.joined(separator: ", ")); set it on, or start with --unsafe-allow-non-durable-store"
                )
            }
            try PostgresSchema.migrate(connection)
            return complaints
        }
    }

    /// https://www.postgresql.org/docs/current/runtime-config-wal.html: with these off, COMMIT returns before the commit is on disk, or a crash
    /// can leave a torn page.
    private func unsafeSettings(_ connection: PostgresConnection) throws(StoreError) -> [String] {
        try translating { () throws(PostgresError) in
            let rows = try connection.query(
                """
                SELECT name || '=' || setting FROM pg_settings
                WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting = 'off' ORDER BY name
                """)
            return rows.compactMap { $0[0] }
        }
    }

    func projectID(named name: String) throws(StoreError) -> Int32 {
        try withConnection { (connection) throws(StoreError) in
            let rows = try translating { () throws(PostgresError) in
                // Looked up first: a refused INSERT would use up a number each time.
                let select = "SELECT project_id FROM projects WHERE name = $1"
                let known = try connection.query(select, [name])
                if !known.isEmpty { return known }
                _ = try connection.query("INSERT INTO projects (name) VALUES ($1) ON CONFLICT DO NOTHING", [name])
                return try connection.query(select, [name])
            }
            guard let id = rows.first?[0].flatMap({ Int32($0) }) else { throw .unavailable("a project has no number") }
            return id
        }
    }

    func check() throws(StoreError) {
        try withConnection { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in _ = try connection.query("SELECT 1") }
        }
    }

    /// - Returns: The horizon.
    func performUpkeep() throws(StoreError) -> Int32 {
        try withConnection { (connection) throws(StoreError) in
            let today = Int32(clamping: currentTime() / 86_400_000)
            try PostgresPartitions.performUpkeep(connection, today: today)
            let rows = try translating { () throws(PostgresError) in try connection.query("SELECT horizon FROM retention") }
            return rows.first?[0].flatMap { Int32($0) } ?? 0
        }
    }

    private func withConnection<Value>(
        _ body: (PostgresConnection) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        let connection: PostgresConnection
        if let known = self.connection { connection = known } else { connection = try connect() }
        self.connection = connection
        defer { if connection.isBroken { self.connection = nil } }
        return try body(connection)
    }

    private func connect() throws(StoreError) -> PostgresConnection {
        do throws(PostgresError) {
            let connection = try PostgresConnection(uri: uri)
            try connection.execute("SET statement_timeout = '60s'")
            return connection
        } catch {
            throw StoreError(error)
        }
    }
}
