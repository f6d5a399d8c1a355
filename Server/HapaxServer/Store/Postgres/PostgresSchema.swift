/// The schema in PostgreSQL: named migrations in order, never edited once released.
enum PostgresSchema {
    struct Migration {
        var name: String
        var sql: String
    }

    static let migrations = [
        Migration(
            name: "001_store",
            sql: """
                CREATE TABLE projects (
                  project_id  integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                  name        text        COLLATE "C" NOT NULL UNIQUE,
                  created_at  timestamptz NOT NULL DEFAULT now()
                );
                CREATE TABLE events (
                  project_id   integer     NOT NULL,
                  event_id     uuid        NOT NULL,
                  bucket       integer     NOT NULL,
                  event        text        COLLATE "C" NOT NULL,
                  distinct_id  text        COLLATE "C" NOT NULL,
                  time         timestamptz NOT NULL,
                  sent_at      timestamptz,
                  received_at  timestamptz NOT NULL DEFAULT now(),
                  install_id   uuid,
                  sequence     bigint,
                  fingerprint  bigint      NOT NULL,
                  properties   jsonb       NOT NULL,
                  PRIMARY KEY (event_id, project_id, bucket)
                ) PARTITION BY RANGE (bucket);
                CREATE TABLE event_partitions (
                  name         text    PRIMARY KEY,
                  from_bucket  integer NOT NULL,
                  is_open      boolean NOT NULL
                );
                CREATE TABLE retention (
                  singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
                  horizon    integer NOT NULL DEFAULT 0
                );
                INSERT INTO retention DEFAULT VALUES;
                CREATE TABLE installs (
                  project_id    integer     NOT NULL,
                  install_id    uuid        NOT NULL,
                  created       bigint      NOT NULL,
                  acknowledged  bigint      NOT NULL,
                  word          bigint      NOT NULL,
                  held          jsonb       NOT NULL,
                  gone          jsonb       NOT NULL,
                  refused       jsonb       NOT NULL,
                  heard_at      timestamptz NOT NULL DEFAULT now(),
                  PRIMARY KEY (project_id, install_id)
                ) WITH (fillfactor = 50);
                """)
    ]

    /// Brings the schema up to date. Safe when several servers start at once: one of them works, the others wait and find it done.
    ///
    /// - Throws: ``StoreError/unusable(_:)`` if a newer version of Hapax has been here.
    static func migrate(_ connection: PostgresConnection) throws(StoreError) {
        try translating { () throws(PostgresError) in try createLedger(connection) }
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            let applied = try translating { () throws(PostgresError) in
                try connection.execute("LOCK TABLE hapax_migrations IN ACCESS EXCLUSIVE MODE")
                return try connection.query("SELECT name FROM hapax_migrations ORDER BY name").compactMap { $0[0] }
            }
            if applied.contains("001_events") {
                throw .unusable(
                    "its schema was made by a version before the first release, which no later one reads; it is left as it is: "
                        + "name another database")
            }
            let known = Set(migrations.map(\.name))
            if let stranger = applied.first(where: { !known.contains($0) }) {
                throw .unusable("its schema is newer than this server: it has had the migration \(stranger)")
            }
            for migration in migrations where !applied.contains(migration.name) {
                try translating { () throws(PostgresError) in
                    try connection.execute(migration.sql)
                    _ = try connection.query("INSERT INTO hapax_migrations (name) VALUES ($1)", [migration.name])
                }
            }
        }
    }

    private static func createLedger(_ connection: PostgresConnection) throws(PostgresError) {
        let sql = """
            CREATE TABLE IF NOT EXISTS hapax_migrations (
              name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
            )
            """
        for _ in 0..<maximumRaces {
            do throws(PostgresError) {
                return try connection.execute(sql)
            } catch  where ["23505", "42P07", "42710"].contains(error.sqlState) {
                // Several servers create it in the same instant; IF NOT EXISTS does not cover that. What ours met first may have been the
                // other's row in the catalogue, its name, or its row type; the other may not have committed yet.
            }
        }
        try connection.execute(sql)
    }

    /// Far more than servers that start in the same instant.
    private static let maximumRaces = 100
}

/// Runs what must happen as a whole.
enum PostgresTransaction {
    static func run<Value>(
        _ connection: PostgresConnection, _ body: () throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        try translating { () throws(PostgresError) in try connection.execute("BEGIN") }
        do throws(StoreError) {
            let value = try body()
            try translating { () throws(PostgresError) in try connection.execute("COMMIT") }
            return value
        } catch {
            // Also void if the connection is gone, or if COMMIT itself failed: then this changes nothing.
            try? connection.execute("ROLLBACK")
            throw error
        }
    }
}

func translating<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreError) -> Value {
    do throws(PostgresError) { return try body() } catch { throw StoreError(error) }
}
