/// The schema in PostgreSQL: named migrations in order, never edited once released.
enum PostgresSchema {
    struct Migration {
        var name: String
        /// What it does to a database in use.
        var change: SchemaChange
        var sql: String
    }

    static let migrations = [
        Migration(
            name: "001_store",
            change: "makes the tables",
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
                """),
        // For reading and reports. It costs most events one comparison only: a BRIN index is built after the commits, block by block, and
        // hardly any event is ahead.
        Migration(
            name: "002_reads",
            change: SchemaChange("makes the tables of the reports, and indexes of all events, for which commits wait", all: "events"),
            sql: """
                CREATE INDEX events_arrival ON events USING brin (
                  received_at timestamptz_minmax_multi_ops, time timestamptz_minmax_multi_ops, distinct_id text_bloom_ops
                ) WITH (autosummarize = on);
                CREATE INDEX events_ahead ON events (project_id, time) WHERE time - received_at > interval '86400 seconds';
                CREATE TABLE report_zones (
                  project_id integer NOT NULL, from_day date NOT NULL, time_zone text NOT NULL, PRIMARY KEY (project_id, from_day)
                );
                CREATE TABLE report_bounds (
                  project_id integer NOT NULL, day date NOT NULL, starts timestamptz NOT NULL, ends timestamptz NOT NULL,
                  closes timestamptz NOT NULL, time_zone text NOT NULL, PRIMARY KEY (project_id, day)
                );
                CREATE INDEX report_bounds_starts ON report_bounds (project_id, starts);
                CREATE TABLE report_progress (project_id integer PRIMARY KEY, next_day date NOT NULL, folded_to timestamptz NOT NULL);
                CREATE TABLE report_days (
                  project_id integer NOT NULL, day date NOT NULL, users bigint NOT NULL, active_users bigint NOT NULL, new_users bigint NOT NULL,
                  sessions bigint NOT NULL, timed_sessions bigint NOT NULL, session_ms bigint NOT NULL, timed_users bigint NOT NULL,
                  events bigint NOT NULL, ahead bigint NOT NULL, PRIMARY KEY (project_id, day)
                );
                CREATE TABLE report_events (
                  project_id integer NOT NULL, day date NOT NULL, event text COLLATE "C" NOT NULL, count bigint NOT NULL,
                  PRIMARY KEY (project_id, day, event)
                );
                CREATE TABLE report_users (
                  project_id integer NOT NULL, distinct_id text COLLATE "C" NOT NULL, first_start timestamptz NOT NULL,
                  PRIMARY KEY (project_id, distinct_id)
                );
                CREATE TABLE report_late (project_id integer NOT NULL, day date NOT NULL, late bigint NOT NULL, PRIMARY KEY (project_id, day));
                CREATE TABLE report_late_progress (singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton), late_to timestamptz NOT NULL);
                INSERT INTO report_late_progress (late_to) VALUES ('1970-01-01T00:00:00Z');
                CREATE VIEW daily_report AS
                  SELECT p.name AS project, b.day, b.time_zone, b.starts, b.ends, b.closes, d.users, d.active_users, d.new_users, d.sessions,
                    d.timed_sessions, floor((2.0 * d.session_ms + d.timed_sessions) / nullif(2 * d.timed_sessions, 0))::bigint AS mean_session_ms,
                    floor((2.0 * d.session_ms + d.timed_users) / nullif(2 * d.timed_users, 0))::bigint AS mean_use_ms, d.events,
                    coalesce(l.late, 0) AS late, d.ahead
                  FROM report_days d JOIN projects p USING (project_id) JOIN report_bounds b USING (project_id, day)
                  LEFT JOIN report_late l USING (project_id, day);
                CREATE VIEW events_with_late AS
                  SELECT p.name AS project, b.day, e.event_id, e.event, e.distinct_id, e.time, e.received_at,
                    coalesce(e.received_at >= b.closes, false) AS late, e.time - e.received_at > interval '86400 seconds' AS ahead, e.install_id,
                    e.sequence, e.properties
                  FROM events e JOIN projects p USING (project_id)
                  LEFT JOIN report_bounds b ON b.project_id = e.project_id AND e.time < b.ends
                    AND b.starts = (SELECT max(s.starts) FROM report_bounds s WHERE s.project_id = e.project_id AND s.starts <= e.time);
                """),
        // The last partition, which had no upper bound, becomes DEFAULT. A month whose split was interrupted is merged back into it. The lock
        // keeps servers of the earlier version out meanwhile.
        Migration(
            name: "003_months",
            change: "turns the last partition into one for all that have none; commits and readers wait a moment",
            sql: """
                SET LOCAL lock_timeout = '2s';
                LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
                SET LOCAL lock_timeout = 0;
                DO $$
                DECLARE
                  half name;
                  month text;
                BEGIN
                  IF to_regclass('events_future') IS NULL THEN RETURN; END IF;
                  FOR half IN SELECT conname FROM pg_constraint
                    WHERE conrelid = to_regclass('events_future') AND conname LIKE 'hapax\\_moving\\_%'
                  LOOP
                    EXECUTE format('ALTER TABLE events_future DROP CONSTRAINT %I', half);
                    month := 'events_' || to_char(date '1970-01-01' + split_part(half, '_', 3)::int, 'YYYY_MM');
                    IF to_regclass(month) IS NOT NULL THEN
                      EXECUTE format('INSERT INTO events_future SELECT * FROM %I', month);
                      EXECUTE format('DROP TABLE %I', month);
                    END IF;
                  END LOOP;
                  ALTER TABLE events DETACH PARTITION events_future;
                  ALTER TABLE events_future RENAME TO events_default;
                  ALTER TABLE events ATTACH PARTITION events_default DEFAULT;
                END $$;
                DROP TABLE event_partitions;
                """),
        Migration(
            name: "004_keys",
            change: "makes the table of keys, and adds columns to the projects",
            sql: """
                ALTER TABLE projects
                  ADD COLUMN public_id text NOT NULL UNIQUE DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 16),
                  ADD COLUMN derived_ids text NOT NULL DEFAULT 'any' CHECK (derived_ids IN ('any', 'server'));
                CREATE TABLE keys (
                  key_id      integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                  digest      text        NOT NULL UNIQUE,
                  beginning   text        NOT NULL,
                  kind        text        NOT NULL CHECK (kind IN ('write', 'server', 'read', 'admin')),
                  project_id  integer     REFERENCES projects,
                  name        text        NOT NULL,
                  created_at  timestamptz NOT NULL,
                  expires_at  timestamptz,
                  revoked_at  timestamptz,
                  last_used   text,
                  CHECK ((kind = 'admin') = (project_id IS NULL))
                );
                """),
        // An erased event keeps its row with an empty name, so that its id cannot return; every reader reads `kept_events`.
        Migration(
            name: "005_erasures",
            change: "makes the table of erasures, and a view without erased events; readers wait a moment",
            sql: """
                CREATE TABLE erasures (
                  erasure_id   integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                  project_id   integer     NOT NULL REFERENCES projects,
                  distinct_id  text        COLLATE "C",
                  asked_at     timestamptz NOT NULL,
                  done_at      timestamptz,
                  rows         bigint      NOT NULL DEFAULT 0,
                  touched      text        NOT NULL DEFAULT '',
                  CHECK ((done_at IS NULL) = (distinct_id IS NOT NULL))
                );
                CREATE VIEW kept_events AS SELECT * FROM events WHERE event <> '';
                CREATE OR REPLACE VIEW events_with_late AS
                  SELECT p.name AS project, b.day, e.event_id, e.event, e.distinct_id, e.time, e.received_at,
                    coalesce(e.received_at >= b.closes, false) AS late, e.time - e.received_at > interval '86400 seconds' AS ahead, e.install_id,
                    e.sequence, e.properties
                  FROM kept_events e JOIN projects p USING (project_id)
                  LEFT JOIN report_bounds b ON b.project_id = e.project_id AND e.time < b.ends
                    AND b.starts = (SELECT max(s.starts) FROM report_bounds s WHERE s.project_id = e.project_id AND s.starts <= e.time);
                """),
        Migration(
            name: "006_limits",
            change: "adds a column to the projects",
            sql: "ALTER TABLE projects ADD COLUMN events_per_second integer CHECK (events_per_second > 0)"),
        Migration(
            name: "007_retention",
            change: "makes room for how long events are kept",
            sql:
                "ALTER TABLE retention ADD COLUMN months integer CHECK (months >= 2), ADD COLUMN cleared integer NOT NULL DEFAULT 0, ADD COLUMN raised_at timestamptz"
        ),
        Migration(
            name: "008_backups",
            change: "makes the table of backups",
            sql: "CREATE TABLE backups (taken_at timestamptz NOT NULL DEFAULT now())"),
        // What became of each sequence of an install (``InstallBook``). Of what was settled before, no book tells.
        Migration(
            name: "009_books",
            change: SchemaChange("adds the books and writes each install anew, for which commits wait", all: "installs"),
            sql: """
                ALTER TABLE installs
                  ADD COLUMN begins bigint NOT NULL DEFAULT 1, ADD COLUMN stored int8multirange NOT NULL DEFAULT '{}',
                  ADD COLUMN fates jsonb NOT NULL DEFAULT '[]', ADD COLUMN removed int8multirange NOT NULL DEFAULT '{}', ADD COLUMN folded text NOT NULL DEFAULT '', ADD COLUMN repeated bigint NOT NULL DEFAULT 0,
                  ADD COLUMN is_unknown boolean NOT NULL DEFAULT false, ADD COLUMN missing_since timestamptz,
                  ADD COLUMN events_given bigint NOT NULL DEFAULT 0, ADD COLUMN events_stored bigint NOT NULL DEFAULT 0,
                  ADD COLUMN events_duplicates bigint NOT NULL DEFAULT 0, ADD COLUMN events_refused bigint NOT NULL DEFAULT 0, ADD COLUMN events_discarded bigint NOT NULL DEFAULT 0,
                  ADD COLUMN events_waiting bigint NOT NULL DEFAULT 0, ADD COLUMN events_missing bigint NOT NULL DEFAULT 0;
                UPDATE installs SET begins = acknowledged + 1, events_given = greatest(created - acknowledged, 0),
                  events_waiting = greatest(created - acknowledged, 0) WHERE acknowledged < \(SequenceSet.maximum);
                """),
        Migration(
            name: "010_blocked_users",
            change: "makes the tables of blocked users and of derived ids",
            sql: """
                ALTER TABLE projects ADD COLUMN user_key text;
                CREATE TABLE blocked_users (
                  project_id integer NOT NULL REFERENCES projects, digest text NOT NULL, PRIMARY KEY (project_id, digest)
                );
                CREATE TABLE derived_ids (
                  project_id integer NOT NULL REFERENCES projects, day text NOT NULL, key_id integer NOT NULL, event text COLLATE "C" NOT NULL,
                  count bigint NOT NULL, PRIMARY KEY (project_id, day, key_id, event)
                );
                """),
        // Of what closed before, it is not known; who started before counts as having been in time.
        Migration(
            name: "011_returns",
            change: SchemaChange("writes each user of the reports anew; no day closes meanwhile", all: "report_users"),
            sql: """
                ALTER TABLE report_users ADD COLUMN first_counted timestamptz, ADD COLUMN first_known timestamptz;
                UPDATE report_users SET first_counted = first_start, first_known = first_start;
                ALTER TABLE report_days ADD COLUMN unassigned bigint;
                CREATE TABLE report_returns (
                  project_id integer NOT NULL, cohort date NOT NULL, day date NOT NULL, users bigint NOT NULL, PRIMARY KEY (project_id, cohort, day)
                );
                """),
        // Up to which instant events have been removed (``Removals``); of what was erased before, the asking tells. What a removal of a project
        // left in the reports while a day was being closed goes.
        Migration(
            name: "012_removals",
            change: SchemaChange(
                "notes what was erased, and removes from the reports what removed projects have left; no day closes meanwhile",
                all: "report_users"),
            sql: """
                CREATE TABLE removals (project_id integer PRIMARY KEY, latest timestamptz NOT NULL);
                INSERT INTO removals SELECT project_id, max(asked_at) FROM erasures WHERE rows > 0 GROUP BY project_id;
                \(ReportTables.deleteOrphans)
                """),
        // What the clock showed when somebody accepted it (``ClockTrust``).
        Migration(
            name: "013_clock",
            change: "makes the table of the clock",
            sql: """
                CREATE TABLE clock (singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton), accepted timestamptz);
                INSERT INTO clock DEFAULT VALUES;
                """),
        // The program checks what kinds of keys there are (``Registry``), so that a further one needs no migration.
        Migration(
            name: "014_audit",
            change: "makes the table of what admins have changed",
            sql: """
                CREATE TABLE audit (
                  audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, key_id integer, actor text NOT NULL,
                  verb text NOT NULL, project text, detail text NOT NULL
                );
                ALTER TABLE keys DROP CONSTRAINT keys_kind_check, DROP CONSTRAINT keys_check;
                """),
        Migration(
            name: "015_origins",
            change: "adds the pages that may use a key",
            sql: "ALTER TABLE keys ADD COLUMN origins text NOT NULL DEFAULT ''"),
        Migration(
            name: "016_senders",
            change: "makes the table of what senders without numbers send",
            sql: """
                CREATE TABLE sender_days (
                  project_id integer NOT NULL, day text NOT NULL, via text NOT NULL, library text NOT NULL, stored bigint NOT NULL,
                  duplicates bigint NOT NULL, conflicts bigint NOT NULL, rejected bigint NOT NULL, expired bigint NOT NULL,
                  retry bigint NOT NULL, PRIMARY KEY (project_id, day, via, library)
                );
                """),
    ]

    /// The names of the migrations that the schema has had.
    static func applied(_ connection: PostgresConnection) throws(PostgresError) -> [String] {
        guard try connection.query("SELECT to_regclass('hapax_migrations') IS NOT NULL").first?[0] == "t" else { return [] }
        return try connection.query("SELECT name FROM hapax_migrations").compactMap { $0[0] }
    }

    /// Whether an earlier server, or the admin role, has made all that serving needs.
    static func isPrepared(_ connection: PostgresConnection) throws(PostgresError) -> Bool {
        guard try applied(connection).sorted() == migrations.map(\.name) else { return false }
        return try !PostgresPartitions.names(connection).isEmpty
    }

    /// Brings the schema up to date, makes the first partitions, and grants the serving role what it needs.
    ///
    /// - Parameter today: Days since 1970-01-01; nil asks the database.
    static func prepare(_ connection: PostgresConnection, servedBy server: String, today: Int32?) throws(StoreError) {
        try migrate(connection)
        try PostgresPartitions.create(connection, today: try PostgresPartitions.day(connection, today))
        try PostgresRoles.grant(connection, to: server)
    }

    /// Brings the schema up to date. Safe when several servers start at once: one of them works, the others wait and find it done.
    ///
    /// - Throws: ``StoreError/unusable(_:)`` if a newer version of Hapax, or one before the first release, has made the schema.
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
                // IF NOT EXISTS does not cover servers that create the table at the same instant: its catalogue row, name or row type
                // conflicts. Try again, since the other server may not have committed yet.
            }
        }
        try connection.execute(sql)
    }

    /// Far more than servers that start in the same instant.
    private static let maximumRaces = 100
}

/// Runs a body in one transaction, and rolls back if it throws.
enum PostgresTransaction {
    static func run<Value>(
        _ connection: PostgresConnection, _ begin: String = "BEGIN", _ body: () throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        try translating { () throws(PostgresError) in try connection.execute(begin) }
        do throws(StoreError) {
            let value = try body()
            try translating { () throws(PostgresError) in try connection.execute("COMMIT") }
            return value
        } catch {
            // If the connection is lost or COMMIT itself failed, the transaction is over already, and ROLLBACK changes nothing.
            try? connection.execute("ROLLBACK")
            throw error
        }
    }
}

func translating<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreError) -> Value {
    do throws(PostgresError) { return try body() } catch { throw StoreError(error) }
}
