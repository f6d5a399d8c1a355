import Foundation
import GRDB
import HapaxModel

/// The schema of the embedded store: named migrations in order, never edited once released.
enum SQLiteSchema {
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrations { name, _, migrate in migrator.registerMigration(name, migrate: migrate) }
        return migrator
    }

    /// What each migration does to a store in use.
    static var changes: [(name: String, change: SchemaChange)] {
        var changes: [(name: String, change: SchemaChange)] = []
        migrations { name, change, _ in changes.append((name, change)) }
        return changes
    }

    private static func migrations(_ add: (String, SchemaChange, @escaping @Sendable (Database) throws -> Void) -> Void) {
        add("001_store", "makes the tables") { db in
            // A rowid table with a separate unique index: WITHOUT ROWID would rewrite whole rows as its tree splits. Times are Unix milliseconds,
            // ids are sixteen bytes, text compares by its bytes. Projects are AUTOINCREMENT so that a number is never given twice.
            try db.execute(
                sql: """
                    CREATE TABLE projects (project_id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
                    CREATE TABLE events (
                      row          INTEGER PRIMARY KEY,
                      project_id   INTEGER NOT NULL,
                      event_id     BLOB    NOT NULL,
                      event        TEXT    NOT NULL,
                      distinct_id  TEXT    NOT NULL,
                      time         INTEGER NOT NULL,
                      sent_at      INTEGER,
                      received_at  INTEGER NOT NULL,
                      install_id   BLOB,
                      sequence     INTEGER,
                      fingerprint  INTEGER NOT NULL,
                      properties   TEXT    NOT NULL
                    );
                    CREATE UNIQUE INDEX events_key ON events (event_id, project_id);
                    CREATE TABLE installs (
                      project_id    INTEGER NOT NULL,
                      install_id    BLOB    NOT NULL,
                      created       INTEGER NOT NULL,
                      acknowledged  INTEGER NOT NULL,
                      word          INTEGER NOT NULL,
                      held          TEXT    NOT NULL,
                      gone          TEXT    NOT NULL,
                      refused       TEXT    NOT NULL,
                      heard_at      INTEGER NOT NULL,
                      PRIMARY KEY (project_id, install_id)
                    );
                    """)
        }
        add("002_reads", SchemaChange("makes the tables of the reports, and an index of all events, for which commits wait", all: "events"))
        { db in
            // Hardly any event is ahead, so `events_ahead` costs most events one comparison only. Days are texts such as 2026-11-22.
            try db.execute(
                sql: """
                    CREATE INDEX events_ahead ON events (project_id, time) WHERE time - received_at > 86400000;
                    CREATE TABLE report_zones (
                      project_id INTEGER NOT NULL, from_day TEXT NOT NULL, time_zone TEXT NOT NULL, PRIMARY KEY (project_id, from_day)
                    );
                    CREATE TABLE report_bounds (
                      project_id INTEGER NOT NULL, day TEXT NOT NULL, starts INTEGER NOT NULL, ends INTEGER NOT NULL, closes INTEGER NOT NULL,
                      time_zone TEXT NOT NULL, PRIMARY KEY (project_id, day)
                    );
                    CREATE INDEX report_bounds_starts ON report_bounds (project_id, starts);
                    CREATE TABLE report_progress (project_id INTEGER PRIMARY KEY, next_day TEXT NOT NULL, folded_to INTEGER NOT NULL);
                    CREATE TABLE report_days (
                      project_id INTEGER NOT NULL, day TEXT NOT NULL, users INTEGER NOT NULL, active_users INTEGER NOT NULL,
                      new_users INTEGER NOT NULL, sessions INTEGER NOT NULL, timed_sessions INTEGER NOT NULL, session_ms INTEGER NOT NULL,
                      timed_users INTEGER NOT NULL, events INTEGER NOT NULL, ahead INTEGER NOT NULL, PRIMARY KEY (project_id, day)
                    );
                    CREATE TABLE report_events (
                      project_id INTEGER NOT NULL, day TEXT NOT NULL, event TEXT NOT NULL, count INTEGER NOT NULL,
                      PRIMARY KEY (project_id, day, event)
                    );
                    CREATE TABLE report_users (
                      project_id INTEGER NOT NULL, distinct_id TEXT NOT NULL, first_start INTEGER NOT NULL, PRIMARY KEY (project_id, distinct_id)
                    ) WITHOUT ROWID;
                    CREATE TABLE report_late (project_id INTEGER NOT NULL, day TEXT NOT NULL, late INTEGER NOT NULL, PRIMARY KEY (project_id, day));
                    CREATE TABLE report_late_progress (singleton INTEGER PRIMARY KEY CHECK (singleton = 1), late_to INTEGER NOT NULL);
                    INSERT INTO report_late_progress VALUES (1, 0);
                    CREATE TABLE user_runs (part INTEGER NOT NULL, segment INTEGER NOT NULL, run BLOB NOT NULL, PRIMARY KEY (part, segment));
                    CREATE VIEW daily_report AS
                      SELECT p.name AS project, b.day, b.time_zone, b.starts, b.ends, b.closes, d.users, d.active_users, d.new_users, d.sessions,
                        d.timed_sessions, (2 * d.session_ms + d.timed_sessions) / nullif(2 * d.timed_sessions, 0) AS mean_session_ms,
                        (2 * d.session_ms + d.timed_users) / nullif(2 * d.timed_users, 0) AS mean_use_ms, d.events,
                        coalesce(l.late, 0) AS late, d.ahead
                      FROM report_days d JOIN projects p USING (project_id) JOIN report_bounds b USING (project_id, day)
                      LEFT JOIN report_late l USING (project_id, day);
                    CREATE VIEW events_with_late AS
                      SELECT p.name AS project, b.day, e.event_id, e.event, e.distinct_id, e.time, e.received_at,
                        coalesce(e.received_at >= b.closes, 0) AS late, e.time - e.received_at > 86400000 AS ahead, e.install_id, e.sequence,
                        e.properties
                      FROM events e JOIN projects p USING (project_id)
                      LEFT JOIN report_bounds b ON b.project_id = e.project_id AND e.time < b.ends
                        AND b.starts = (SELECT max(s.starts) FROM report_bounds s WHERE s.project_id = e.project_id AND s.starts <= e.time);
                    """)
        }
        add("003_keys", "makes the table of keys, and adds columns to the projects") { db in
            try db.execute(
                sql: """
                    ALTER TABLE projects ADD COLUMN public_id TEXT;
                    ALTER TABLE projects ADD COLUMN derived_ids TEXT NOT NULL DEFAULT 'any' CHECK (derived_ids IN ('any', 'server'));
                    UPDATE projects SET public_id = lower(hex(randomblob(8)));
                    CREATE UNIQUE INDEX projects_public_id ON projects (public_id);
                    CREATE TABLE keys (
                      key_id      INTEGER PRIMARY KEY AUTOINCREMENT,
                      digest      TEXT    NOT NULL UNIQUE,
                      beginning   TEXT    NOT NULL,
                      kind        TEXT    NOT NULL CHECK (kind IN ('write', 'server', 'read', 'admin')),
                      project_id  INTEGER REFERENCES projects,
                      name        TEXT    NOT NULL,
                      created_at  INTEGER NOT NULL,
                      expires_at  INTEGER,
                      revoked_at  INTEGER,
                      last_used   TEXT,
                      CHECK ((kind = 'admin') = (project_id IS NULL))
                    );
                    """)
        }
        add("004_erasures", "makes the table of erasures, and a view without erased events") { db in
            // An erased event keeps its row with an empty name, so that its id cannot return; every reader reads `kept_events`.
            try db.execute(
                sql: """
                    CREATE TABLE erasures (
                      erasure_id   INTEGER PRIMARY KEY AUTOINCREMENT,
                      project_id   INTEGER NOT NULL REFERENCES projects,
                      distinct_id  TEXT,
                      asked_at     INTEGER NOT NULL,
                      done_at      INTEGER,
                      rows         INTEGER NOT NULL DEFAULT 0,
                      touched      TEXT    NOT NULL DEFAULT '',
                      CHECK ((done_at IS NULL) = (distinct_id IS NOT NULL))
                    );
                    CREATE VIEW kept_events AS SELECT * FROM events WHERE event <> '';
                    DROP VIEW events_with_late;
                    CREATE VIEW events_with_late AS
                      SELECT p.name AS project, b.day, e.event_id, e.event, e.distinct_id, e.time, e.received_at,
                        coalesce(e.received_at >= b.closes, 0) AS late, e.time - e.received_at > 86400000 AS ahead, e.install_id, e.sequence,
                        e.properties
                      FROM kept_events e JOIN projects p USING (project_id)
                      LEFT JOIN report_bounds b ON b.project_id = e.project_id AND e.time < b.ends
                        AND b.starts = (SELECT max(s.starts) FROM report_bounds s WHERE s.project_id = e.project_id AND s.starts <= e.time);
                    """)
        }
        add("005_limits", "adds a column to the projects") { db in
            try db.execute(sql: "ALTER TABLE projects ADD COLUMN events_per_second INTEGER CHECK (events_per_second > 0)")
        }
        add("006_retention", "makes room for how long events are kept") { db in
            try db.execute(
                sql: """
                    CREATE TABLE retention (
                      singleton INTEGER PRIMARY KEY CHECK (singleton = 1), months INTEGER CHECK (months >= 2), horizon INTEGER NOT NULL,
                      cleared INTEGER NOT NULL, raised_at INTEGER
                    );
                    INSERT INTO retention VALUES (1, NULL, 0, 0, NULL);
                    """)
        }
        add("007_books", SchemaChange("adds the books and writes each install anew, for which commits wait", all: "installs")) { db in
            // What became of each sequence of an install (``InstallBook``). Of what was settled before, no book tells.
            let counts = ["given", "stored", "duplicates", "refused", "discarded", "waiting", "missing"].map {
                "events_\($0) INTEGER NOT NULL DEFAULT 0"
            }
            let columns = [
                "begins INTEGER NOT NULL DEFAULT 1", "stored TEXT NOT NULL DEFAULT '{}'", "fates TEXT NOT NULL DEFAULT '[]'",
                "removed TEXT NOT NULL DEFAULT '{}'",
                "folded TEXT NOT NULL DEFAULT ''", "repeated INTEGER NOT NULL DEFAULT 0", "is_unknown INTEGER NOT NULL DEFAULT 0",
                "missing_since INTEGER",
            ]
            for column in columns + counts { try db.execute(sql: "ALTER TABLE installs ADD COLUMN \(column)") }
            try db.execute(
                sql: """
                    UPDATE installs SET begins = acknowledged + 1, events_given = max(created - acknowledged, 0),
                      events_waiting = max(created - acknowledged, 0) WHERE acknowledged < \(SequenceSet.maximum)
                    """)
        }
        add("008_blocked_users", "makes the tables of blocked users and of derived ids") { db in
            try db.execute(
                sql: """
                    ALTER TABLE projects ADD COLUMN user_key TEXT;
                    CREATE TABLE blocked_users (
                      project_id INTEGER NOT NULL REFERENCES projects, digest TEXT NOT NULL, PRIMARY KEY (project_id, digest)
                    ) WITHOUT ROWID;
                    CREATE TABLE derived_ids (
                      project_id INTEGER NOT NULL REFERENCES projects, day TEXT NOT NULL, key_id INTEGER NOT NULL, event TEXT NOT NULL,
                      count INTEGER NOT NULL, PRIMARY KEY (project_id, day, key_id, event)
                    ) WITHOUT ROWID;
                    """)
        }
        add("009_returns", SchemaChange("writes each user of the reports anew; no day closes meanwhile", all: "report_users")) { db in
            // Of what closed before, it is not known; who started before counts as having been in time.
            try db.execute(
                sql: """
                    ALTER TABLE report_users ADD COLUMN first_counted INTEGER;
                    ALTER TABLE report_users ADD COLUMN first_known INTEGER;
                    UPDATE report_users SET first_counted = first_start, first_known = first_start;
                    ALTER TABLE report_days ADD COLUMN unassigned INTEGER;
                    CREATE TABLE report_returns (
                      project_id INTEGER NOT NULL, cohort TEXT NOT NULL, day TEXT NOT NULL, users INTEGER NOT NULL,
                      PRIMARY KEY (project_id, cohort, day)
                    ) WITHOUT ROWID;
                    """)
        }
        add(
            "010_removals",
            SchemaChange(
                "notes what was erased, and removes from the reports what removed projects have left; no day closes meanwhile",
                all: "report_users")
        ) { db in
            // Up to which instant events have been removed (``Removals``); of what was erased before, the asking tells. What a removal of a
            // project left in the reports while a day was being closed goes.
            try db.execute(
                sql: """
                    CREATE TABLE removals (project_id INTEGER PRIMARY KEY, latest INTEGER NOT NULL);
                    INSERT INTO removals SELECT project_id, max(asked_at) FROM erasures WHERE rows > 0 GROUP BY project_id;
                    \(ReportTables.deleteOrphans)
                    """)
        }
        add("011_clock", "makes the table of the clock") { db in
            // What the clock showed when somebody accepted it (``ClockTrust``).
            try db.execute(
                sql: """
                    CREATE TABLE clock (singleton INTEGER PRIMARY KEY CHECK (singleton = 1), accepted INTEGER);
                    INSERT INTO clock VALUES (1, NULL);
                    """)
        }
        add("012_audit", "makes the table of what admins have changed, and writes the keys anew") { db in
            // The program checks what kinds there are (``Registry``), so that a further one needs no migration. A number of a key that was
            // removed is not given again.
            try db.execute(
                sql: """
                    CREATE TABLE audit (
                      audit_id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, key_id INTEGER, actor TEXT NOT NULL, verb TEXT NOT NULL,
                      project TEXT, detail TEXT NOT NULL
                    );
                    CREATE TABLE new_keys (
                      key_id      INTEGER PRIMARY KEY AUTOINCREMENT,
                      digest      TEXT    NOT NULL UNIQUE,
                      beginning   TEXT    NOT NULL,
                      kind        TEXT    NOT NULL,
                      project_id  INTEGER REFERENCES projects,
                      name        TEXT    NOT NULL,
                      created_at  INTEGER NOT NULL,
                      expires_at  INTEGER,
                      revoked_at  INTEGER,
                      last_used   TEXT
                    );
                    INSERT INTO new_keys SELECT * FROM keys;
                    DELETE FROM sqlite_sequence WHERE name = 'new_keys';
                    INSERT INTO sqlite_sequence SELECT 'new_keys', seq FROM sqlite_sequence WHERE name = 'keys';
                    DROP TABLE keys;
                    ALTER TABLE new_keys RENAME TO keys;
                    """)
        }
        add("013_origins", "adds the pages that may use a key") { db in
            try db.execute(sql: "ALTER TABLE keys ADD COLUMN origins TEXT NOT NULL DEFAULT ''")
        }
        add("014_senders", "makes the table of what senders without numbers send") { db in
            try db.execute(
                sql: """
                    CREATE TABLE sender_days (
                      project_id INTEGER NOT NULL, day TEXT NOT NULL, via TEXT NOT NULL, library TEXT NOT NULL, stored INTEGER NOT NULL,
                      duplicates INTEGER NOT NULL, conflicts INTEGER NOT NULL, rejected INTEGER NOT NULL, expired INTEGER NOT NULL,
                      retry INTEGER NOT NULL, PRIMARY KEY (project_id, day, via, library)
                    ) WITHOUT ROWID;
                    """)
        }
    }

    /// The bucket of an id, as ``EventID/bucket`` has it.
    static let bucket = DatabaseFunction("hapax_bucket", argumentCount: 1, pure: true) { values in
        Data.fromDatabaseValue(values[0]).flatMap { EventID(bytes: [UInt8]($0)) }?.bucket
    }

    /// The migration of versions before the first release, whose files no later version reads.
    static let unreleasedMigration = "001_events"
}
