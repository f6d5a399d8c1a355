import Foundation
import GRDB
import HapaxModel

/// One row of `queue` as it was stored.
struct WaitingRow {
    var id: EventID
    var payload: [UInt8]
    /// nil for the queue's own, empty for nobody's.
    var install: Data?

    /// - Throws: SQLITE_CORRUPT if it no longer is what was stored.
    init(_ row: Row) throws {
        let payload: Data = try row.value("payload")
        let checkSum: Int64 = try row.value("check_sum")
        guard let id = EventID(bytes: try row.value("event_id") as Data) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        self.id = id
        self.payload = [UInt8](payload)
        install = try row.optional("install_id")
        guard payload.withUnsafeBytes({ CheckSum.crc32(id, $0) }) == checkSum else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
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
        try transaction { db, books in
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
