import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// Forgets every event that waits now, in chunks, each durable when the next begins. They are counted as gone and under `purged`, which the
    /// server is told. What is still to be recovered from damaged files is forgotten with them.
    ///
    /// - Returns: How many there were.
    @discardableResult
    package func purgeWaiting() throws -> Int {
        try forgetRecoveries()
        let last = counters.created
        var purged = 0
        try erasing {
            try inChunks {
                let count = try purgeChunk(upTo: last)
                purged += count
                return count > 0
            }
        }
        try flushDrive()
        return purged
    }

    private func purgeChunk(upTo last: Int64) throws -> Int {
        try transaction { db, counters in
            let sql = """
                DELETE FROM events WHERE sequence IN (SELECT sequence FROM events WHERE sequence <= ? ORDER BY sequence LIMIT ?)
                RETURNING sequence, state, length(payload) AS bytes
                """
            let rows = try Row.fetchAll(db, sql: sql, arguments: [last, chunkLimit])
            for row in rows {
                counters.bytes -= try row.value("bytes")
                if try row.value("state") == RowState.held.rawValue { counters.held -= 1 }
            }
            counters.waiting -= Int64(rows.count)
            counters.gone += Int64(rows.count)
            try counters.count("purged", Int64(rows.count), db)
            try Self.tellGone(try rows.map { try $0.value("sequence") }.sorted(), "purged", db, &counters)
            return rows.count
        }
    }
}
