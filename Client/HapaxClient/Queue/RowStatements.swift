import GRDB
import GRDBSQLite
import HapaxModel

/// Inserts events into `queue` by SQLite's own interface: with values that are copied and wrapped, binding takes as long as storing.
struct RowInsert {
    private let statement: Statement
    private let connection: OpaquePointer?

    init(_ db: Database) throws {
        statement = try db.cachedStatement(
            sql: """
                INSERT INTO queue (row, event_id, payload, time, check_sum, install_id) VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT DO NOTHING
                """)
        connection = db.sqliteConnection
    }

    /// - Parameters:
    ///   - checkSum: ``CheckSum/crc32(_:_:)`` of id and payload.
    ///   - row: nil for the next one.
    ///   - install: Whose the event is; nil for the queue's own, empty for nobody's.
    /// - Returns: false if its id, or the row, is there already.
    func insert(id: EventID, payload: [UInt8], checkSum: UInt32, time: Int64, row: Int64? = nil, install: [UInt8]? = nil) throws -> Bool {
        let handle = statement.sqliteStatement
        // What is not bound is NULL.
        if let row { sqlite3_bind_int64(handle, 1, row) }
        sqlite3_bind_int64(handle, 4, time)
        sqlite3_bind_int64(handle, 5, Int64(checkSum))
        if let install { bind(install, to: 6) }
        // Nothing of these is read after the step, so SQLite need not copy them; the pointers do not outlive it either.
        return try withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { idBytes in
            try payload.withUnsafeBytes { payload in
                sqlite3_bind_blob(handle, 2, idBytes.baseAddress, Int32(idBytes.count), nil)
                sqlite3_bind_blob64(handle, 3, payload.baseAddress, UInt64(payload.count), nil)
                return try changesRow(handle, connection)
            }
        }
    }

    /// Copied by SQLite: hardly any event has one.
    private func bind(_ bytes: [UInt8], to index: Int32) {
        let transient = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        if bytes.isEmpty {
            sqlite3_bind_zeroblob(statement.sqliteStatement, index, 0)
        } else {
            sqlite3_bind_blob(statement.sqliteStatement, index, bytes, Int32(bytes.count), transient)
        }
    }
}

/// Deletes sent events from `queue`, in the same way.
struct RowDelete {
    /// Kept: the connection may drop it from its cache.
    private let statement: Statement
    private let connection: OpaquePointer?

    init(_ db: Database) throws {
        statement = try db.cachedStatement(sql: "DELETE FROM queue WHERE row = ? AND event_id = ?")
        connection = db.sqliteConnection
    }

    /// - Returns: false if there is no such row.
    func delete(_ event: OutgoingEvent) throws -> Bool {
        let handle = statement.sqliteStatement
        sqlite3_bind_int64(handle, 1, event.row)
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
