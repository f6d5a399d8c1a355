import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// The oldest events after the first `skipping`, all of one install.
    ///
    /// - Throws: ``DamagedRows`` if some are no longer what was stored; see ``bury(_:time:)``.
    func nextBatch(limit: Int, maximumBytes: Int, skipping: Int) throws -> SourceBatch {
        try reading { db in
            var events: [OutgoingEvent] = []
            var damaged: [Int64] = []
            var last = books.head - 1
            var bytes = 0
            var install: Data?
            let rows = try WaitingRows(db, limit: limit, skipping: underWay.withLock { $0.left(of: skipping) })
            defer { rows.end() }
            while let (number, event) = try rows.next() {
                // Pages can stand in each other's places, or be from before their events were delivered.
                guard number > last else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
                last = number
                guard let event else {
                    damaged.append(number)
                    continue
                }
                if events.isEmpty {
                    install = event.install
                } else if event.install != install || bytes + event.payload.count > maximumBytes {
                    break
                }
                bytes += event.payload.count + 1  // and its comma
                events.append(OutgoingEvent(row: number, id: event.id, bytes: event.payload))
            }
            if !damaged.isEmpty { throw DamagedRows(rows: damaged) }
            if events.isEmpty, skipping == 0, try Int64.fetchOne(db, sql: "SELECT depth FROM books") != 0 {
                // A page says that it holds no rows.
                throw DatabaseError(resultCode: .SQLITE_CORRUPT)
            }
            let envelope = envelope(install)
            underWay.withLock {
                $0.sent(events.isEmpty ? nil : events[0].row...events[events.count - 1].row, skipping: skipping, in: envelope)
            }
            return SourceBatch(events: events, envelope: envelope)
        }
    }

    private func envelope(_ origin: Data?) -> EventBatch.Envelope {
        let books = books
        let takenOver = books.drops.untold(exceptOf: installID)
        // What this queue counts says nothing about another install.
        if let origin { return EventBatch.Envelope(installID: EventID(bytes: origin), takenOver: takenOver) }
        return EventBatch.Envelope(
            installID: installID, created: books.lastSequence, waiting: books.depth, dropped: books.drops.of(installID),
            takenOver: takenOver)
    }

    /// Records what became of sent events, by the rows they were read from: all of it or nothing.
    ///
    /// - Parameter time: When, in Unix milliseconds.
    /// - Returns: Those that were recorded: all but what the quota had removed meanwhile.
    @discardableResult
    func settle(_ settlements: [Settlement], time: Int64) throws -> [Settlement] {
        try transaction(committed: { tell(.removed($0.map(\.event.id))) }) { db, books in
            let delete = try RowDelete(db)
            let (gone, envelope) = underWay.withLock { ($0.gone, $0.envelope) }
            // With a receipt the server has the envelope's counts as well.
            if settlements.contains(where: { $0.fate == .stored || $0.fate == .duplicate }) { try Self.told(envelope, db, &books) }
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
                guard try delete.delete(settlement.event) else {
                    try Self.requireAbsence(of: settlement.event.row, settlement.event.id, db)
                    // Set aside with a damaged file while it was being sent; if it can be salvaged, it is sent again.
                    throw DatabaseError(resultCode: .SQLITE_CONSTRAINT, message: "a sent row is gone")
                }
                books.depth -= 1
                books.bytes -= Int64(settlement.event.bytes.count)
                switch settlement.fate {
                case .stored: books.stored += 1
                case .duplicate: books.duplicates += 1
                case .deadLetter: books.deadLettered += 1
                }
            }
            return gone.isEmpty ? settlements : settlements.filter { !gone.contains($0.event.row) }
        }
    }

    /// The time of the oldest waiting event by the client's clock, in Unix milliseconds.
    package var oldestTime: Int64? { oldest.withLock { $0 } }

    static func oldestTime(_ db: Database) throws -> Int64? {
        try Int64.fetchOne(db.cachedStatement(sql: "SELECT time FROM queue ORDER BY row LIMIT 1"))
    }

    /// - Returns: The highest row number that was given.
    /// - Throws: SQLITE_CORRUPT if rows that were given are not known any more: their numbers would be given again (D3).
    @discardableResult
    static func checkRowNumbers(_ db: Database, _ books: QueueBooks) throws -> Int64 {
        let given = try Int64.fetchOne(db.cachedStatement(sql: "SELECT seq FROM sqlite_sequence WHERE name = 'queue'")) ?? 0
        guard given >= books.head - 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        return given
    }

    /// It never goes back here: who finds an event before it has met damage.
    ///
    /// - Returns: The time of the oldest waiting event.
    /// - Throws: SQLITE_CORRUPT if nobody can say which is the oldest.
    static func moveHead(_ db: Database, _ books: inout QueueBooks) throws -> Int64? {
        guard let oldest = try Row.fetchOne(db.cachedStatement(sql: "SELECT row, time FROM queue ORDER BY row LIMIT 1")) else {
            let given = try checkRowNumbers(db, books)
            books.head = max(books.head, given < .max ? given + 1 : given)
            return nil
        }
        let first: Int64 = try oldest.value("row")
        if first > books.head {
            // Looked for from the other side: a page with later rows can stand where the first ones are.
            let sql = "SELECT row FROM queue WHERE row < ? ORDER BY row DESC LIMIT 1"
            let before = try Int64.fetchOne(db.cachedStatement(sql: sql), arguments: [first])
            guard before == nil else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            books.head = first
        }
        return try oldest.value("time")
    }
}

/// A queue as the delivery sees it.
struct QueueBatchSource: BatchSource {
    let queue: EventQueue
    let clock: any ClientClock
    /// Called after a commit by which the quota removed some.
    var discarded: @Sendable () -> Void = {}
    /// Called after the commit that settled these.
    var settled: @Sendable ([Settlement]) -> Void = { _ in }

    nonisolated(nonsending) func nextBatch(limit: Int, maximumBytes: Int, skipping: Int) async throws -> SourceBatch {
        // What a damaged file held is older than anything here (R9).
        if queue.isSalvageDue { await queue.salvage() }
        if try queue.discardAged(now: clock.unixMilliseconds) { discarded() }
        let unsalvaged = queue.unsalvagedFiles
        let batch = try read(limit: limit, maximumBytes: maximumBytes, skipping: skipping)
        // Damage may have been met by this very read, and nothing here does not mean that nothing waits.
        guard queue.unsalvagedFiles > (batch.events.isEmpty ? 0 : unsalvaged) else { return batch }
        await queue.salvage()
        let salvaged = try read(limit: limit, maximumBytes: maximumBytes, skipping: skipping)
        if salvaged.events.isEmpty, let failure = queue.salvageFailure { throw failure }
        return salvaged
    }

    private func read(limit: Int, maximumBytes: Int, skipping: Int) throws -> SourceBatch {
        var buried = 0
        while true {
            do {
                var batch = try queue.nextBatch(limit: limit, maximumBytes: maximumBytes, skipping: skipping)
                batch.buried = buried
                return batch
            } catch let damaged as DamagedRows {
                // Others may follow, which a batch without these reaches.
                let ids = try queue.bury(damaged, time: clock.unixMilliseconds)
                buried += damaged.rows.count
                settled(ids.map { Settlement(buried: $0, DamagedRows.reason, DamagedRows.detail) })
            }
        }
    }

    nonisolated(nonsending) func settle(_ settlements: [Settlement]) async throws {
        settled(try queue.settle(settlements, time: clock.unixMilliseconds))
    }
}
