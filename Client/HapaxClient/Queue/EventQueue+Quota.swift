import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// An event that was removed to keep to the quota.
    struct Discarded: Sendable {
        var row: Int64
        /// nil if it cannot be read.
        var id: EventID?
    }

    /// Behind the commit: what a transaction that failed has removed is still there.
    func tell(_ discarded: [Discarded]) {
        underWay.withLock { underWay in
            for event in discarded { underWay.discarded(event.row) }
        }
        tell(.removed(discarded.compactMap(\.id)))
    }

    /// Removes what is too old and, if the policy is to drop, what there is no room for; to be told with ``tell(_:)``.
    func discard(_ db: Database, _ books: inout QueueBooks, now: Int64) throws -> [Discarded] {
        var discarded: [Discarded] = []
        if let oldestTime = quota.oldestTime(now: now) {
            try discardOldest(db, &books, .age, &discarded) { event, _ in event.time < oldestTime }
        }
        guard quota.policy == .dropOldest, !quota.allows(books.usage) else { return discarded }
        try discardLetters(db, &books)
        try discardOldest(db, &books, .oldest, &discarded) { [quota] _, books in !quota.allows(books.usage) }
        return discarded
    }

    /// Removes what is too old by now.
    ///
    /// - Returns: Whether that was anything.
    func discardAged(now: Int64) throws -> Bool {
        guard let oldestTime = quota.oldestTime(now: now), let oldest = self.oldestTime, oldest < oldestTime else { return false }
        return try !transaction(committed: { tell($0) }) { db, books in try discard(db, &books, now: now) }.isEmpty
    }

    private struct Waiting {
        var row: Int64
        var id: EventID?
        var time: Int64
        var bytes: Int64
    }

    /// From the queue's head, as long as `isUnwanted` says so.
    private func discardOldest(
        _ db: Database, _ books: inout QueueBooks, _ reason: DiscardReason, _ discarded: inout [Discarded],
        while isUnwanted: (Waiting, QueueBooks) -> Bool
    ) throws {
        let sql = "SELECT row, event_id, time, length(payload) AS bytes FROM queue ORDER BY row LIMIT 1"
        while let row = try Row.fetchOne(db.cachedStatement(sql: sql)) {
            let event = Waiting(
                row: row["row"], id: EventID(bytes: try row.value("event_id") as Data), time: try row.value("time"),
                bytes: try row.value("bytes"))
            guard isUnwanted(event, books) else { return }
            try db.cachedStatement(sql: "DELETE FROM queue WHERE row = ?").execute(arguments: [event.row])
            // A page stands where its rows are not looked for: it would be met for ever.
            guard db.changesCount == 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            books.depth -= 1
            books.bytes -= event.bytes
            books.discarded += 1
            try Self.count(db, &books, reason.rawValue, 1)
            discarded.append(Discarded(row: event.row, id: event.id))
        }
    }

    private func discardLetters(_ db: Database, _ books: inout QueueBooks) throws {
        while !quota.allows(books.usage) {
            guard let row = try Row.fetchOne(db, sql: "SELECT row, length(payload) AS length FROM dead_letters ORDER BY row LIMIT 1") else {
                return
            }
            try db.execute(sql: "DELETE FROM dead_letters WHERE row = ?", arguments: [row[0] as Int64])
            guard db.changesCount == 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            books.letters -= 1
            // A damaged row may have none.
            books.letterBytes -= try row.value("length")
            try Self.count(db, &books, DiscardReason.deadLetter.rawValue, 1)
        }
    }
}
