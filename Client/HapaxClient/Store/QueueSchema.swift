import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// The tables of one queue file, and how a file is recognised as one.
enum QueueSchema {
    /// "Hapx", in the file's header (https://www.sqlite.org/pragma.html#pragma_application_id): a file of somebody else's has another one.
    private static let applicationID: Int64 = 0x4861_7078
    private static let version: Int64 = 2

    // events: what waits. The sequence is the row number; it is given at the commit and never again, whatever is deleted (R12). payload: the
    // event as it will travel, without its sequence. state: see `RowState`. check_sum: see `RowCheckSum`.
    // dead_letters: under the sequence that the event has.
    // gone: sequences that will never come and that are still to be reported to the server; install_id is NULL for this file's own. word: the
    // first word that says it.
    // session: of the app whose client owns or owned the file; start_id only while that is shown, session_id for services not at all.
    // recoveries: of files that were set aside.
    private static let tables = """
        CREATE TABLE counters (id INTEGER PRIMARY KEY CHECK (id = 1), install_id BLOB NOT NULL, \(QueueCounters.tableColumns));
        CREATE TABLE dropped (reason TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE events (
            sequence INTEGER PRIMARY KEY,
            event_id BLOB NOT NULL UNIQUE,
            time INTEGER NOT NULL,
            state INTEGER NOT NULL,
            check_sum INTEGER NOT NULL,
            payload BLOB NOT NULL
        );
        CREATE INDEX held ON events (sequence) WHERE state = 1;
        CREATE TABLE dead_letters (
            sequence INTEGER PRIMARY KEY,
            event_id BLOB,
            time INTEGER NOT NULL,
            reason TEXT NOT NULL,
            detail TEXT NOT NULL,
            check_sum INTEGER NOT NULL,
            payload BLOB NOT NULL
        );
        CREATE TABLE gone (
            id INTEGER PRIMARY KEY,
            install_id BLOB,
            first INTEGER NOT NULL,
            last INTEGER NOT NULL,
            reason TEXT NOT NULL,
            word INTEGER NOT NULL
        );
        \(session)
        CREATE TABLE recoveries (
            name TEXT PRIMARY KEY,
            install_id BLOB,
            waiting INTEGER,
            letters INTEGER,
            lowest INTEGER,
            highest INTEGER NOT NULL,
            is_of_letters INTEGER NOT NULL DEFAULT 0,
            reached INTEGER NOT NULL DEFAULT 0,
            recovered INTEGER NOT NULL DEFAULT 0,
            recovered_letters INTEGER NOT NULL DEFAULT 0,
            dead_lettered INTEGER NOT NULL DEFAULT 0
        );
        """

    private static let session = """
        CREATE TABLE session (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            last_activity INTEGER NOT NULL,
            session_id BLOB,
            began INTEGER,
            start_id BLOB,
            distinct_id TEXT NOT NULL,
            base TEXT NOT NULL
        );
        """

    /// Makes the tables of a new file, in the caller's transaction.
    static func make(_ db: Database, install: EventID) throws {
        try db.execute(sql: tables)
        try db.execute(sql: "INSERT INTO counters (id, install_id) VALUES (1, ?)", arguments: [Data(install.bytes)])
        try db.execute(sql: "PRAGMA application_id = \(applicationID); PRAGMA user_version = \(version)")
    }

    /// Brings the tables of an earlier version to this one, in the caller's transaction.
    static func upgrade(_ db: Database) throws {
        guard try Int64.fetchOne(db, sql: "PRAGMA user_version") == 1 else { return }
        try db.execute(
            sql: """
                ALTER TABLE counters ADD COLUMN pending_from INTEGER NOT NULL DEFAULT 0;
                ALTER TABLE counters ADD COLUMN pending_since INTEGER NOT NULL DEFAULT 0;
                ALTER TABLE session RENAME TO former;
                \(session)
                INSERT INTO session SELECT id, last_activity, NULL, NULL, start_id, distinct_id, '{}' FROM former;
                DROP TABLE former;
                PRAGMA user_version = \(version);
                """)
    }

    /// - Returns: false for a file in which nothing has been made yet.
    /// - Throws: ``NewerSchema``; SQLITE_NOTADB for a file that is not ours.
    static func recognise(_ db: Database) throws -> Bool {
        let (application, version) = (
            try Int64.fetchOne(db, sql: "PRAGMA application_id") ?? 0, try Int64.fetchOne(db, sql: "PRAGMA user_version") ?? 0
        )
        if application == applicationID, (1...Self.version).contains(version) { return true }
        if application == applicationID, version > Self.version { throw NewerSchema() }
        let isEmpty = try Int.fetchOne(db, sql: "SELECT COUNT(*) FROM sqlite_master") == 0
        guard isEmpty, application == 0, version == 0 else { throw DatabaseError(resultCode: .SQLITE_NOTADB) }
        return false
    }
}

/// The file was made by a later version: it is left as it is.
struct NewerSchema: Error {}

extension Error {
    /// Whether SQLite found the file to be damaged, or to be something else.
    var isDamage: Bool {
        if self is RowDecodingError { return true }
        guard let error = self as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_CORRUPT || error.resultCode == .SQLITE_NOTADB || error.isStrangeSchema
    }

    /// Whether a file cannot be opened as what we made it: of our own statements none is wrong, whatever SQLite says about them.
    var isDamageAtOpening: Bool { isDamage || (self as? DatabaseError)?.resultCode == .SQLITE_ERROR }
}

extension DatabaseError {
    /// Our statements name only what we have made: a name that is not found has changed on the disk.
    fileprivate var isStrangeSchema: Bool {
        guard resultCode == .SQLITE_ERROR, let message else { return false }
        return ["no such table", "no such column", "has no column", "unsupported file format"].contains { message.contains($0) }
    }
}
