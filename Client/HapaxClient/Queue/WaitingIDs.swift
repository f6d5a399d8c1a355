import GRDB
import GRDBSQLite
import HapaxModel

/// Which ids wait has changed.
enum WaitingChange: Sendable {
    case added([EventID])
    case removed([EventID])
    /// The file was set aside: nobody knows.
    case forgotten
}

extension EventQueue {
    /// Tells one who keeps count of what waits of every change from now on, within the transaction's turn on the connection: told later, a
    /// removal could undo what the next transaction has added.
    func observeWaitingIDs(_ observer: @escaping @Sendable (WaitingChange) -> Void) {
        waitingObserver.withLock { $0 = observer }
    }

    func tell(_ change: WaitingChange) { waitingObserver.withLock { $0 }(change) }

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
