import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// The oldest events after the first `skipping`, all of one install.
    func nextBatch(limit: Int, maximumBytes: Int, skipping: Int) throws -> SourceBatch {
        try reading { db in
            var events: [OutgoingEvent] = []
            var bytes = 0
            var install: Data?
            let rows = try Row.fetchCursor(
                db.cachedStatement(sql: "SELECT row, event_id, payload, install_id FROM queue ORDER BY row LIMIT ? OFFSET ?"),
                arguments: [limit, skipping])
            while let row = try rows.next() {
                let payload: Data = try row.value("payload")
                let origin: Data? = try row.optional("install_id")
                if events.isEmpty { install = origin } else if origin != install || bytes + payload.count > maximumBytes { break }
                guard let id = EventID(bytes: try row.value("event_id") as Data) else {
                    throw DatabaseError(resultCode: .SQLITE_CORRUPT, message: "not an id")
                }
                bytes += payload.count + 1  // and its comma
                events.append(OutgoingEvent(row: row["row"], id: id, bytes: [UInt8](payload)))
            }
            underWay.withLock { $0.sent(events.isEmpty ? nil : events[0].row...events[events.count - 1].row) }
            return SourceBatch(events: events, envelope: envelope(install))
        }
    }

    private func envelope(_ origin: Data?) -> EventBatch.Envelope {
        // What this queue counts says nothing about another install.
        if let origin { return EventBatch.Envelope(installID: EventID(bytes: origin)) }
        let books = books
        return EventBatch.Envelope(
            installID: installID, created: books.lastSequence, waiting: books.depth, dropped: books.dropped)
    }

    /// Records what became of sent events, by the rows they were read from: all of it or nothing.
    ///
    /// - Parameter time: When, in Unix milliseconds.
    func settle(_ settlements: [Settlement], time: Int64) throws {
        try transaction { db, books in
            let delete = try db.cachedStatement(sql: "DELETE FROM queue WHERE row = ? RETURNING length(payload)")
            let gone = underWay.withLock { $0.gone }
            // What the quota removed while it was being sent is counted as dropped and stays so.
            for settlement in settlements where !gone.contains(settlement.event.row) {
                if case .deadLetter(let reason, let detail) = settlement.fate {
                    let row = settlement.event.row
                    let install = try Data.fetchOne(
                        db.cachedStatement(sql: "SELECT install_id FROM queue WHERE row = ?"), arguments: [row])
                    try Self.bury(
                        db, &books, id: settlement.event.id, install: install, origin: nil, reason: reason, detail: detail,
                        payload: Data(settlement.event.bytes), time: time)
                }
                guard let length = try Int64.fetchOne(delete, arguments: [settlement.event.row]) else {
                    // Only the delivery removes rows, and there is one delivery: then the file was changed behind our back.
                    throw DatabaseError(resultCode: .SQLITE_CONSTRAINT, message: "a sent row is gone")
                }
                books.depth -= 1
                books.bytes -= length
                switch settlement.fate {
                case .stored: books.stored += 1
                case .duplicate: books.duplicates += 1
                case .deadLetter: books.deadLettered += 1
                }
            }
        }
    }

    /// The time of the oldest waiting event by the client's clock, in Unix milliseconds.
    package func oldestTime() throws -> Int64? {
        try reading { try Int64.fetchOne($0, sql: "SELECT time FROM queue ORDER BY row LIMIT 1") }
    }
}

/// A queue as the delivery sees it.
struct QueueBatchSource: BatchSource {
    let queue: EventQueue
    let clock: any ClientClock
    /// Called after the commit that removed these from the queue.
    let removed: @Sendable ([EventID]) -> Void

    func nextBatch(limit: Int, maximumBytes: Int, skipping: Int) async throws -> SourceBatch {
        if skipping == 0 {
            let discarded = try queue.discardAged(now: clock.unixMilliseconds)
            if !discarded.isEmpty { removed(discarded) }
        }
        return try queue.nextBatch(limit: limit, maximumBytes: maximumBytes, skipping: skipping)
    }

    func settle(_ settlements: [Settlement]) async throws {
        try queue.settle(settlements, time: clock.unixMilliseconds)
        removed(settlements.map(\.event.id))
    }
}
