import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// The client's events on disk, in one SQLite file: what waits, what was refused, and the books about both.
///
/// Every method is one transaction. The books are kept in the same transactions as the rows, so that at any commit
/// `lastSequence + adopted = depth + stored + duplicates + deadLettered + discarded` (I12). A file that turns out to be damaged is set
/// aside, and the same queue goes on in a new one (I11).
package final class EventQueue: Sendable {
    package let directory: QueueDirectory
    /// Whether it stands in for a main queue that was taken.
    package let isSpool: Bool
    /// Names this queue; one that was damaged when it opened goes on under a new name.
    package let installID: EventID
    let durability: Durability
    let quota: QueueQuota
    let room: QueueRoom
    let connection: Locked<DatabaseQueue?>
    /// The file that the connection writes; its name may be gone, or another file's.
    let file: Locked<FileIdentity?>
    private let lock: Locked<FileLock?>
    let currentBooks: Locked<QueueBooks>
    /// The time of the oldest waiting event, as the latest commit left it: known without waiting for the one under way.
    let oldest: Locked<Int64?>
    /// Room for events: what is on disk and what is promised.
    let account: Locked<QuotaAccount>
    let ballast: Locked<Ballast>
    let underWay = Locked(BatchUnderWay())
    /// Whether a power cut may take commits that must survive one at the level `power`; of those of an earlier process nobody knows.
    private let isInDriveCache = Locked(true)
    let damage: Locked<DamageRecord>
    let waitingObserver = Locked<@Sendable (WaitingChange) -> Void>({ _ in })

    /// Takes the directory's lock, then opens its queue, which is created if missing.
    ///
    /// - Parameters:
    ///   - newInstallID: Used if the queue is new.
    ///   - createsDirectory: Whether a missing directory is made; if not, it is unusable.
    package init(
        directory: QueueDirectory, durability: Durability, newInstallID: EventID, quota: QueueQuota = .unlimited, isSpool: Bool = false,
        createsDirectory: Bool = true
    ) throws(QueueOpenError) {
        let held = try Self.lock(directory, createsDirectory: createsDirectory)
        do {
            room = QueueRoom(freeBytes: Self.freeBytes(directory.path))
            var ballast = Ballast(path: directory.ballastPath, bytes: room.ballastBytes)
            let opened: Opened
            do {
                opened = try Self.openOrReplace(directory, durability, newInstallID, room)
            } catch  where error.isDiskFull {
                ballast.release()
                opened = try Self.openOrReplace(directory, durability, newInstallID, room)
            }
            self.ballast = Locked(ballast)
            connection = Locked(opened.database)
            file = Locked(FileIdentity(path: directory.databasePath))
            installID = opened.books.installID
            currentBooks = Locked(opened.books)
            oldest = Locked(opened.oldest)
            account = Locked(QuotaAccount(quota: quota, used: opened.books.usage))
            var record = DamageRecord(pending: opened.damagedFiles, highest: opened.highestDamagedFile)
            record.hasLostIdentity = opened.hasLostIdentity
            damage = Locked(record)
        } catch {
            throw .unusable(StorageFailure(error))
        }
        self.directory = directory
        self.quota = quota
        self.durability = durability
        self.isSpool = isSpool
        lock = Locked(held)
    }

    private static func lock(_ directory: QueueDirectory, createsDirectory: Bool) throws(QueueOpenError) -> FileLock {
        do {
            if createsDirectory {
                try FileManager.default.createDirectory(
                    atPath: directory.path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            }
        } catch {
            // A file is in its place.
            let isFile = (error as? CocoaError)?.code == .fileWriteFileExists
            throw .unusable(isFile ? StorageFailure(errno: ENOTDIR) : StorageFailure(error))
        }
        DeviceStorage.keepOpen(directory.path)
        do throws(FileLock.Failure) {
            return try FileLock(path: directory.lockPath)
        } catch {
            switch error {
            case .taken: throw .taken
            case .system(let number): throw .unusable(StorageFailure(errno: number))
            }
        }
    }

    /// The one connection. Who works with it keeps it open until done, also while the queue is being closed.
    ///
    /// - Throws: SQLITE_MISUSE once the queue is closed: a closed connection must not be touched.
    var database: DatabaseQueue {
        get throws {
            guard let database = connection.withLock({ $0 }) else { throw DatabaseError(resultCode: .SQLITE_MISUSE, message: "closed") }
            return database
        }
    }

    /// Whether the file is still where a later client will look for it: somebody may have deleted or moved the directory.
    var hasFile: Bool {
        // Once it is closed, its number may be that of a file which somebody has put in its place.
        if damage.withLock({ $0.isClosed }), !hasDirectory { return false }
        return file.withLock { $0 } == FileIdentity(path: directory.databasePath)
    }

    /// What became of the file with the rows that the books know.
    enum FileState {
        case there
        /// It was damaged, and no other could be begun yet.
        case setAside
        /// Somebody has deleted or moved it.
        case gone
    }

    var fileState: FileState {
        if damage.withLock({ $0.unfinished != nil }) { return hasDirectory ? .setAside : .gone }
        return hasFile ? .there : .gone
    }

    /// Whether the directory is the one that this queue has locked.
    private var hasDirectory: Bool { lock.withLock { $0?.isInPlace == true } }

    /// For a moment at which there is no file of its own: another's may have been given the same number.
    ///
    /// - Throws: SQLITE_READONLY_DBMOVED.
    func requireDirectory() throws {
        guard hasDirectory else { throw DatabaseError(resultCode: .SQLITE_READONLY_DBMOVED) }
    }

    /// - Throws: SQLITE_READONLY_DBMOVED: what is stored in a file without a name is lost with the process.
    func requireFile() throws {
        guard hasFile else { throw DatabaseError(resultCode: .SQLITE_READONLY_DBMOVED) }
    }

    /// Whether it holds more than its quota allows, as dead letters can that were taken over.
    package var isFull: Bool { !quota.allows(books.usage) }

    /// What the latest commit left.
    package var books: QueueBooks { currentBooks.withLock { $0 } }

    /// Says where its events go from now on.
    ///
    /// - Returns: Whether some wait, may, or will once they are retried, that were perhaps meant for another server or project.
    @discardableResult
    package func isRedirected(to endpoint: Endpoint) -> Bool {
        let hasChanged = DestinationMark(path: directory.destinationPath).change(to: endpoint)
        return hasChanged && (books.depth > 0 || books.letters > 0 || damage.withLock { !$0.pending.isEmpty })
    }

    // MARK: - Transactions

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

    /// One transaction, whose changes to the books are seen by others only after its commit.
    ///
    /// - Parameters:
    ///   - growing: Whether it stores events: then a full disk refuses it, while others get the ballast's room.
    ///   - released: Reservations of the events that it stores.
    ///   - committed: Told of the result before anybody else can read what was stored.
    func transaction<Value>(
        growing: Bool = false, releasing released: QueueUsage = QueueUsage(), committed: (Value) -> Void = { _ in },
        _ body: (Database, inout QueueBooks) throws -> Value
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
            // What stores goes on; others decided by rows that may be gone.
            guard try takesOver(from: database, after: error), growing else { throw error }
            return try run(on: self.database)
        }
    }

    private func perform<Value>(
        _ db: Database, growing: Bool, releasing released: QueueUsage, _ body: (Database, inout QueueBooks) throws -> Value
    ) throws -> Value {
        if growing {
            try requireFile()
            try requireBallast()
            return try attempt(db, releasing: released, body)
        }
        defer { giveBackRoom(db) }
        do {
            return try attempt(db, releasing: released, body)
        } catch  where error.isDiskFull {
            makeRoom(db)
            do {
                return try attempt(db, releasing: released, body)
            } catch  where error.isDiskFull {
                // A page that counts its room wrong looks like a full disk.
                if Self.freeBytes(directory.path) ?? 0 > Int64(room.ballastBytes) { try Self.check(db, largest: .max) }
                throw error
            }
        }
    }

    private func attempt<Value>(
        _ db: Database, releasing released: QueueUsage, _ body: (Database, inout QueueBooks) throws -> Value
    ) throws -> Value {
        let before = currentBooks.withLock { $0 }
        var books = before
        var value: Value?
        var oldest: Int64?
        try db.inTransaction(.immediate) {
            value = try body(db, &books)
            oldest = try Self.moveHead(db, &books)
            // A sum that changed on the disk would fill the quota for ever.
            if books.depth == 0 { books.bytes = 0 }
            if books.letters == 0 { books.letterBytes = 0 }
            if books != before { try books.write(db) }
            return .commit
        }
        isInDriveCache.withLock { $0 = true }
        self.oldest.withLock { $0 = oldest }
        currentBooks.withLock { $0 = books }
        account.withLock { $0.committed(books.usage - before.usage, releasing: released) }
        guard let value else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
        return value
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
        guard isDue, let number = lock.withLock({ $0?.flushDrive() }), number != 0 else { return }
        isInDriveCache.withLock { $0 = true }
        throw StorageFailure(errno: number)
    }

    /// Whether the last ``flushDrive()`` failed, or there was none since the last commit.
    package var mayLoseInPowerCut: Bool { durability == .power && isInDriveCache.withLock { $0 } }

    // MARK: - End

    /// Closes the file and gives up the lock. What comes after fails.
    package func close() {
        endConnection { _ in }
        // There can be many, and whoever delivers it has a ballast.
        if isSpool { ballast.withLock { $0.release() } }
        lock.withLock { $0 = nil }
    }

    /// Waits for what is under way; the file is closed when its last user is done.
    ///
    /// - Parameter last: What is done with it behind that.
    @discardableResult
    private func endConnection<Value>(_ last: (Database) throws -> Value) rethrows -> Value? {
        let ended = connection.withLock { database in
            defer { database = nil }
            return database
        }
        return try ended?.writeWithoutTransaction(last)
    }

    /// Removes the whole directory while its lock is held, if nothing is in it that matters to anyone: no event, no session that is open, and
    /// nothing of which the server was not told. Files that were set aside stay. If it is not removed it is to be closed.
    ///
    /// - Returns: Whether it was removed.
    package func removeIfEmpty() -> Bool {
        removeIfEmpty { !$0.isUntold }
    }

    /// The same for a queue beside another one, which tells the server of it.
    package func removeIfEmpty(adoptedBy adopt: (QueueRemains) throws -> Void) rethrows -> Bool {
        try removeIfEmpty { remains in
            var remains = remains
            for index in remains.damaged.indices { remains.damaged[index].name = directory.nameInMain + "/" + remains.damaged[index].name }
            try adopt(remains)
            return true
        }
    }

    /// - Parameter handOver: Returns whether the server will know of what remains.
    private func removeIfEmpty(handingOver handOver: (QueueRemains) throws -> Bool) rethrows -> Bool {
        let found = try? reading { try remains($0) } ?? nil
        // Behind that look, which may have met damage: then it was a new file in which nothing is.
        guard let found, damage.withLock({ $0.pending.isEmpty }) else { return false }
        // Without its mark a damaged file would be salvaged again by the next who finds it.
        let files = directory.filesSetAside
        for file in files { try? directory.markSalvaged(file) }
        guard files.allSatisfy(directory.isSalvaged), try handOver(found) else { return false }
        // This process holds the lock, and its own last commit may have come behind the look.
        let left = try? endConnection { try remains($0) } ?? nil
        guard left == found else { return false }
        directory.removeFiles()
        lock.withLock { $0 = nil }
        return true
    }
}

/// Why a queue cannot be used.
package enum QueueOpenError: Error, Hashable, Sendable {
    /// Another process, or another client in this one, works on it.
    case taken
    case unusable(StorageFailure)
}
