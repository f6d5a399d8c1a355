import HapaxModel

/// The session for everything that is not an event: settings, schema, partitions, projects, health.
actor PostgresAdministration {
    private let uri: String
    private let allowsUnsafe: Bool
    /// Days since 1970-01-01; nil asks the database, so that a server whose clock is off makes no partitions for another century.
    private let today: (@Sendable () -> Int32)?
    private let executor = SerialQueueExecutor(label: "hapax.postgres.administration")
    private var connection: PostgresConnection?

    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// For COPY inside transactions, `unnest` of several arrays and runtime pruning 13 would do; 14 is the oldest that is tested.
    private static let oldestMajorVersion = 14

    init(uri: String, allowsUnsafe: Bool, today: (@Sendable () -> Int32)?) {
        self.uri = uri
        self.allowsUnsafe = allowsUnsafe
        self.today = today
    }

    func close() {
        connection = nil
    }

    /// - Returns: The settings that make the store unsafe, if that was allowed.
    func prepare() throws(StoreError) -> [String] {
        try withConnection { (connection) throws(StoreError) in
            guard connection.majorVersion >= Self.oldestMajorVersion else {
                throw .unusable("PostgreSQL \(connection.majorVersion) is too old; \(Self.oldestMajorVersion) or later is needed")
            }
            try PostgresSettings.checkEncoding(connection)
            if !allowsUnsafe { try PostgresSettings.checkDurability(connection) }
            try PostgresSchema.migrate(connection)
            return try translating { () throws(PostgresError) in try PostgresSettings.unsafe(connection) }
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
            if allowsUnsafe { return try translating { () throws(PostgresError) in _ = try connection.query("SELECT 1") } }
            // Not ready as long as writers refuse to work.
            try PostgresSettings.checkDurability(connection)
        }
    }

    func performUpkeep() throws(StoreError) {
        try withConnection { (connection) throws(StoreError) in
            let today = try today(connection)
            try PostgresPartitions.performUpkeep(connection, today: today)
        }
    }

    /// Whether there is a place for every event, be it the open partition.
    func hasPartitions() throws(StoreError) -> Bool {
        try withConnection { (connection) throws(StoreError) in
            try translating { () throws(PostgresError) in
                try !connection.query("SELECT FROM event_partitions WHERE is_open").isEmpty
            }
        }
    }

    func horizon() throws(StoreError) -> Int32 {
        try withConnection { (connection) throws(StoreError) in
            let rows = try translating { () throws(PostgresError) in try connection.query("SELECT horizon FROM retention") }
            return rows.first?[0].flatMap { Int32($0) } ?? 0
        }
    }

    private func today(_ connection: PostgresConnection) throws(StoreError) -> Int32 {
        if let today { return today() }
        let rows = try translating { () throws(PostgresError) in
            try connection.query("SELECT floor(extract(epoch FROM now()) / 86400)::int4")
        }
        return rows.first?[0].flatMap { Int32($0) } ?? 0
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
