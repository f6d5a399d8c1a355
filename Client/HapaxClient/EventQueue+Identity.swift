import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    static func registerIdentity(_ migrator: inout DatabaseMigrator) {
        migrator.registerMigration("identity, opt-out, session") { db in
            // One row or none; without an anonymous id the install's own stands for it. A session is there from $AppStart to $AppEnd.
            try db.execute(
                sql: """
                    CREATE TABLE identity (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        anonymous_id TEXT,
                        login_id TEXT,
                        opted_out INTEGER NOT NULL DEFAULT 0
                    );
                    CREATE TABLE session (
                        id INTEGER PRIMARY KEY CHECK (id = 1),
                        start_id BLOB NOT NULL,
                        last_activity INTEGER NOT NULL
                    );
                    """)
        }
    }

    /// As it was saved last.
    struct SavedIdentity: Hashable, Sendable {
        var anonymousID: String?
        var loginID: String?
        var isOptedOut = false
    }

    func identity() throws -> SavedIdentity {
        try database.read(Self.identity)
    }

    static func identity(_ db: Database) throws -> SavedIdentity {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM identity") else { return SavedIdentity() }
        return SavedIdentity(anonymousID: row["anonymous_id"], loginID: row["login_id"], isOptedOut: row["opted_out"])
    }

    /// Durable on return.
    ///
    /// - Parameter context: What to save. Asked for inside the transaction, so that of several saves the last has the latest.
    func saveIdentity(_ context: () -> EventContext) throws {
        try database.write { db in
            let context = context()
            try db.execute(
                sql: """
                    INSERT INTO identity (id, anonymous_id, login_id, opted_out) VALUES (1, ?, ?, ?)
                    ON CONFLICT (id) DO UPDATE
                    SET anonymous_id = excluded.anonymous_id, login_id = excluded.login_id, opted_out = excluded.opted_out
                    """,
                arguments: [context.identity.anonymousID, context.identity.loginID, context.isOptedOut])
        }
    }
}
