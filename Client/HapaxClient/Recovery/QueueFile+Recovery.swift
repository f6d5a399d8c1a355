import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

extension QueueFile {
    /// The latest damage since the file was opened.
    package var latestDamage: QueueDamage? { damage.withLock { $0.latest } }

    /// Whether something is still to be recovered from files that were set aside.
    package var isRecovering: Bool { damage.withLock { $0.isPending } }

    /// Recovers a chunk of what a damaged file held, oldest first: its events are this install's now, under their ids, and what became of their
    /// old sequences is reported as the old install's last report (I11, I12).
    ///
    /// Events that waited for the user's consent are recovered once that is known, and not at all if it was denied; until then nothing is.
    ///
    /// - Parameter makeEvent: Makes the event about the damage once all has been recovered; nil for none.
    /// - Returns: Whether there is more.
    /// - Throws: Also if the damaged file cannot be opened at the moment; the next call goes on at the same place.
    func recoverChunk(
        now: Int64, consent: KeptConsent = KeptConsent(consent: .granted),
        makeEvent: (_ name: String, _ id: EventID, Properties) -> PreparedEvent?
    ) throws -> Bool {
        // Behind events that wait for consent others would wait as well.
        guard isRecovering, counters.pendingFrom == 0, consent.consent != .pending, consent.decisions != nil else { return false }
        guard var recovery = try reading(Recovery.pending) else {
            damage.withLock { $0.isPending = false }
            writeStatus()
            return false
        }
        let opened = try DamagedFile.unlessUnreadable(directory.path + "/" + recovery.name)
        guard let file = opened, recovery.reached < recovery.highest || !recovery.isOfDeadLetters else {
            let isMore = try finish(recovery, makeEvent)
            removeDamagedFiles([recovery.name])
            return isMore
        }
        // What the damaged file itself says of what waits for consent.
        let note = try file.counters
        func isDenied(_ sequence: Int64, wasPending: Bool) -> Bool {
            guard let note else { return wasPending && consent.decision(after: -1) == false }
            return note.pendingFrom > 0 && sequence >= note.pendingFrom && consent.decision(after: note.pendingSince) == false
        }
        if recovery.isOfDeadLetters {
            let chunk = try file.deadLetters(recovery.reached + 1...recovery.highest, maximumBytes: Self.chunkBytes)
            recovery.reached = chunk.reached
            recovery.recoveredDeadLetters += Int64(chunk.rows.count)
            try record(recovery) { db, counters in
                for deadLetter in chunk.rows where !isDenied(deadLetter.number, wasPending: false) {
                    counters.created += 1
                    try Self.bury(
                        DeadLetter(
                            number: counters.created, eventID: deadLetter.eventID, reason: deadLetter.reason, detail: deadLetter.detail,
                            time: deadLetter.unixMilliseconds, event: deadLetter.event), isKnownToServer: false, db, &counters)
                }
            }
            return true
        }
        guard recovery.reached < recovery.highest else {
            (recovery.isOfDeadLetters, recovery.reached) = (true, 0)
            try record(recovery) { _, _ in }
            return true
        }
        let chunk = try file.events(recovery.reached + 1...recovery.highest, maximumBytes: Self.chunkBytes)
        let before = recovery
        recovery.reached = chunk.reached
        _ = try transaction(growing: true, committed: { noted($0) }) { db, counters in
            // An event that waits may have come meanwhile.
            guard counters.pendingFrom == 0 else { return before }
            var recovery = recovery
            let insert = try RowInsert(db)
            for row in chunk.rows {
                guard !isDenied(row.sequence, wasPending: row.wasPending) else {
                    recovery.recovered += 1
                    try counters.count("purged", 1, db)
                    continue
                }
                if try Self.place(row.event, insert, db, &counters).deadLetter == nil {
                    recovery.recovered += 1
                } else {
                    recovery.deadLettered += 1
                }
            }
            try Self.tellLastWord(of: before, chunk.rows.map(\.sequence), upTo: chunk.reached, db, &counters)
            try recovery.update(db)
            return recovery
        }
        return true
    }

    private func record(_ recovery: Recovery, _ body: (Database, inout QueueCounters) throws -> Void) throws {
        try transaction(growing: true, committed: { _ in noted(recovery) }) { db, counters in
            guard counters.pendingFrom == 0 else { return }
            try body(db, &counters)
            try recovery.update(db)
        }
    }

    private func noted(_ recovery: Recovery) { damage.withLock { $0.latest = recovery.damage } }

    /// What was recovered comes again under another sequence; what was not is lost, as far as the file's counters name where its waiting events began.
    private static func tellLastWord(
        of recovery: Recovery, _ recovered: [Int64], upTo reached: Int64, _ db: Database, _ counters: inout QueueCounters
    ) throws {
        var next = recovery.lowest.map { max($0, recovery.reached + 1) }
        for sequence in recovered {
            if let first = next, first < sequence {
                try noteRemoved(first...(sequence - 1), "damaged", of: recovery.install, db, &counters)
            }
            try noteRemoved(sequence...sequence, "recovered", of: recovery.install, db, &counters)
            if let first = next { next = max(first, sequence + 1) }
        }
        if let next, next <= reached { try noteRemoved(next...reached, "damaged", of: recovery.install, db, &counters) }
    }

    private func finish(_ recovery: Recovery, _ makeEvent: (String, EventID, Properties) -> PreparedEvent?) throws -> Bool {
        var damage = recovery.damage
        damage.isRecovered = true
        // The same one, however often it is made, and no derived one (version 8), which a project may refuse from an app's key.
        let hash = EventID.derived(name: QueueDamage.eventName, key: "\(recovery.install) \(recovery.name)")
        let id = EventID(high: hash.high & ~0xF000 | 0x4000, low: hash.low) ?? hash
        let event = makeEvent(QueueDamage.eventName, id, damage.properties)
        let isMore = try transaction(growing: true) { db, counters in
            if let event { _ = try Self.place(event, try RowInsert(db), db, &counters, pending: event.pending) }
            if damage.lost != 0 { try counters.count(damage.lost == nil ? "damaged_unknown" : "damaged", Int64(damage.lost ?? 1), db) }
            try recovery.remove(db)
            return try Recovery.pending(db) != nil
        }
        self.damage.withLock { $0 = DamageRecord(isPending: isMore, latest: damage) }
        writeStatus()
        return isMore
    }

    private func removeDamagedFiles(_ names: [String]) {
        guard !keepsDamagedFiles else { return }
        for name in names { DatabaseFile.remove(directory.path + "/" + name) }
    }

    /// What a purge forgets must not come back.
    func forgetRecoveries() throws {
        guard isRecovering else { return }
        let names = try reading { try Recovery.all($0).map(\.name) }
        try transaction { db, _ in try db.execute(sql: "DELETE FROM recoveries") }
        removeDamagedFiles(names)
        damage.withLock { $0.isPending = false }
        writeStatus()
    }
}
