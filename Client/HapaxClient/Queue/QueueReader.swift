import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// Looks at a queue without taking it: another process may be working on it, and goes on undisturbed.
package struct QueueReader: Sendable {
    private let database: DatabaseQueue

    /// - Throws: ``StorageFailure``.
    /// - Returns: nil if there is no queue.
    package init?(directory: QueueDirectory) throws(StorageFailure) {
        guard directory.hasQueue else {
            if let reason = directory.obstacle { throw StorageFailure(errno: reason) }
            return nil
        }
        do {
            guard FileManager.default.fileExists(atPath: directory.databasePath) else { throw DatabaseError(resultCode: .SQLITE_NOTADB) }
            // Even who only reads an empty file makes SQLite remove the log beside it.
            try QueueFileHeader(path: directory.databasePath)?.check()
            try QueueLog.checkAtRest(directory.databasePath)
            database = try DatabaseFile.open(path: directory.databasePath, synchronous: .normal, label: "hapax.reader", readonly: true)
        } catch {
            throw StorageFailure(error)
        }
    }

    /// The queue at one moment.
    package struct Summary: Sendable {
        package var books: QueueBooks
        /// The time of the oldest waiting event, in Unix milliseconds.
        package var oldest: Int64?
        package var deadLetters: Int
    }

    package func summary() throws(StorageFailure) -> Summary {
        try work { db in
            Summary(
                books: try QueueBooks(db),
                oldest: try Int64.fetchOne(db, sql: "SELECT time FROM queue ORDER BY row LIMIT 1"),
                deadLetters: try Int.fetchOne(db, sql: "SELECT COUNT(*) FROM dead_letters NOT INDEXED") ?? 0)
        }
    }

    /// In the order they came, those after `number`.
    package func deadLetters(after number: Int64, limit: Int) throws(StorageFailure) -> [DeadLetter] {
        try work { try EventQueue.deadLetters($0, after: number, limit: limit) }
    }

    func work<Value>(_ body: (Database) throws -> Value) throws(StorageFailure) -> Value {
        do { return try database.read(body) } catch { throw StorageFailure(error) }
    }
}
