import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// What became of events that were appended.
    struct Appended: Sendable {
        /// All but those that wait already, as the same events.
        var events: [PreparedEvent]
        /// What the quota removed.
        var discarded: [Discarded] = []
        /// Which of the events that were to be appended, by their places, are gone already: the quota removed them, or the dead letters that
        /// they became. Events of one id can end differently.
        var removedAtOnce: Set<Int> = []

        /// Those whose first event had gone meanwhile.
        var requeued: [EventID] { events.lazy.filter { $0.sequence == nil && $0.letter == nil }.map(\.id) }

        /// Those that were the first of their id and are only dead letters.
        var buried: [EventID] { events.lazy.filter { $0.sequence != nil && $0.problem != nil }.map(\.id) }
    }

    /// What was the first of its id waits for who took it since it was taken.
    private func tell(_ appended: Appended) {
        for change in [WaitingChange.removed(appended.buried), .added(appended.requeued)] { tell(change) }
        tell(appended.discarded)
    }

    /// Appends events in their order; what obeys no limit, or has the id of another event that waits, goes to the dead letters instead. After
    /// return all of it is durable.
    ///
    /// - Parameters:
    ///   - dropped: Added to the counts of events refused at intake.
    ///   - now: The clock in Unix milliseconds, for events that are too old.
    ///   - committed: Called before anybody else can read what was stored.
    @discardableResult
    func append(
        _ events: some Collection<PreparedEvent>, dropped: [String: Int64] = [:], now: Int64 = 0, committed: () -> Void = {}
    ) throws -> Appended {
        let reserved = events.reduce(into: QueueUsage()) { $0 = $0 + $1.reserved }
        let untold = damage.withLock { $0.untold }
        func stored(_ appended: Appended) {
            if !untold.isEmpty { damage.withLock { record in for event in events { record.untold[event.id] = nil } } }
            tell(appended)
            committed()
        }
        return try transaction(growing: true, releasing: reserved, committed: stored) { db, books in
            let insert = try RowInsert(db)
            var appended = Appended(events: Array(events))
            var known: [Int] = []
            var letters: [Int: Int64] = [:]
            for event in events where untold[event.id] != nil { try Self.reported(event.id, db) }
            for (index, event) in events.enumerated() {
                switch try Self.place(event, insert, db) {
                case .queued:
                    books.depth += 1
                    books.bytes += Int64(event.bytes.count)
                case .known:
                    known.append(index)
                    // It took nothing.
                    if event.sequence == nil { continue }
                    books.duplicates += 1
                case .letter(let reason, let detail):
                    appended.events[index].isConflict = event.problem == nil
                    try Self.bury(
                        db, &books, id: event.id, install: event.install.map { Data($0) }, origin: nil, reason: reason, detail: detail,
                        payload: Data(event.bytes), time: event.time)
                    letters[index] = db.lastInsertedRowID
                    books.deadLettered += 1
                }
                if let sequence = event.sequence { books.lastSequence = max(books.lastSequence, sequence) } else { books.adopted += 1 }
            }
            for index in known.reversed() { appended.events.remove(at: index) }
            for (reason, count) in dropped { try Self.count(db, &books, reason, count) }
            let lettersBefore = books.letters
            appended.discarded = try discard(db, &books, now: now)
            if !appended.discarded.isEmpty {
                let ids = Set(appended.discarded.compactMap(\.id))
                for (index, event) in events.enumerated() where letters[index] == nil && ids.contains(event.id) {
                    appended.removedAtOnce.insert(index)
                }
            }
            if books.letters < lettersBefore {
                let sql = "SELECT EXISTS (SELECT 1 FROM dead_letters WHERE row = ?)"
                for (index, row) in letters where try Int.fetchOne(db, sql: sql, arguments: [row]) == 0 {
                    appended.removedAtOnce.insert(index)
                }
            }
            return appended
        }
    }

    private enum Place {
        case queued
        /// It waits already.
        case known
        case letter(reason: String, detail: String)
    }

    private static func place(_ event: PreparedEvent, _ insert: RowInsert, _ db: Database) throws -> Place {
        var event = event
        if event.problem == nil {
            let isNew = try insert.insert(
                id: event.id, payload: event.bytes, checkSum: event.checkSum, time: event.time, install: event.install)
            if isNew { return .queued }
            event.isConflict = try !isWaiting(event, db)
        }
        return event.letter.map { .letter(reason: $0.reason, detail: $0.detail) } ?? .known
    }

    /// Whether what waits under its id is the same event: name, properties and whom it concerns, as the server compares them.
    private static func isWaiting(_ event: PreparedEvent, _ db: Database) throws -> Bool {
        try isWaiting(event.id, event.bytes, db)
    }

    static func isWaiting(_ id: EventID, _ bytes: [UInt8], _ db: Database) throws -> Bool {
        if id.isDerived { return true }
        let sql = "SELECT payload FROM queue WHERE event_id = ?"
        guard let payload = try Data.fetchOne(db.cachedStatement(sql: sql), arguments: [Data(id.bytes)]) else { return false }
        let (first, second) = (EventScanner.scan([UInt8](payload)[...]), EventScanner.scan(bytes[...]))
        return first.name == second.name && first.distinctID == second.distinctID && first.properties == second.properties
    }
}
