import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// What became of events that were to be appended, by their places.
    struct Appended: Sendable {
        /// nil for an event that waits already, as the same one: the first stays, and this one takes no sequence.
        var sequences: [Int64?]
        /// Why an event is a dead letter and does not wait.
        var deadLetters: [Int: (reason: String, detail: String)] = [:]
        /// Gone again with this very commit: the quota had no room for it, or it was too old.
        var removed: Set<Int> = []
        /// The user has denied consent since these were taken: they took no sequence.
        var denied: Set<Int> = []

        /// How many took a sequence.
        var created: Int { sequences.count { $0 != nil } }
    }

    /// Appends events in their order, each with the next sequence; what obeys no limit, or has the id of another event that waits, goes to the
    /// dead letters instead. After return all of it is durable.
    ///
    /// - Parameters:
    ///   - dropped: Added to the counts of events refused at intake.
    ///   - now: The clock in Unix milliseconds, for events that are too old.
    ///   - consent: What the user has agreed to by now.
    ///   - known: Places of events that need not be stored: they take no sequence.
    ///   - ending: The starts of sessions that are over with these.
    ///   - committed: Called before anybody else can read what was stored.
    @discardableResult
    func append(
        _ events: some Collection<PreparedEvent>, dropped: [String: Int64] = [:], now: Int64 = 0,
        consent: KeptConsent = KeptConsent(consent: .granted), known: Set<Int> = [], ending: [EventID] = [],
        committed: () -> Void = {}
    ) throws -> Appended {
        try decidePending(consent)
        let reserved = events.reduce(into: QueueUsage()) { $0 = $0 + $1.reserved }
        return try transaction(growing: true, releasing: reserved, committed: { _ in committed() }) { db, counters in
            let first = counters.created + 1
            var appended = Appended(sequences: [])
            appended.sequences.reserveCapacity(events.count)
            let insert = try RowInsert(db)
            for (index, event) in events.enumerated() {
                guard !known.contains(index) else {
                    appended.sequences.append(nil)
                    continue
                }
                let decision = event.pending.map { consent.decision(after: $0) } ?? true
                if decision == false {
                    appended.sequences.append(nil)
                    appended.denied.insert(index)
                    continue
                }
                let place = try Self.place(event, insert, db, &counters, pending: decision == nil ? event.pending : nil)
                appended.sequences.append(place.sequence)
                if let deadLetter = place.deadLetter { appended.deadLetters[index] = deadLetter }
            }
            for (reason, count) in dropped { try counters.count(reason, count, db) }
            try counters.count(DropReason.optedOut.rawValue, Int64(appended.denied.count), db)
            for start in ending { try Self.removeSession(start, db) }
            let removed = try removeForQuota(db, &counters, now: now, limit: chunkLimit + events.count)
            for (index, sequence) in appended.sequences.enumerated() where removed.contains(where: { $0 >= first && $0 == sequence }) {
                appended.removed.insert(index)
            }
            return appended
        }
    }

    /// Puts one event where it belongs.
    ///
    /// - Parameter pending: Behind which decision it waits for the user's consent, and with it all that come after it; nil if it does not.
    /// - Returns: Its sequence, nil if it waits already; and why it is a dead letter.
    static func place(
        _ event: PreparedEvent, _ insert: RowInsert, _ db: Database, _ counters: inout QueueCounters, pending: Int64? = nil
    ) throws -> (sequence: Int64?, deadLetter: (reason: String, detail: String)?) {
        let sequence = counters.created + 1
        defer {
            if let pending, counters.created == sequence, counters.pendingFrom == 0 {
                (counters.pendingFrom, counters.pendingSince) = (sequence, pending)
            }
        }
        var deadLetter = event.problem.map { (reason: $0.reason.rawValue, detail: $0.detail) }
        if deadLetter == nil {
            let isNew = try insert.insert(
                sequence: sequence, id: event.id, time: event.time, state: pending == nil ? .waiting : .pending, payload: event.bytes,
                payloadSum: event.payloadSum)
            if isNew {
                counters.created = sequence
                counters.waiting += 1
                counters.bytes += Int64(event.bytes.count)
                return (sequence, nil)
            }
            let differences = try differences(event.id, event.bytes, db)
            if differences.isEmpty { return (nil, nil) }
            deadLetter = PreparedEvent.conflict(differences)
        }
        guard let deadLetter else { return (nil, nil) }
        counters.created = sequence
        try bury(
            DeadLetter(
                number: sequence, eventID: event.id, reason: deadLetter.reason, detail: deadLetter.detail, time: event.time,
                event: event.bytes),
            isKnownToServer: false, db, &counters)
        return (sequence, deadLetter)
    }

    /// Where an event differs from the one that waits under its id, by the server's own rule; nowhere if it is the same one. A derived id says
    /// that it is.
    private static func differences(_ id: EventID, _ bytes: [UInt8], _ db: Database) throws -> [String] {
        if id.isDerived { return [] }
        let sql = "SELECT payload FROM events WHERE event_id = ?"
        let payload = try Data.fetchOne(db.cachedStatement(sql: sql), arguments: [Data(id.bytes)]) ?? Data()
        return EventScanner.scan(bytes[...]).differences(from: EventScanner.scan([UInt8](payload)[...]))
    }
}
