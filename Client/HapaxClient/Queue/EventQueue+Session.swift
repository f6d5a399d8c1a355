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
        try reading(Self.openSession)
    }

    /// - Throws: SQLITE_CORRUPT if it is none that was saved.
    static func openSession(_ db: Database) throws -> OpenSession? {
        guard let row = try Row.fetchOne(db, sql: "SELECT start_id, last_activity FROM session"),
            let start = EventID(bytes: try row.value("start_id") as Data)
        else { return nil }
        // No event has the install's id: the page of the books stands in the session's place, and would be told as an `$AppEnd` (I3).
        if (try? installID(db)) == start { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        return OpenSession(start: start, lastActivity: try row.value("last_activity"))
    }

    func save(_ session: OpenSession) throws {
        try transaction { db, _ in try Self.save(session, db) }
    }

    static func save(_ session: OpenSession, _ db: Database) throws {
        try db.execute(
            sql: """
                INSERT INTO session (id, start_id, last_activity) VALUES (1, ?, ?)
                ON CONFLICT (id) DO UPDATE SET start_id = excluded.start_id, last_activity = excluded.last_activity
                """,
            arguments: [Data(session.start.bytes), session.lastActivity])
    }

    func removeSession(start: EventID) throws {
        try transaction { db, _ in try db.execute(sql: "DELETE FROM session WHERE start_id = ?", arguments: [Data(start.bytes)]) }
    }
}
