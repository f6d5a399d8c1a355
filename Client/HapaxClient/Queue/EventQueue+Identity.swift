import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// As it was saved last.
    struct SavedIdentity: Hashable, Sendable {
        var anonymousID: String?
        var loginID: String?
    }

    func identity() throws -> SavedIdentity {
        try reading(Self.identity)
    }

    static func identity(_ db: Database) throws -> SavedIdentity {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM identity") else { return SavedIdentity() }
        return SavedIdentity(anonymousID: try row.optional("anonymous_id"), loginID: try row.optional("login_id"))
    }

    /// Durable on return.
    ///
    /// - Parameter identity: What to save. Asked for inside the transaction, so that of several saves the last has the latest.
    func saveIdentity(_ identity: () -> Identity) throws {
        try transaction { db, _ in
            try requireFile()
            let identity = identity()
            try Self.save(SavedIdentity(anonymousID: identity.anonymousID, loginID: identity.loginID), db)
        }
        try flushDrive()
    }

    static func save(_ identity: SavedIdentity, _ db: Database) throws {
        try db.execute(
            sql: """
                INSERT INTO identity (id, anonymous_id, login_id) VALUES (1, ?, ?)
                ON CONFLICT (id) DO UPDATE SET anonymous_id = excluded.anonymous_id, login_id = excluded.login_id
                """,
            arguments: [identity.anonymousID, identity.loginID])
    }
}
