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
        // Where it fails, what was removed stays removed; the next transaction tries again.
        _ = try? giveBack(db) { free, all in
            isTight || room.isWorthGivingBack(freePages: free, filePages: all, isEmpty: counters.waiting == 0)
        }
        if isTight { ballast.withLock { _ = $0.keep() } }
    }

    /// Free pages that SQLite gives back in one go: for each it looks through the list of all that are free.
    private static let pagesInOneGo = 512

    /// Writes a file that holds little anew; of another one gives back some free pages.
    ///
    /// - Returns: Whether there are more.
    private func giveBack(_ db: Database, if isDue: (_ free: Int, _ all: Int) -> Bool) throws -> Bool {
        let free = try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0
        let all = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
        guard free > 0, isDue(free, all) else { return false }
        var isMore = false
        if !room.isQuicklyRewritten(freePages: free, filePages: all) || !isRewritten(db) {
            // Each row that it gives is a page given back.
            isMore = try Row.fetchAll(db, sql: "PRAGMA incremental_vacuum(\(Self.pagesInOneGo))").count == Self.pagesInOneGo
        }
        try db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)")
        return isMore
    }

    /// - Returns: false where the disk has no room for it.
    private func isRewritten(_ db: Database) -> Bool { (try? db.execute(sql: "VACUUM")) != nil }

    /// Deleting leaves in the file what its pages held: gives all that are free back. If this fails, as while somebody reads, they go the way of
    /// those of delivered events: they are written over, or given back later.
    func eraseFreePages() {
        try? inChunks { try reading { db in try giveBack(db) { _, _ in true } } }
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
