import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// Events are taken only while the ballast is there: what it holds back is for removing delivered rows.
    func requireBallast() throws {
        guard ballast.withLock({ $0.keep() }) else { throw DatabaseError(resultCode: .SQLITE_FULL) }
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
        do {
            let pages = room.pagesToGiveBack(
                freePages: try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0,
                filePages: try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0,
                isTight: isTight, isEmpty: counters.waiting == 0)
            if pages > 0 { try Self.giveBack(pages, db) }
        } catch {
            // What was removed stays removed; the next transaction tries again.
        }
        if isTight { ballast.withLock { _ = $0.keep() } }
    }

    /// Free pages in one transaction: SQLite holds in memory what it moves to the places of these.
    private static let pagesPerTransaction = 1_024

    private static func giveBack(_ pages: Int, _ db: Database) throws {
        for done in stride(from: 0, to: pages, by: pagesPerTransaction) {
            // Each row that it gives is a page given back.
            _ = try Row.fetchAll(db, sql: "PRAGMA incremental_vacuum(\(min(pages - done, pagesPerTransaction)))")
        }
        try db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)")
    }

    /// Deleting leaves in the file what its pages held: gives all that are free back. If this fails, as while somebody reads, they go the way of
    /// those of delivered events: they are written over, or given back later.
    func eraseFreePages() {
        try? reading { db in try Self.giveBack(try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0, db) }
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
