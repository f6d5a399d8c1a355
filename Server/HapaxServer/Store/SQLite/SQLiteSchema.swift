import GRDB

/// The schema of the embedded store: named migrations in order, never edited once released.
enum SQLiteSchema {
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("001_events") { db in
            // A rowid table with a unique index beside it: WITHOUT ROWID would rewrite whole rows as its tree splits. Times are Unix milliseconds,
            // ids are sixteen bytes. Projects are AUTOINCREMENT so that a number is never given twice.
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
                      project_id  INTEGER NOT NULL,
                      install_id  BLOB    NOT NULL,
                      created     INTEGER NOT NULL,
                      waiting     INTEGER NOT NULL,
                      PRIMARY KEY (project_id, install_id)
                    );
                    CREATE TABLE install_drops (
                      project_id  INTEGER NOT NULL,
                      install_id  BLOB    NOT NULL,
                      reason      TEXT    NOT NULL,
                      dropped     INTEGER NOT NULL,
                      PRIMARY KEY (project_id, install_id, reason)
                    );
                    """)
        }
        return migrator
    }

    static let insertEvent = """
        INSERT INTO events (project_id, event_id, event, distinct_id, time, sent_at, received_at, install_id, sequence, fingerprint, properties)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id, project_id) DO NOTHING
        """

    static let selectFingerprint = "SELECT fingerprint FROM events WHERE event_id = ? AND project_id = ?"

    static let upsertInstall = """
        INSERT INTO installs (project_id, install_id, created, waiting) VALUES (?, ?, ?, ?)
        ON CONFLICT (project_id, install_id) DO UPDATE
        SET created = max(created, excluded.created), waiting = max(waiting, excluded.waiting)
        """

    static let upsertDrop = """
        INSERT INTO install_drops (project_id, install_id, reason, dropped) VALUES (?, ?, ?, ?)
        ON CONFLICT (project_id, install_id, reason) DO UPDATE SET dropped = max(dropped, excluded.dropped)
        """
}
