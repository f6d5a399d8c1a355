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
                INSERT INTO queue (event_id, payload, time, caller_supplied) VALUES (?, ?, ?, ?)
                ON CONFLICT (event_id) DO NOTHING
                """)
        connection = db.sqliteConnection
    }

    /// - Returns: false if its id is there already.
    func insert(_ event: PreparedEvent) throws -> Bool {
        let handle = statement.sqliteStatement
        // Nothing of the event is read after this call, so SQLite need not copy it; bound pointers do not outlive it either.
        let result = event.id.bytes.withUnsafeBytes { id in
            event.bytes.withUnsafeBytes { payload in
                sqlite3_bind_blob(handle, 1, id.baseAddress, Int32(id.count), nil)
                sqlite3_bind_blob64(handle, 2, payload.baseAddress, UInt64(payload.count), nil)
                sqlite3_bind_int64(handle, 3, event.time)
                sqlite3_bind_int(handle, 4, event.callerSupplied ? 1 : 0)
                let result = sqlite3_step(handle)
                sqlite3_reset(handle)
                sqlite3_clear_bindings(handle)
                return result
            }
        }
        guard result == SQLITE_DONE else { throw DatabaseError(resultCode: ResultCode(rawValue: sqlite3_extended_errcode(connection))) }
        return sqlite3_changes(connection) == 1
    }
}
