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
        let last = max(counters.created, 1)
        var purged = 0
        try erasing {
            try inChunks {
                let count = try transaction { try purgeChunk(1...last, $0, &$1) }
                purged += count
                return count > 0
            }
        }
        try flushDrive()
        return purged
    }

    private func purgeChunk(_ range: ClosedRange<Int64>, _ db: Database, _ counters: inout QueueCounters) throws -> Int {
        let sql = """
            DELETE FROM events WHERE sequence IN (SELECT sequence FROM events WHERE sequence BETWEEN ? AND ? ORDER BY sequence LIMIT ?)
            RETURNING sequence, state, length(payload) AS bytes
            """
        let rows = try Row.fetchAll(db, sql: sql, arguments: [range.lowerBound, range.upperBound, chunkLimit])
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

    /// Does what the user has decided about events that wait for it: once consent has been denied since they were taken they are purged, dead
    /// letters included, in chunks. Cut off, it goes on when it is called again: by each commit, and before each request.
    ///
    /// - Returns: Whether anything was decided.
    @discardableResult
    func decidePending(_ consent: KeptConsent) throws -> Bool {
        guard let denied = consent.denied, counters.pendingFrom > 0 else { return false }
        guard denied != counters.pendingDenied else {
            guard consent.consent == .granted else { return false }
            try transaction { _, counters in counters.pendingFrom = 0 }
            return true
        }
        // What is still to be recovered of a damaged file may be of the same time.
        try forgetRecoveries()
        try erasing {
            try inChunks {
                try transaction { db, counters in
                    // Another thread may have done it, and taken events that nobody has denied.
                    guard counters.pendingFrom > 0, counters.pendingDenied != denied else { return false }
                    let range = counters.pendingFrom...max(counters.created, counters.pendingFrom)
                    let count = try purgeChunk(range, db, &counters)
                    let letters = try Self.purgeLetters(
                        """
                        sequence IN (SELECT sequence FROM dead_letters WHERE sequence BETWEEN \(range.lowerBound) AND \(range.upperBound)
                        ORDER BY sequence LIMIT \(chunkLimit))
                        """, db, &counters)
                    if count + letters == 0 {
                        counters.pendingFrom = 0
                        // Its `$AppStart` was one of them.
                        try db.execute(sql: "UPDATE session SET start_id = NULL")
                    }
                    return count + letters > 0
                }
            }
        }
        try flushDrive()
        return true
    }
}
