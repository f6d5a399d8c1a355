import Foundation
import GRDB
import GRDBSQLite
import HapaxModel

/// What an event that waits is waiting for.
enum RowState: Int64 {
    case waiting = 0
    /// The server refused it alone: it stays out of batches until the server has shown that it accepts others.
    case held = 1
    /// It was a dead letter, and comes under its old sequence.
    case retried = 2
    /// It was taken while the user's consent was pending. For who recovers it: whether it still waits for that, the counters say.
    case pending = 3
}

/// Inserts events by SQLite's own interface: with values that are copied and wrapped, binding takes as long as storing.
struct RowInsert {
    private let statement: Statement
    private let connection: OpaquePointer?

    init(_ db: Database) throws {
        statement = try db.cachedStatement(
            sql: "INSERT INTO events (sequence, event_id, time, state, check_sum, payload) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        )
        connection = db.sqliteConnection
    }

    /// - Parameter payloadSum: ``RowCheckSum/ofPayload(_:)``.
    /// - Returns: false if its id waits already, or the sequence is taken.
    func insert(
        sequence: Int64, id: EventID, time: Int64, state: RowState = .waiting, payload: [UInt8], payloadSum: UInt32
    ) throws -> Bool {
        let handle = statement.sqliteStatement
        sqlite3_bind_int64(handle, 1, sequence)
        sqlite3_bind_int64(handle, 3, time)
        sqlite3_bind_int64(handle, 4, state.rawValue)
        sqlite3_bind_int64(handle, 5, Int64(RowCheckSum.ofRow(.event, sequence: sequence, id: id, time: time, payload: payloadSum)))
        // Nothing of these is read after the step, so SQLite need not copy them; the pointers do not outlive it either.
        return try withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { idBytes in
            try payload.withUnsafeBytes { payload in
                sqlite3_bind_blob(handle, 2, idBytes.baseAddress, Int32(idBytes.count), nil)
                sqlite3_bind_blob64(handle, 6, payload.baseAddress, UInt64(payload.count), nil)
                return try changesRow(handle, connection)
            }
        }
    }
}

/// Deletes sent events, in the same way.
struct RowDelete {
    /// Kept: the connection may drop it from its cache.
    private let statement: Statement
    private let connection: OpaquePointer?

    init(_ db: Database) throws {
        statement = try db.cachedStatement(sql: "DELETE FROM events WHERE sequence = ? AND event_id = ?")
        connection = db.sqliteConnection
    }

    /// - Returns: false if there is no such row: the quota or a purge has removed it while it was being sent.
    func delete(_ event: OutgoingEvent) throws -> Bool {
        let handle = statement.sqliteStatement
        sqlite3_bind_int64(handle, 1, event.sequence)
        return try withUnsafeBytes(of: (event.id.high.bigEndian, event.id.low.bigEndian)) { id in
            sqlite3_bind_blob(handle, 2, id.baseAddress, Int32(id.count), nil)
            return try changesRow(handle, connection)
        }
    }
}

/// Executes a statement and lets go of what is bound to it.
private func changesRow(_ handle: OpaquePointer, _ connection: OpaquePointer?) throws -> Bool {
    let result = sqlite3_step(handle)
    sqlite3_reset(handle)
    sqlite3_clear_bindings(handle)
    guard result == SQLITE_DONE else { throw DatabaseError(resultCode: ResultCode(rawValue: result)) }
    return sqlite3_changes(connection) == 1
}

/// One row of `events` as it was stored.
struct StoredRow {
    var sequence: Int64
    /// nil if it no longer is what was stored.
    var event: (id: EventID, time: Int64, state: RowState, payload: [UInt8])?
}

/// Rows of `events` in their order, read by SQLite's own interface.
struct StoredRows {
    /// Kept: the connection may drop it from its cache.
    private let statement: Statement

    /// Ends with ``end()``.
    ///
    /// - Parameters:
    ///   - condition: With one placeholder for each argument.
    init(_ db: Database, where condition: String, _ arguments: [Int64], limit: Int) throws {
        statement = try db.cachedStatement(
            sql:
                "SELECT sequence, event_id, time, state, check_sum, payload FROM events WHERE \(condition) ORDER BY sequence LIMIT \(limit)"
        )
        for (index, argument) in arguments.enumerated() { sqlite3_bind_int64(handle, Int32(index + 1), argument) }
    }

    private var handle: OpaquePointer { statement.sqliteStatement }

    func end() { sqlite3_reset(handle) }

    /// - Returns: nil at the end.
    func next() throws -> StoredRow? {
        let result = sqlite3_step(handle)
        if result == SQLITE_DONE { return nil }
        guard result == SQLITE_ROW else { throw DatabaseError(resultCode: ResultCode(rawValue: result)) }
        var row = StoredRow(sequence: sqlite3_column_int64(handle, 0))
        let (time, payload) = (sqlite3_column_int64(handle, 2), [UInt8](bytes(5)))
        guard let id = EventID(raw: bytes(1)), let state = RowState(rawValue: sqlite3_column_int64(handle, 3)) else { return row }
        let sum = RowCheckSum.ofRow(.event, sequence: row.sequence, id: id, time: time, payload: RowCheckSum.ofPayload(payload))
        if Int64(sum) == sqlite3_column_int64(handle, 4) { row.event = (id, time, state, payload) }
        return row
    }

    /// Valid until the next step.
    private func bytes(_ column: Int32) -> UnsafeRawBufferPointer {
        let start = sqlite3_column_blob(handle, column)
        return UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(handle, column)))
    }
}
