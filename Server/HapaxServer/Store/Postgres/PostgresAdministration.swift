import HapaxModel

/// The session for short questions under the serving role: projects, health, and what has changed.
actor PostgresAdministration {
    private let uri: String
    private let allowsUnsafe: Bool
    private let told: Locked<Int64>
    private let executor = SerialQueueExecutor(label: "hapax.postgres.administration")
    private var session: PostgresSession

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// The first with `minmax_multi`, which the BRIN index needs. The tests run on 15 to 18.
    private static let oldestMajorVersion = 14

    init(uri: String, allowsUnsafe: Bool, breaker: Locked<ConnectionBreaker>, told: Locked<Int64>) {
        self.told = told
        self.uri = uri
        session = PostgresSession(uri: uri, breaker: breaker, deadline: .seconds(10)) { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in try connection.execute("SET statement_timeout = '8s'") }
        }
        self.allowsUnsafe = allowsUnsafe
    }

    func close() {
        session.close()
    }

    /// Checks version, encoding, pooling and durability before anything is changed.
    ///
    /// - Returns: The role that serves.
    func checkDatabase() throws(StoreError) -> String {
        try session.use { (connection) throws(StoreError) in
            guard connection.majorVersion >= Self.oldestMajorVersion else {
                throw .unusable("PostgreSQL \(connection.majorVersion) is too old; \(Self.oldestMajorVersion) or later is needed")
            }
            try PostgresSettings.checkEncoding(connection)
            try PostgresPooling.check(connection, uri)
            if !allowsUnsafe { try PostgresSettings.checkDurability(connection) }
            return try translating { () throws(PostgresError) in try connection.query("SELECT current_user").first?[0] ?? "" }
        }
    }

    /// The settings that make the store unsafe; there can be some only if that was allowed.
    func complaints() throws(StoreError) -> [String] {
        try session.use { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in try PostgresSettings.unsafe(connection) }
        }
    }

    /// The names of the migrations that the schema has had.
    func appliedMigrations() throws(StoreError) -> [String] {
        try session.use { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                guard try connection.query("SELECT to_regclass('hapax_migrations') IS NOT NULL").first?[0] == "t" else { return [] }
                return try connection.query("SELECT name FROM hapax_migrations").compactMap { $0[0] }
            }
        }
    }

    /// Whether an earlier server, or the admin role, has made all that serving needs.
    func isPrepared() throws(StoreError) -> Bool {
        guard try appliedMigrations().sorted() == PostgresSchema.migrations.map(\.name) else { return false }
        return try session.use { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in try !PostgresPartitions.names(connection).isEmpty }
        }
    }

    func projectID(named name: String) throws(StoreError) -> Int32 {
        try session.use { (connection) throws(StoreError) in
            let rows = try translating { () throws(PostgresError) in
                // Looked up first, because an INSERT that conflicts uses up a number.
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
        try session.use { (connection) throws(StoreError) in
            try PostgresSettings.checkWritable(connection)
            // While the clock is behind, the writers refuse to commit, so the store is not ready.
            try PostgresSettings.checkClock(connection, told: told.withLock { $0 })
            if !allowsUnsafe { try PostgresSettings.checkDurability(connection) }
        }
    }

    func answers(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) -> [[[String?]]] {
        try session.answers(statements)
    }

    /// What the serving role may change.
    func change(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) -> [[String?]] {
        try session.change(statements)
    }

    /// The horizon, which any server may have raised.
    func horizon() throws(StoreError) -> Int32 {
        try session.use(isRepeatable: true) { (connection) throws(StoreError) in
            let rows = try translating { () throws(PostgresError) in try connection.query("SELECT horizon FROM retention") }
            guard let horizon = rows.first?[0].flatMap({ Int32($0) }) else { throw .unavailable("its retention cannot be read") }
            return horizon
        }
    }
}
