import GRDB

extension EventQueue {
    /// Named and ordered; one that has been released is never edited.
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1 queue, dead letters, books") { db in
            // AUTOINCREMENT: a row number never comes back, so a delete by row number can only mean the row it was read from (D3).
            // install_id: NULL for this queue's own events, empty for events of no install, else the install that gave the sequence.
            try db.execute(
                sql: """
                    CREATE TABLE queue (
                        row INTEGER PRIMARY KEY AUTOINCREMENT,
                        event_id BLOB NOT NULL UNIQUE,
                        payload BLOB NOT NULL,
                        time INTEGER NOT NULL,
                        caller_supplied INTEGER NOT NULL,
                        install_id BLOB
                    );
                    CREATE INDEX queue_caller_supplied ON queue (event_id) WHERE caller_supplied = 1;
                    CREATE TABLE dead_letters (
                        row INTEGER PRIMARY KEY AUTOINCREMENT,
                        event_id BLOB,
                        reason TEXT NOT NULL,
                        detail TEXT NOT NULL,
                        payload BLOB NOT NULL,
                        time INTEGER NOT NULL,
                        install_id BLOB,
                        origin INTEGER,
                        UNIQUE (install_id, origin)
                    );
                    CREATE TABLE books (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        install_id BLOB NOT NULL,
                        last_sequence INTEGER NOT NULL DEFAULT 0,
                        adopted INTEGER NOT NULL DEFAULT 0,
                        depth INTEGER NOT NULL DEFAULT 0,
                        bytes INTEGER NOT NULL DEFAULT 0,
                        stored INTEGER NOT NULL DEFAULT 0,
                        duplicates INTEGER NOT NULL DEFAULT 0,
                        dead_lettered INTEGER NOT NULL DEFAULT 0
                    );
                    CREATE TABLE dropped (reason TEXT PRIMARY KEY, count INTEGER NOT NULL);
                    """)
        }
        migrator.registerMigration("2 quota") { db in
            try db.execute(
                sql: """
                    ALTER TABLE books ADD COLUMN discarded INTEGER NOT NULL DEFAULT 0;
                    ALTER TABLE books ADD COLUMN letters INTEGER NOT NULL DEFAULT 0;
                    ALTER TABLE books ADD COLUMN letter_bytes INTEGER NOT NULL DEFAULT 0;
                    UPDATE books SET letters = (SELECT COUNT(*) FROM dead_letters),
                        letter_bytes = (SELECT COALESCE(SUM(length(payload)), 0) FROM dead_letters);
                    """)
        }
        migrator.registerMigration("3 salvage") { db in
            // Damaged files beside this one whose rows have been taken over.
            try db.execute(sql: "CREATE TABLE salvaged (file TEXT PRIMARY KEY)")
        }
        return migrator
    }
}
