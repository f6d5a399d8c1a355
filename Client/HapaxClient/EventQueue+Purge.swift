import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// Forgets every event, waiting or dead. Waiting ones are counted with the dead letters, so that the books still add up (I12), and
    /// under `purged`, which the server is told.
    ///
    /// - Returns: How many there were, and which of the waiting ones had ids of their callers.
    func purge() throws -> (count: Int, callerSupplied: [EventID]) {
        try transaction { db, books in
            let ids = try Data.fetchAll(db, sql: "SELECT event_id FROM queue WHERE caller_supplied = 1").compactMap { EventID(bytes: $0) }
            try db.execute(sql: "DELETE FROM queue")
            let waiting = Int64(db.changesCount)
            try db.execute(sql: "DELETE FROM dead_letters")
            let dead = db.changesCount
            if waiting > 0 {
                try db.execute(
                    sql: """
                        INSERT INTO dropped (reason, count) VALUES ('purged', ?)
                        ON CONFLICT (reason) DO UPDATE SET count = count + excluded.count
                        """,
                    arguments: [waiting])
                books.dropped["purged", default: 0] += waiting
            }
            books.deadLettered += waiting
            books.depth = 0
            books.bytes = 0
            return (Int(waiting) + dead, ids)
        }
    }
}
