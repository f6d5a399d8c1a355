import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// A session whose end was never stored.
    struct OpenSession: Hashable, Sendable {
        /// The id of its `$AppStart`.
        var start: EventID
        /// In Unix milliseconds.
        var lastActivity: Int64
    }

    func openSession() throws -> OpenSession? {
        try database.read { db in
            guard let row = try Row.fetchOne(db, sql: "SELECT start_id, last_activity FROM session"),
                let start = EventID(bytes: row["start_id"] as Data)
            else { return nil }
            return OpenSession(start: start, lastActivity: row["last_activity"])
        }
    }

    func saveSession(start: EventID, lastActivity: Int64) throws {
        try database.write { db in
            try db.execute(
                sql: """
                    INSERT INTO session (id, start_id, last_activity) VALUES (1, ?, ?)
                    ON CONFLICT (id) DO UPDATE SET start_id = excluded.start_id, last_activity = excluded.last_activity
                    """,
                arguments: [Data(start.bytes), lastActivity])
        }
    }

    func removeSession(start: EventID) throws {
        try database.write { try $0.execute(sql: "DELETE FROM session WHERE start_id = ?", arguments: [Data(start.bytes)]) }
    }
}
