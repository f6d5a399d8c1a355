import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// Events are taken only while the ballast is there: what it holds back is for removing delivered rows.
    func requireBallast(_ db: Database) throws {
        if ballast.withLock({ $0.keep() }) { return }
        // What was delivered may have left its room in the file.
        giveBackRoom(db)
        guard ballast.withLock({ $0.isKept }) else { throw DatabaseError(resultCode: .SQLITE_FULL) }
    }

    /// Gives up the ballast and empties the log, so that a transaction that only removes can be tried again.
    func makeRoom(_ db: Database) {
        ballast.withLock { $0.release() }
        // If this fails as well the transaction has its turn all the same, with the ballast's room.
        try? db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)")
    }

    /// After rows were removed: lets the file shrink if that is worth it, and takes the ballast up again if there is room.
    func giveBackRoom(_ db: Database) {
        let isTight = ballast.withLock { !$0.isKept }
        // Where it fails, what was removed stays removed; the next transaction tries again.
        try? rewrite(db, isTight: isTight)
        if isTight { ballast.withLock { _ = $0.keep() } }
    }

    private func rewrite(_ db: Database, isTight: Bool) throws {
        let free = try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0
        let all = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
        guard room.isWorthRewriting(freePages: free, filePages: all, isTight: isTight) else { return }
        try db.execute(sql: "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
    }

    /// Deletes so that nothing of it is left in the file: deleted rows are written over, and so is the log that held them.
    func erasing<Value>(_ delete: () throws -> Value) throws -> Value {
        try reading { try $0.execute(sql: "PRAGMA secure_delete = ON") }
        defer {
            try? reading { db in
                try db.execute(sql: "PRAGMA secure_delete = FAST")
                // With it goes what delivered events have left in free pages, if that is not too much to do.
                try? rewrite(db, isTight: true)
                try db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)")
            }
        }
        return try delete()
    }

    static func freeBytes(_ path: String) -> Int64? {
        let attributes = try? FileManager.default.attributesOfFileSystem(forPath: path)
        return (attributes?[.systemFreeSize] as? NSNumber)?.int64Value
    }
}

extension Error {
    /// Whether SQLite found no room on the disk, for its file or for the memory it shares with readers.
    package var isDiskFull: Bool {
        guard let error = self as? DatabaseError else { return (self as? CocoaError)?.code == .fileWriteOutOfSpace }
        return error.resultCode == .SQLITE_FULL || error.extendedResultCode == .SQLITE_IOERR_SHMSIZE
    }
}
