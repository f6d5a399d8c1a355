import GRDB

extension EventQueue {
    /// Named and ordered; one that has been released is never edited.
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { db in
            // AUTOINCREMENT: a row number never comes back, so a delete by row number can only mean the row it was read from (D3).
            // install_id: NULL for this queue's own events, empty for events of no install, else the install that gave the sequence.
            // check_sum: CRC-32 of event_id and payload; SQLite itself would not notice a bit that changed on the disk.
            // damaged_files: what was found so far, and the id of the event that is still to tell of it. salvaged_rows: those of a file
            // whose salvage has not ended, so that none is taken again once it has been delivered.
            // identity and session: one row or none. Without an anonymous id the install's own stands for it; a session is there from
            // $AppStart to $AppEnd.
            try db.execute(
                sql: """
                    CREATE TABLE queue (
                        row INTEGER PRIMARY KEY AUTOINCREMENT,
                        event_id BLOB NOT NULL UNIQUE,
                        payload BLOB NOT NULL,
                        time INTEGER NOT NULL,
                        check_sum INTEGER NOT NULL,
                        install_id BLOB
                    );
                    CREATE TABLE dead_letters (
                        row INTEGER PRIMARY KEY AUTOINCREMENT,
                        event_id BLOB,
                        reason TEXT NOT NULL,
                        detail TEXT NOT NULL,
                        payload BLOB NOT NULL,
                        time INTEGER NOT NULL,
                        check_sum INTEGER NOT NULL,
                        install_id BLOB,
                        origin INTEGER,
                        UNIQUE (install_id, origin)
                    );
                    CREATE TABLE books (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        install_id BLOB NOT NULL,
                        last_sequence INTEGER NOT NULL DEFAULT 0,
                        adopted INTEGER NOT NULL DEFAULT 0,
                        head INTEGER NOT NULL DEFAULT 1,
                        depth INTEGER NOT NULL DEFAULT 0,
                        bytes INTEGER NOT NULL DEFAULT 0,
                        stored INTEGER NOT NULL DEFAULT 0,
                        duplicates INTEGER NOT NULL DEFAULT 0,
                        dead_lettered INTEGER NOT NULL DEFAULT 0,
                        discarded INTEGER NOT NULL DEFAULT 0,
                        letters INTEGER NOT NULL DEFAULT 0,
                        letter_bytes INTEGER NOT NULL DEFAULT 0
                    );
                    CREATE TABLE dropped (
                        install_id BLOB NOT NULL,
                        reason TEXT NOT NULL,
                        count INTEGER NOT NULL,
                        told INTEGER NOT NULL,
                        PRIMARY KEY (install_id, reason)
                    );
                    CREATE TABLE identity (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        anonymous_id TEXT,
                        login_id TEXT
                    );
                    CREATE TABLE session (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        start_id BLOB NOT NULL,
                        last_activity INTEGER NOT NULL
                    );
                    CREATE TABLE damaged_files (
                        name TEXT PRIMARY KEY,
                        is_own INTEGER NOT NULL,
                        is_salvaged INTEGER NOT NULL,
                        depth INTEGER,
                        letters INTEGER,
                        discarded INTEGER NOT NULL DEFAULT 0,
                        salvaged INTEGER NOT NULL DEFAULT 0,
                        salvaged_letters INTEGER NOT NULL DEFAULT 0,
                        buried INTEGER NOT NULL DEFAULT 0,
                        report_id BLOB
                    );
                    CREATE TABLE salvaged_rows (
                        file INTEGER NOT NULL,
                        is_letter INTEGER NOT NULL,
                        row INTEGER NOT NULL,
                        check_sum INTEGER NOT NULL,
                        PRIMARY KEY (file, is_letter, row, check_sum)
                    ) WITHOUT ROWID;
                    """)
        }
        return migrator
    }
}
