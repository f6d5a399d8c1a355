import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// Removes what is too old, dead letters beyond their share and, if the policy is to drop, what there is no room for.
    ///
    /// - Parameter limit: So many rows at most; the next transaction goes on.
    /// - Returns: The sequences removed, those of dead letters last.
    func removeForQuota(_ db: Database, _ counters: inout QueueCounters, now: Int64, limit: Int) throws -> [Int64] {
        var removed: [Int64] = []
        if let oldestTime = quota.oldestTime(now: now) {
            try removeOldest(db, &counters, .age, limit, &removed) { event, _ in event.time < oldestTime }
        }
        let deadLetters = try removeDeadLetters(db, &counters, limit: limit - removed.count)
        guard quota.policy == .dropOldest, !quota.allows(counters.usage) else { return removed + deadLetters }
        try removeOldest(db, &counters, .oldest, limit - deadLetters.count, &removed) { [quota] _, counters in !quota.allows(counters.usage)
        }
        return removed + deadLetters
    }

    /// Removes what is too old by now, or too much, a chunk at a time.
    ///
    /// - Returns: Whether that was anything.
    func removeDue(now: Int64) throws -> Bool {
        var isAny = false
        try inChunks {
            let isAged = oldestTime.flatMap { oldest in quota.oldestTime(now: now).map { oldest < $0 } } ?? false
            guard isAged || (quota.policy == .dropOldest && !quota.allows(counters.usage)) else { return false }
            let before = counters.usage
            _ = try transaction { db, counters in try removeForQuota(db, &counters, now: now, limit: chunkLimit) }
            isAny = true
            return counters.usage != before
        }
        return isAny
    }

    private struct Oldest {
        var sequence: Int64
        var time: Int64
        var bytes: Int64
        var isHeld: Bool
    }

    /// From the oldest on, as long as `isUnwanted` says so.
    private func removeOldest(
        _ db: Database, _ counters: inout QueueCounters, _ reason: RemovalReason, _ limit: Int, _ removed: inout [Int64],
        while isUnwanted: (Oldest, QueueCounters) -> Bool
    ) throws {
        let sql = "SELECT sequence, time, state, length(payload) AS bytes FROM events ORDER BY sequence LIMIT 1"
        let before = removed.count
        while removed.count < limit, let row = try Row.fetchOne(db.cachedStatement(sql: sql)) {
            let event = Oldest(
                sequence: try row.value("sequence"), time: try row.value("time"), bytes: try row.value("bytes"),
                isHeld: try row.value("state") == RowState.held.rawValue)
            guard isUnwanted(event, counters) else { break }
            try db.cachedStatement(sql: "DELETE FROM events WHERE sequence = ?").execute(arguments: [event.sequence])
            counters.waiting -= 1
            counters.bytes -= event.bytes
            if event.isHeld { counters.held -= 1 }
            counters.removed += 1
            removed.append(event.sequence)
        }
        let now = Array(removed[before...])
        try counters.count(reason.rawValue, Int64(now.count), db)
        try Self.noteRemoved(now, reason.rawValue, db, &counters)
    }

    /// From the oldest on. Each is reported, also one that the server refused itself: the event is nowhere any more.
    @discardableResult
    func removeDeadLetters(_ db: Database, _ counters: inout QueueCounters, limit: Int) throws -> [Int64] {
        var removed: [Int64] = []
        func isOver() -> Bool {
            !quota.allowsDeadLetters(counters.deadLetterUsage) || (quota.policy == .dropOldest && !quota.allows(counters.usage))
        }
        while removed.count < limit, counters.deadLetters > 0, isOver() {
            let sql =
                "DELETE FROM dead_letters WHERE sequence = (SELECT min(sequence) FROM dead_letters) RETURNING sequence, length(payload)"
            guard let row = try Row.fetchOne(db.cachedStatement(sql: sql)) else { break }
            counters.deadLetters -= 1
            counters.deadLetterBytes -= try row.value("length(payload)")
            removed.append(try row.value("sequence"))
        }
        try counters.count(RemovalReason.deadLetter.rawValue, Int64(removed.count), db)
        try Self.noteRemoved(removed, RemovalReason.deadLetter.rawValue, db, &counters)
        return removed
    }
}
