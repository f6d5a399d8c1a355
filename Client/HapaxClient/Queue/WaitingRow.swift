import Foundation
import GRDB
import GRDBSQLite
import HapaxModel

/// One row of `queue` as it was stored.
struct WaitingRow {
    var id: EventID
    var payload: [UInt8]
    /// nil for the queue's own, empty for nobody's.
    var install: Data?
    var checkSum: UInt32

    /// - Throws: SQLITE_CORRUPT if it no longer is what was stored.
    init(_ row: Row) throws {
        let (id, payload): (Data, Data) = (try row.value("event_id"), try row.value("payload"))
        try self.init(
            id: id.withUnsafeBytes { EventID(raw: $0) }, payload: [UInt8](payload), install: try row.optional("install_id"),
            checkSum: try row.value("check_sum"))
    }

    fileprivate init(id: EventID?, payload: [UInt8], install: Data?, checkSum: Int64) throws {
        guard let id else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        (self.id, self.payload, self.install, self.checkSum) = (id, payload, install, CheckSum.crc32(id, payload))
        guard self.checkSum == checkSum else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }
}

/// The oldest rows of `queue`, read by SQLite's own interface, as ``RowInsert`` writes them.
struct WaitingRows {
    /// Kept: the connection may drop it from its cache.
    private let statement: Statement

    /// Ends with ``end()``.
    init(_ db: Database, limit: Int, skipping: Int) throws {
        statement = try db.cachedStatement(
            sql: "SELECT row, event_id, payload, install_id, check_sum FROM queue ORDER BY row LIMIT ? OFFSET ?")
        sqlite3_bind_int64(handle, 1, Int64(limit))
        sqlite3_bind_int64(handle, 2, Int64(skipping))
    }

    private var handle: OpaquePointer { statement.sqliteStatement }

    func end() { sqlite3_reset(handle) }

    /// - Returns: nil at the end; the event is nil if it no longer is what was stored.
    func next() throws -> (number: Int64, event: WaitingRow?)? {
        let result = sqlite3_step(handle)
        if result == SQLITE_DONE { return nil }
        guard result == SQLITE_ROW else { throw DatabaseError(resultCode: ResultCode(rawValue: result)) }
        let event = try? WaitingRow(
            id: EventID(raw: bytes(1)), payload: [UInt8](bytes(2)),
            install: sqlite3_column_type(handle, 3) == SQLITE_NULL ? nil : Data(bytes(3)), checkSum: sqlite3_column_int64(handle, 4))
        return (sqlite3_column_int64(handle, 0), event)
    }

    /// Valid until the next step.
    private func bytes(_ column: Int32) -> UnsafeRawBufferPointer {
        let start = sqlite3_column_blob(handle, column)
        return UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(handle, column)))
    }
}

/// Rows whose bytes changed on the disk, in a file that is otherwise whole.
struct DamagedRows: Error {
    var rows: [Int64]

    /// Why they are dead letters: they must not be sent as what the app tracked (I3).
    static let reason = "damaged"
    static let detail = "the event's bytes changed on the disk"
}

extension EventQueue {
    /// A row that its number does not find and a look through the table does: the pages contradict each other, which SQLite did not notice.
    ///
    /// - Parameter id: nil if it cannot be read.
    /// - Throws: SQLITE_CORRUPT if it is so.
    static func requireAbsence(of number: Int64, _ id: EventID?, _ db: Database) throws {
        let sql = "SELECT EXISTS (SELECT 1 FROM queue NOT INDEXED WHERE +row = ? AND (? IS NULL OR +event_id = ?))"
        let bytes = id.map { Data($0.bytes) }
        if try Int.fetchOne(db, sql: sql, arguments: [number, bytes, bytes]) == 1 { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }

    /// Moves damaged rows to the dead letters, where people can look at them.
    ///
    /// - Returns: Their ids, as far as they can be read.
    func bury(_ damaged: DamagedRows, time: Int64) throws -> [EventID] {
        try transaction(committed: { tell(.removed($0)) }) { db, books in
            var ids: [EventID] = []
            for number in damaged.rows {
                guard let row = try Row.fetchOne(db, sql: "SELECT * FROM queue WHERE row = ?", arguments: [number]) else {
                    try Self.requireAbsence(of: number, nil, db)
                    continue
                }
                let payload = (try? row.optional("payload") as Data?) ?? Data()
                let id = (try? row.optional("event_id") as Data?).flatMap { EventID(bytes: $0) }
                try Self.bury(
                    db, &books, id: id, install: try? row.optional("install_id"), origin: nil, reason: DamagedRows.reason,
                    detail: DamagedRows.detail, payload: payload, time: time)
                try db.execute(sql: "DELETE FROM queue WHERE row = ?", arguments: [number])
                books.depth -= 1
                books.bytes = max(books.bytes - Int64(payload.count), 0)
                books.deadLettered += 1
                if let id { ids.append(id) }
            }
            return ids
        }
    }
}
