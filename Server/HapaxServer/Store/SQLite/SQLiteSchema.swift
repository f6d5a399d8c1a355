import GRDB

/// The schema of the embedded store: named migrations in order, never edited once released.
enum SQLiteSchema {
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("001_store") { db in
            // A rowid table with a unique index beside it: WITHOUT ROWID would rewrite whole rows as its tree splits. Times are Unix milliseconds,
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
        return migrator
    }

    /// What versions before the first release made; no later version reads it.
    static let unreleasedMigration = "001_events"

    static let insertEvent = """
        INSERT INTO events (project_id, event_id, event, distinct_id, time, sent_at, received_at, install_id, sequence, fingerprint, properties)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id, project_id) DO NOTHING
        """

    static let selectFingerprint = "SELECT fingerprint FROM events WHERE event_id = ? AND project_id = ?"

    static let upsertInstall = """
        INSERT INTO installs AS i (project_id, install_id, created, acknowledged, word, held, gone, refused, heard_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (project_id, install_id) DO UPDATE
        SET created = max(i.created, excluded.created), acknowledged = max(i.acknowledged, excluded.acknowledged),
            held = iif(excluded.word > i.word, excluded.held, i.held), gone = iif(excluded.word > i.word, excluded.gone, i.gone),
            refused = iif(excluded.word > i.word, excluded.refused, i.refused), word = max(i.word, excluded.word),
            heard_at = excluded.heard_at
        WHERE excluded.created > i.created OR excluded.acknowledged > i.acknowledged OR excluded.word > i.word
        """
}
