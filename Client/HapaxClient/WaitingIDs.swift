import GRDB
import GRDBSQLite
import HapaxModel

extension EventQueue {
    /// The ids of all waiting events. By SQLite's own interface: a start with a long queue waits for this.
    func waitingIDs() throws -> Set<EventID> {
        var ids = Set<EventID>(minimumCapacity: Int(clamping: books.depth))
        try reading { db in
            ids.removeAll(keepingCapacity: true)
            let statement = try db.cachedStatement(sql: "SELECT event_id FROM queue ORDER BY event_id")
            let handle = statement.sqliteStatement
            defer { sqlite3_reset(handle) }
            while true {
                let result = sqlite3_step(handle)
                if result == SQLITE_DONE { return }
                guard result == SQLITE_ROW else { throw DatabaseError(resultCode: ResultCode(rawValue: result)) }
                let bytes = UnsafeRawBufferPointer(start: sqlite3_column_blob(handle, 0), count: Int(sqlite3_column_bytes(handle, 0)))
                if let id = EventID(raw: bytes) { ids.insert(id) }
            }
        }
        return ids
    }
}
