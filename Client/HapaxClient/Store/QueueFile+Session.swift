import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// An app that is in use, or was.
    struct SessionRow: Hashable, Sendable {
        /// In Unix milliseconds.
        var lastActivity: Int64
        /// nil of what is no app.
        var session: AppSession?
        /// The id of the `$AppStart` whose end was never stored; nil of an app that is not shown.
        var start: EventID?
        /// Whom that concerns.
        var distinctID: String
        /// What its events said besides, as JSON.
        var base: String
    }

    /// What is to be reported of an app that crashed or was killed while it was shown.
    struct OpenSession: Hashable, Sendable {
        /// The id of its `$AppStart`.
        var start: EventID
        /// In Unix milliseconds.
        var lastActivity: Int64
        /// Whom it concerns.
        var distinctID: String
        /// What its `$AppEnd` says.
        var properties: Properties
    }

    func openSession() throws -> OpenSession? { try reading(Self.openSession) }

    static func openSession(_ db: Database) throws -> OpenSession? {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM session WHERE start_id IS NOT NULL"),
            let start = EventID(bytes: try row.value("start_id") as Data)
        else { return nil }
        let base = Properties(json: try row.value("base")) ?? [:]
        return OpenSession(
            start: start, lastActivity: try row.value("last_activity"), distinctID: try row.value("distinct_id"),
            properties: base.merging(["$recovered": true]))
    }

    /// The one that goes on if it is not over.
    func keptSession() throws -> AppSession? {
        try reading { db in
            guard let row = try Row.fetchOne(db, sql: "SELECT * FROM session WHERE session_id IS NOT NULL"),
                let id = EventID(bytes: try row.value("session_id") as Data)
            else { return nil }
            return AppSession(id: id, began: try row.value("began"), lastActivity: try row.value("last_activity"))
        }
    }

    func save(_ row: SessionRow) throws {
        try transaction { db, _ in
            try db.execute(
                sql: "INSERT OR REPLACE INTO session VALUES (1, ?, ?, ?, ?, ?, ?)",
                arguments: [
                    row.lastActivity, row.session.map { Data($0.id.bytes) }, row.session?.began, row.start.map { Data($0.bytes) },
                    row.distinctID, row.base,
                ])
        }
    }

    func removeSession(start: EventID) throws {
        try transaction { db, _ in try Self.removeSession(start, db) }
    }

    /// The app's own session, which goes on without being shown, stays.
    static func removeSession(_ start: EventID, _ db: Database) throws {
        try db.execute(sql: "UPDATE session SET start_id = NULL WHERE start_id = ?", arguments: [Data(start.bytes)])
    }
}
