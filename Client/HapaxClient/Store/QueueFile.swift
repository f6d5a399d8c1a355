import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// One queue file, held by its one owner: what waits, the dead letters, and the counters about both.
///
/// Every method is one transaction, or one for each chunk of at most ``chunkRows`` rows or ``chunkBytes``. The counters are written in the
/// transactions of the rows (I12). A file that turns out to be damaged is set aside, and a new one, a new install, takes over at once (I11).
package final class QueueFile: Sendable {
    package let claim: FileClaim
    let durability: Durability
    let quota: QueueQuota
    let keepsDamagedFiles: Bool
    let room: QueueRoom
    private let connection: Locked<Connection>
    /// The file that the connection writes; its name may be removed, or another file's. nil while none could be opened in a damaged one's place.
    private let identity: Locked<FileIdentity?>
    private let current: Locked<QueueCounters>
    /// The time of the oldest waiting event, as the latest commit left it.
    private let oldest: Locked<Int64?>
    /// Room for events: what is on disk and what is promised.
    let account: Locked<QuotaAccount>
    let ballast: Locked<Ballast>
    let damage: Locked<DamageRecord>
    private let status: StatusFile
    /// Whether a power cut may take commits that must survive one at the level `power`; of those of an earlier process nobody knows.
    private let isInDriveCache = Locked(true)

    private struct Connection {
        /// nil once it is closed, and between a damaged file and the one that takes over.
        var database: DatabaseQueue?
        /// The file is damaged, and none could be opened in its place yet.
        var isMissing = false
    }

    /// What one transaction does at most, so that nobody waits long for the next (I13).
    static let chunkRows = 1_000
    static let chunkBytes: Int64 = 1024 * 1024
    /// Fewer rows on a small disk, whose log has room for fewer pages.
    var chunkLimit: Int { min(Self.chunkRows, max(room.logPages, 16)) }

    package var directory: QueueDirectory { claim.directory }
    package var number: Int { claim.number }

    /// Opens the file, which is made if it is missing.
    ///
    /// - Parameter keepsDamagedFiles: Whether a damaged file stays once it has been recovered.
    package init(
        _ claim: FileClaim, durability: Durability, quota: QueueQuota = .unlimited, keepsDamagedFiles: Bool = false
    ) throws(QueueOpenError) {
        self.claim = claim
        self.durability = durability
        self.quota = quota
        self.keepsDamagedFiles = keepsDamagedFiles
        do {
            room = QueueRoom(freeBytes: Self.freeBytes(claim.directory.path))
            ballast = Locked(Ballast(path: claim.directory.ballastPath, bytes: room.ballastBytes))
            let opened: Opened
            do {
                opened = try Self.openOrReplace(claim, durability, room)
            } catch  where error.isDiskFull {
                ballast.withLock { $0.release() }
                opened = try Self.openOrReplace(claim, durability, room)
            }
            connection = Locked(Connection(database: opened.database))
            identity = Locked(FileIdentity(path: claim.directory.databasePath(claim.number)))
            current = Locked(opened.counters)
            oldest = Locked(opened.oldest)
            account = Locked(QuotaAccount(quota: quota, used: opened.counters.usage))
            damage = Locked(DamageRecord(isPending: opened.isRecovering, latest: opened.damage))
            status = StatusFile(path: claim.directory.statusPath(claim.number))
            status.write(FileStatus(opened.counters, oldest: opened.oldest, isRecovering: opened.isRecovering))
        } catch {
            throw .unusable(StorageFailure(error))
        }
    }

    /// What the latest commit left.
    package var counters: QueueCounters { current.withLock { $0 } }

    /// Of the oldest waiting event by the client's clock, in Unix milliseconds.
    package var oldestTime: Int64? { oldest.withLock { $0 } }

    /// Whether the file is still where a later client will look for it: somebody may have deleted or moved the directory.
    package var hasFile: Bool {
        claim.isInPlace && identity.withLock { $0 }.map { $0 == FileIdentity(path: directory.databasePath(number)) } ?? true
    }

    /// - Throws: SQLITE_READONLY_DBMOVED: what is stored in a file without a name is lost with the process.
    func requireFile() throws {
        guard hasFile else { throw DatabaseError(resultCode: .SQLITE_READONLY_DBMOVED) }
    }

    /// For those who must not open the file; each commit does the same.
    func writeStatus() { status.write(FileStatus(counters, oldest: oldestTime, isRecovering: isRecovering)) }

    // MARK: - Transactions

    /// The one connection. Who works with it keeps it open until done, also while the file is being closed.
    var database: DatabaseQueue {
        get throws {
            try connection.withLock { current in
                if current.isMissing { try takeOver(&current) }
                guard let database = current.database else { throw DatabaseError(resultCode: .SQLITE_MISUSE, message: "closed") }
                return database
            }
        }
    }

    /// Has the connection's turn; nobody else writes between two statements.
    ///
    /// - Throws: SQLITE_MISUSE if it has been closed since the caller got it, as when the file was set aside. SQLite's calls would crash.
    static func work<Value>(on database: DatabaseQueue, _ body: (Database) throws -> Value) throws -> Value {
        try database.writeWithoutTransaction { db in
            guard db.sqliteConnection != nil else { throw DatabaseError(resultCode: .SQLITE_MISUSE, message: "closed") }
            return try body(db)
        }
    }

    /// Reads; if the file turns out to be damaged, from the one that takes over.
    func reading<Value>(_ body: (Database) throws -> Value) throws -> Value {
        let database = try database
        do {
            return try Self.work(on: database, body)
        } catch {
            guard try takesOver(from: database, after: error) else { throw error }
            return try Self.work(on: self.database, body)
        }
    }

    /// One transaction, whose counters are seen by others only after its commit.
    ///
    /// - Parameters:
    ///   - growing: Whether it stores events: then a full disk refuses it, while others get the ballast's room; and it is done again if the file
    ///     turns out to be damaged, since it decided nothing by rows that may be lost.
    ///   - released: Reservations of the events that it stores.
    ///   - committed: Called with the result before any reader can see what was stored.
    func transaction<Value>(
        growing: Bool = false, releasing released: QueueUsage = QueueUsage(), committed: (Value) -> Void = { _ in },
        _ body: (Database, inout QueueCounters) throws -> Value
    ) throws -> Value {
        func run(on database: DatabaseQueue) throws -> Value {
            try Self.work(on: database) { db in
                let value = try perform(db, growing: growing, releasing: released, body)
                committed(value)
                return value
            }
        }
        let database = try database
        do {
            return try run(on: database)
        } catch {
            guard try takesOver(from: database, after: error), growing else { throw error }
            return try run(on: self.database)
        }
    }

    private func perform<Value>(
        _ db: Database, growing: Bool, releasing released: QueueUsage, _ body: (Database, inout QueueCounters) throws -> Value
    ) throws -> Value {
        if growing {
            try requireFile()
            try requireBallast(db)
            return try attempt(db, isWritten: true, releasing: released, body)
        }
        defer { giveBackRoom(db) }
        do {
            return try attempt(db, isWritten: false, releasing: released, body)
        } catch  where error.isDiskFull {
            makeRoom(db)
            return try attempt(db, isWritten: false, releasing: released, body)
        }
    }

    /// - Parameter isWritten: Whether the counters are written even if none has changed: then there is a commit, which flushes at the level
    ///   `power` what an earlier one at the level `process` left to the system.
    private func attempt<Value>(
        _ db: Database, isWritten: Bool, releasing released: QueueUsage, _ body: (Database, inout QueueCounters) throws -> Value
    ) throws -> Value {
        // Before the commit: a file that a scan leaves out must not have anything to send.
        try claim.mark(clean: false)
        let before = counters
        var (after, value, oldest) = (before, Value?.none, Int64?.none)
        try db.inTransaction(.immediate) {
            value = try body(db, &after)
            try removeDeadLetters(db, &after, limit: chunkLimit)
            oldest = try Int64.fetchOne(db.cachedStatement(sql: "SELECT time FROM events ORDER BY sequence LIMIT 1"))
            // A sum that changed on the disk would fill the quota for ever.
            if after.waiting == 0 { after.bytes = 0 }
            if after.deadLetters == 0 { after.deadLetterBytes = 0 }
            if isWritten || after != before {
                after.word += 1
                try after.write(db)
            }
            return .commit
        }
        isInDriveCache.withLock { $0 = true }
        self.oldest.withLock { $0 = oldest }
        current.withLock { $0 = after }
        status.write(FileStatus(after, oldest: oldest, isRecovering: isRecovering))
        account.withLock { $0.committed(after.usage - before.usage, releasing: released) }
        guard let value else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
        return value
    }

    /// Does what takes many chunks, one transaction each, until one says that it was the last.
    func inChunks(_ chunk: () throws -> Bool) throws {
        while try chunk() {}
    }

    /// Returns when no power cut can take what was committed before, at the level `power`; see ``DriveCache``.
    ///
    /// - Throws: ``StorageFailure``. What was committed stays so; call again.
    package func flushDrive() throws {
        guard durability == .power else { return }
        // Taken back first: what is committed meanwhile is not flushed by this.
        let isDue = isInDriveCache.withLock { isDue in
            defer { isDue = false }
            return isDue
        }
        guard isDue else { return }
        let number = claim.flushDrive()
        guard number != 0 else { return }
        isInDriveCache.withLock { $0 = true }
        throw StorageFailure(errno: number)
    }

    /// Whether the last ``flushDrive()`` failed, or there was none since the last commit.
    package var mayLoseInPowerCut: Bool { durability == .power && isInDriveCache.withLock { $0 } }

    // MARK: - Taking over and ending

    /// After a failure: whether it was this file's damage, and the work goes on in another file now.
    private func takesOver(from database: DatabaseQueue, after error: any Error) throws -> Bool {
        let (open, isMissing) = connection.withLock { ($0.database, $0.isMissing) }
        // Used while it was being set aside.
        if (error as? DatabaseError)?.resultCode == .SQLITE_MISUSE { return open !== database && (open != nil || isMissing) }
        guard error.isDamage else { return false }
        return try connection.withLock { current in
            guard let open = current.database else { return current.isMissing }
            // Somebody else met the damage first.
            guard open === database else { return true }
            try requireFile()
            // Before it is renamed: closing looks for the log under the name that the file had.
            try? open.close()
            current = Connection(isMissing: true)
            identity.withLock { $0 = nil }
            try takeOver(&current, settingAside: true)
            return true
        }
    }

    /// Opens the file that takes over from a damaged one. Where that fails, as while the process may open no more files, whoever needs a file
    /// next tries again: the damaged one lies under its own name still, or under its new one.
    private func takeOver(_ current: inout Connection, settingAside: Bool = false) throws {
        try requireFile()
        let before = counters
        let opened = try withRoom {
            try settingAside
                ? Self.replace(claim, durability, room, former: before.installID)
                : Self.openOrReplace(claim, durability, room, former: before.installID)
        }
        current = Connection(database: opened.database)
        identity.withLock { $0 = FileIdentity(path: directory.databasePath(number)) }
        self.current.withLock { $0 = opened.counters }
        oldest.withLock { $0 = opened.oldest }
        account.withLock { $0.committed(opened.counters.usage - before.usage, releasing: QueueUsage()) }
        damage.withLock { $0 = DamageRecord(isPending: opened.isRecovering, latest: opened.damage) }
        status.write(FileStatus(opened.counters, oldest: opened.oldest, isRecovering: opened.isRecovering))
    }

    /// A new file begins in the ballast's room if there is no other.
    private func withRoom(_ open: () throws -> Opened) throws -> Opened {
        do { return try open() } catch  where error.isDiskFull {
            ballast.withLock { $0.release() }
            return try Self.openOrReplace(claim, durability, room, former: counters.installID)
        }
    }

    /// Closes the file and gives it up. What comes after fails. A file with nothing to send says so for those who look for one.
    package func close() {
        let closed = connection.withLock { current in
            defer { current = Connection() }
            return current.database
        }
        if let closed {
            // Behind what is under way; a commit that still comes takes the mark back.
            try? closed.writeWithoutTransaction { db in
                // Held events wait for their verdict: who looks after leftovers tries them again.
                let isClean = !counters.hasSomethingToSend && counters.held == 0 && !damage.withLock { $0.isPending }
                if try isClean && Self.openSession(db) == nil && hasFile { try claim.mark(clean: true) }
            }
            try? closed.close()
        }
        status.close()
        claim.release()
    }
}
