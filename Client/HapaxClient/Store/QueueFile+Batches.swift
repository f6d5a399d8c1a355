import Foundation
import GRDB
import HapaxModel

/// Which events a batch is of.
enum BatchKind: Hashable, Sendable {
    /// The oldest that are not held, but for some.
    case oldest(limit: Int, besides: Set<Int64> = [])
    /// The oldest that the server refused alone, to see whether it still does.
    case held
    /// None: a report to the server without an event.
    case none
}

/// One request's events, and what its envelope says of the file.
struct QueueBatch: Sendable {
    /// Of the file that they are from.
    var install: EventID?
    var events: [OutgoingEvent] = []
    var report = QueueFile.InstallReport()
    /// Events that became dead letters while these were read: their bytes had changed on the disk.
    var damaged: [Settlement] = []
}

/// What a receipt came to, to be recorded in one transaction.
struct BatchOutcome: Sendable {
    /// The batch's: in a file that took over meanwhile its sequences are other events'. nil: whichever file it is.
    var install: EventID?
    var settlements: [Settlement] = []
    var report = QueueFile.InstallReport()
    /// Held events that are dead letters now, since the server has accepted others after it refused them; with the reason.
    var buried: [Int64: (reason: String, detail: String)] = [:]
    /// Whether the oldest of the other held events are tried again.
    var releasesHeld = false
}

extension QueueFile {
    /// Rows whose bytes changed on the disk are dead letters from then on (I3).
    ///
    /// - Parameter now: When, in Unix milliseconds.
    func nextBatch(_ kind: BatchKind, maximumBytes: Int, now: Int64) throws -> QueueBatch {
        var damaged: [Settlement] = []
        while true {
            let found: (batch: QueueBatch, damaged: [Int64]) = try reading { db in
                var (batch, damaged, bytes) = (QueueBatch(), [Int64](), 0)
                var (limit, aside) = (1, Set<Int64>())
                if case .oldest(let most, let besides) = kind { (limit, aside) = (most, besides) }
                if let rows = try Self.rows(kind, db, before: counters.pendingFrom) {
                    defer { rows.end() }
                    var last = Int64(0)
                    while batch.events.count < limit, let row = try rows.next() {
                        // Pages can stand in each other's places: what is out of order would be sent for ever.
                        guard row.sequence > last else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
                        last = row.sequence
                        if aside.contains(row.sequence) { continue }
                        guard let event = row.event else {
                            damaged.append(row.sequence)
                            continue
                        }
                        let outgoing = OutgoingEvent(
                            sequence: row.sequence, id: event.id, bytes: event.payload, isRetried: event.state == .retried)
                        bytes += outgoing.wireByteCount + 1  // and its comma
                        if !batch.events.isEmpty, bytes > maximumBytes { break }
                        batch.events.append(outgoing)
                    }
                }
                if batch.events.isEmpty, damaged.isEmpty, counters.pendingFrom == 0, try Self.counts(kind, db) > 0 {
                    // A page says that it holds no rows, or the counters are wrong.
                    throw DatabaseError(resultCode: .SQLITE_CORRUPT)
                }
                batch.install = counters.installID
                if damaged.isEmpty { batch.report = try report(with: batch.events.map(\.sequence), besides: aside, db) }
                return (batch, damaged)
            }
            if found.damaged.isEmpty {
                var batch = found.batch
                batch.damaged = damaged
                return batch
            }
            damaged += try buryDamaged(found.damaged, now: now)
        }
    }

    /// How many events there are of which a batch may be made.
    private static func counts(_ kind: BatchKind, _ db: Database) throws -> Int64 {
        switch kind {
        case .oldest: try Int64.fetchOne(db, sql: "SELECT waiting - held FROM counters") ?? 0
        case .held: try Int64.fetchOne(db, sql: "SELECT held FROM counters") ?? 0
        case .none: 0
        }
    }

    /// - Parameter pending: From there on nothing is read: it waits for the user's consent. 0: all may be read.
    private static func rows(_ kind: BatchKind, _ db: Database, before pending: Int64) throws -> StoredRows? {
        let end = pending > 0 ? pending : .max
        return switch kind {
        case .oldest(let limit, let aside): try StoredRows(db, where: "state <> 1 AND sequence < ?", [end], limit: limit + aside.count)
        case .held: try StoredRows(db, where: "state = 1 AND sequence < ?", [end], limit: 1)
        case .none: nil
        }
    }

    /// Records what became of sent events: all of it or nothing.
    ///
    /// - Parameter now: When, in Unix milliseconds.
    /// - Returns: What was recorded: not what the quota or a purge had removed meanwhile, and what was held and is a dead letter now. And which
    ///   held events are tried again.
    @discardableResult
    func settle(_ outcome: BatchOutcome, now: Int64) throws -> (settled: [Settlement], released: [Int64]) {
        try transaction { db, counters in
            var (settled, released) = ([Settlement](), [Int64]())
            guard outcome.install == nil || outcome.install == counters.installID else { return (settled, released) }
            try Self.acknowledge(outcome.report, db, &counters)
            let delete = try RowDelete(db)
            for settlement in outcome.settlements {
                let event = settlement.event
                let wasHeld = counters.held > 0 ? try Self.isHeld(event.sequence, db) : false
                guard try delete.delete(event) else {
                    // The quota or a purge has removed it. A row that is still there, and is not found by its number, would be sent for ever: so
                    // the rows are gone through up to it, without a search, which would miss it as well.
                    let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE sequence <= ?1 AND +sequence = ?1)"
                    if try Bool.fetchOne(db, sql: sql, arguments: [event.sequence]) == true {
                        throw DatabaseError(resultCode: .SQLITE_CORRUPT)
                    }
                    continue
                }
                counters.waiting -= 1
                counters.bytes -= Int64(event.bytes.count)
                if wasHeld { counters.held -= 1 }
                counters.acknowledged = max(counters.acknowledged, event.sequence)
                switch settlement.fate {
                case .stored: counters.stored += 1
                case .duplicate: counters.duplicates += 1
                case .deadLetter(let reason, let detail):
                    try Self.bury(
                        DeadLetter(
                            number: event.sequence, eventID: event.id, reason: reason, detail: detail, time: now, event: event.bytes),
                        isKnownToServer: true, db, &counters)
                }
                settled.append(settlement)
            }
            for (sequence, why) in outcome.buried.sorted(by: { $0.key < $1.key }) {
                if let event = try Self.remove(sequence, db, &counters) {
                    try Self.bury(
                        DeadLetter(
                            number: sequence, eventID: event.id, reason: why.reason, detail: why.detail, time: now, event: event.bytes),
                        isKnownToServer: false, db, &counters)
                    settled.append(Settlement(event: event, fate: .deadLetter(reason: why.reason, detail: why.detail)))
                }
            }
            if outcome.releasesHeld, counters.held > 0 {
                let sql = """
                    UPDATE events SET state = 0 WHERE sequence IN (SELECT sequence FROM events WHERE state = 1 ORDER BY sequence LIMIT ?)
                    RETURNING sequence
                    """
                released = try Int64.fetchAll(db, sql: sql, arguments: [Self.releasedAtOnce])
                counters.held -= Int64(released.count)
            }
            return (settled, released)
        }
    }

    /// Fewer than a pass may find refused before it gives up: so each event that is accepted decides about some.
    private static let releasedAtOnce = DeliveryStateMachine.maximumSuspects / 2

    /// The server refuses this event alone.
    func hold(_ sequence: Int64, of install: EventID?) throws {
        try transaction { db, counters in
            guard install == counters.installID else { return }
            try db.execute(sql: "UPDATE events SET state = 1 WHERE sequence = ? AND state <> 1", arguments: [sequence])
            counters.held += Int64(db.changesCount)
        }
    }

    private static func isHeld(_ sequence: Int64, _ db: Database) throws -> Bool {
        let sql = "SELECT state = 1 FROM events WHERE sequence = ?"
        return try Bool.fetchOne(db.cachedStatement(sql: sql), arguments: [sequence]) ?? false
    }

    /// Takes an event out of what waits.
    private static func remove(_ sequence: Int64, _ db: Database, _ counters: inout QueueCounters) throws -> OutgoingEvent? {
        let sql = "SELECT event_id, payload, state FROM events WHERE sequence = ?"
        guard let row = try Row.fetchOne(db, sql: sql, arguments: [sequence]) else { return nil }
        let payload = [UInt8]((try? row.optional("payload") as Data?) ?? Data())
        let id = (try? row.optional("event_id") as Data?).flatMap { EventID(bytes: $0) }
        try db.execute(sql: "DELETE FROM events WHERE sequence = ?", arguments: [sequence])
        counters.waiting -= 1
        counters.bytes = max(counters.bytes - Int64(payload.count), 0)
        if (try? row.optional("state") as Int64?) == RowState.held.rawValue { counters.held -= 1 }
        return OutgoingEvent(sequence: sequence, id: id ?? .unreadable, bytes: payload, isRetried: false)
    }

    /// Moves rows whose bytes changed to the dead letters, where people can look at them.
    private func buryDamaged(_ sequences: [Int64], now: Int64) throws -> [Settlement] {
        try transaction { db, counters in
            try sequences.compactMap { sequence in
                guard let event = try Self.remove(sequence, db, &counters) else { return nil }
                let (reason, detail) = DeadLetter.changed
                try Self.bury(
                    DeadLetter(
                        number: sequence, eventID: event.id == .unreadable ? nil : event.id, reason: reason, detail: detail, time: now,
                        event: event.bytes), isKnownToServer: false, db, &counters)
                return Settlement(event: event, fate: .deadLetter(reason: reason, detail: detail))
            }
        }
    }
}

extension EventID {
    /// Stands for an id whose bytes changed on the disk; no event has it.
    fileprivate static let unreadable = EventID.derived(name: "hapax", key: "unreadable")
}

/// An event as it is sent.
package struct OutgoingEvent: Hashable, Sendable {
    package var sequence: Int64
    package var id: EventID
    /// As stored, without the sequence.
    package var bytes: [UInt8]
    var isRetried: Bool

    /// The stored object completed by its sequence (R4). At the end: of repeated keys the last one wins.
    package var wire: [UInt8] {
        var writer = JSONWriter(capacity: wireByteCount)
        writer.raw(Array(bytes.dropLast()))
        writer.raw(#","sequence":"#)
        writer.integer(sequence)
        if isRetried { writer.raw(#","retried":true"#) }
        writer.raw("}")
        return writer.bytes
    }

    /// At most.
    var wireByteCount: Int { bytes.count + Self.addedBytes }

    /// What ``wire`` adds at most: an event that has no room for it is too large.
    static let addedBytes = 48
}

/// What becomes of one event that was sent.
package struct Settlement: Hashable, Sendable {
    package enum Fate: Hashable, Sendable {
        case stored
        case duplicate
        case deadLetter(reason: String, detail: String)
    }

    package var event: OutgoingEvent
    package var fate: Fate
}
