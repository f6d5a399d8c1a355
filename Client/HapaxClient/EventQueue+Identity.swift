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

    func identity() throws -> (anonymousID: String?, loginID: String?, isOptedOut: Bool) {
        try database.read { db in
            guard let row = try Row.fetchOne(db, sql: "SELECT * FROM identity") else { return (nil, nil, false) }
            return (row["anonymous_id"], row["login_id"], row["opted_out"])
        }
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
