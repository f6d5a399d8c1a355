import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// A session whose end was never stored.
    struct OpenSession: Hashable, Sendable {
        /// The id of its `$AppStart`.
        var start: EventID
        /// In Unix milliseconds.
        var lastActivity: Int64
        /// Whom it concerns.
        var distinctID: String
    }

    func openSession() throws -> OpenSession? { try reading(Self.openSession) }

    static func openSession(_ db: Database) throws -> OpenSession? {
        guard let row = try Row.fetchOne(db, sql: "SELECT start_id, last_activity, distinct_id FROM session"),
            let start = EventID(bytes: try row.value("start_id") as Data)
        else { return nil }
        return OpenSession(start: start, lastActivity: try row.value("last_activity"), distinctID: try row.value("distinct_id"))
    }

    func save(_ session: OpenSession) throws {
        try transaction { db, _ in
            try db.execute(
                sql: "INSERT OR REPLACE INTO session (id, start_id, last_activity, distinct_id) VALUES (1, ?, ?, ?)",
                arguments: [Data(session.start.bytes), session.lastActivity, session.distinctID])
        }
    }

    func removeSession(start: EventID) throws {
        try transaction { db, _ in try Self.removeSession(start, db) }
    }

    static func removeSession(_ start: EventID, _ db: Database) throws {
        try db.execute(sql: "DELETE FROM session WHERE start_id = ?", arguments: [Data(start.bytes)])
    }
}
