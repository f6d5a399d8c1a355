import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// Forgets every event that waits now, in chunks, each durable when the next begins. They are counted as removed, and reported to the
    /// server as `purged`. What is still to be recovered from damaged files is forgotten with them.
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
            counters.removed += Int64(rows.count)
            try counters.count("purged", Int64(rows.count), db)
            try Self.noteRemoved(try rows.map { try $0.value("sequence") }.sorted(), "purged", db, &counters)
            return rows.count
        }
    }

    /// What was settled went to another server or project: in the books of the one that gets the rest it would be missing.
    func noteDeliveredElsewhere() throws {
        try transaction { db, counters in
            let sql = "SELECT EXISTS (SELECT 1 FROM gone WHERE install_id IS NULL AND reason = 'delivered_elsewhere')"
            // Until the other one has heard it, once is enough, however often somebody tries.
            guard counters.acknowledged > 0, try Bool.fetchOne(db, sql: sql) == false else { return }
            try Self.noteRemoved(1...counters.acknowledged, "delivered_elsewhere", db, &counters)
        }
    }

    /// Does what the user has decided about events that wait for it. Denied, they are deleted, dead letters included, from the last one back, in
    /// chunks; cut off, it goes on when it is called again: by each commit, and before each request.
    ///
    /// No request ever spoke of their sequences. They are taken back, so that the server never learns how many there were.
    ///
    /// - Returns: Whether anything was decided.
    @discardableResult
    func decidePending(_ consent: KeptConsent) throws -> Bool {
        guard counters.pendingFrom > 0, let isGranted = consent.decision(after: counters.pendingSince) else { return false }
        // Each time anew: another thread may have done it, and taken events that nobody has decided about.
        func isStillSo(_ counters: QueueCounters) -> Bool {
            counters.pendingFrom > 0 && consent.decision(after: counters.pendingSince) == isGranted
        }
        if isGranted {
            try transaction { _, counters in if isStillSo(counters) { counters.pendingFrom = 0 } }
            return true
        }
        try erasing {
            try inChunks { try transaction { db, counters in try isStillSo(counters) && takeBackChunk(db, &counters) } }
        }
        try flushDrive()
        return true
    }

    /// - Returns: Whether there may be more.
    private func takeBackChunk(_ db: Database, _ counters: inout QueueCounters) throws -> Bool {
        let first = counters.pendingFrom
        let last = try Int64.fetchAll(
            db,
            sql: """
                SELECT sequence FROM (SELECT sequence FROM events UNION ALL SELECT sequence FROM dead_letters)
                WHERE sequence >= ? ORDER BY sequence DESC LIMIT ?
                """, arguments: [first, chunkLimit])
        let cut = last.count < chunkLimit ? first : last.last ?? first
        let bytes = try Int64.fetchAll(db, sql: "DELETE FROM events WHERE sequence >= ? RETURNING length(payload)", arguments: [cut])
        let deadLetters = try Self.purgeDeadLetterRows("sequence >= \(cut)", db, &counters)
        counters.waiting -= Int64(bytes.count)
        counters.bytes -= bytes.reduce(0, +)
        // What else had taken a sequence was removed before.
        let removed = counters.created - (cut - 1) - Int64(bytes.count + deadLetters)
        let ofWaiting = min(removed, counters.removed)
        counters.removed -= ofWaiting
        counters.deadLettered -= Int64(deadLetters) + removed - ofWaiting
        counters.created = cut - 1
        try db.execute(sql: "DELETE FROM gone WHERE install_id IS NULL AND first >= ?", arguments: [cut])
        counters.unreported -= Int64(db.changesCount)
        try db.execute(sql: "UPDATE gone SET last = ? WHERE install_id IS NULL AND last >= ?", arguments: [cut - 1, cut])
        try counters.count("purged", Int64(bytes.count), db)
        guard cut == first else { return true }
        counters.pendingFrom = 0
        // Its `$AppStart` was one of them.
        try db.execute(sql: "UPDATE session SET start_id = NULL")
        return false
    }
}
