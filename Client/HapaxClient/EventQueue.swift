import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// The client's events on disk, in one SQLite file: what waits, what was refused, and the books about both.
///
/// Every method is one transaction. The books are kept in the same transactions as the rows, so that at any commit
/// `lastSequence + adopted = depth + stored + duplicates + deadLettered + discarded` (I12).
package final class EventQueue: Sendable {
    package let directory: QueueDirectory
    /// Whether it stands in for a main queue that was taken.
    package let isSpool: Bool
    /// Names this queue file; a new file has a new one.
    package let installID: EventID
    var database: DatabaseQueue { current.withLock { $0 } }
    let current: Locked<DatabaseQueue>
    let durability: Durability
    /// What was found damaged since it was opened, the opening included.
    let damages: Locked<[QueueDamage]>
    let damageHandler = Locked<(@Sendable (QueueDamage) -> Void)?>(nil)
    private let lock: Locked<FileLock?>
    let currentBooks: Locked<QueueBooks>
    let quota: QueueQuota
    /// Room for events: what is on disk and what is promised.
    let account: Locked<QuotaAccount>
    let room: QueueRoom
    let ballast: Locked<Ballast>
    let underWay = Locked(RowsUnderWay())

    /// Takes the directory's lock, then opens its queue, which is created if missing.
    ///
    /// - Parameters:
    ///   - newInstallID: Used if the queue is new.
    ///   - createsDirectory: Whether a missing directory is made; if not, it is unusable.
    package init(
        directory: QueueDirectory, durability: Durability, newInstallID: EventID, quota: QueueQuota = .unlimited, isSpool: Bool = false,
        createsDirectory: Bool = true
    ) throws(QueueOpenError) {
        let held: FileLock
        do {
            if createsDirectory {
                try FileManager.default.createDirectory(
                    atPath: directory.path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            }
        } catch {
            throw .unusable(StorageFailure(error))
        }
        do throws(FileLock.Failure) {
            held = try FileLock(path: directory.lockPath)
        } catch {
            switch error {
            case .taken: throw .taken
            case .system(let number): throw .unusable(StorageFailure(errno: number))
            }
        }
        do {
            room = QueueRoom(freeBytes: Self.freeBytes(directory.path))
            var ballast = Ballast(path: directory.ballastPath, bytes: room.ballastBytes)
            var opened: Opened
            do {
                opened = try Self.openOrReplace(directory, durability, newInstallID, room)
            } catch  where error.isDiskFull {
                ballast.release()
                opened = try Self.openOrReplace(directory, durability, newInstallID, room)
            }
            damages = Locked(try Self.salvageLeftovers(directory, &opened))
            self.ballast = Locked(ballast)
            (current, installID, currentBooks) = (Locked(opened.database), opened.installID, Locked(opened.books))
        } catch {
            throw .unusable(StorageFailure(error))
        }
        self.directory = directory
        self.quota = quota
        self.durability = durability
        account = Locked(QuotaAccount(quota: quota, used: currentBooks.withLock { $0.usage }))
        self.isSpool = isSpool
        lock = Locked(held)
    }

    /// What the latest commit left.
    package var books: QueueBooks { currentBooks.withLock { $0 } }

    /// The ids of waiting events that callers chose themselves.
    func callerSuppliedIDs() throws -> Set<EventID> {
        try reading { db in
            Set(try Data.fetchAll(db, sql: "SELECT event_id FROM queue WHERE caller_supplied = 1").compactMap { EventID(bytes: $0) })
        }
    }

    // MARK: - Storing

    /// Appends events in their order; what obeys no limit goes to the dead letters instead. After return all of it is durable.
    ///
    /// - Parameters:
    ///   - dropped: Added to the counts of events refused at intake.
    ///   - now: The clock in Unix milliseconds, for events that are too old.
    /// - Returns: The ids, of those that callers chose, whose events the quota removed.
    @discardableResult
    func append(_ events: some Collection<PreparedEvent>, dropped: [String: Int64] = [:], now: Int64 = 0) throws -> [EventID] {
        let reserved = events.reduce(into: QueueUsage()) { $0 = $0 + $1.reserved }
        return try transaction(growing: true, releasing: reserved) { db, books in
            let insert = try RowInsert(db)
            for event in events {
                books.lastSequence = max(books.lastSequence, event.sequence)
                if let problem = event.problem {
                    try Self.bury(
                        db, &books, id: event.id, install: nil, origin: nil, reason: problem.reason.rawValue, detail: problem.detail,
                        payload: Data(event.bytes), time: event.time)
                    books.deadLettered += 1
                    continue
                }
                if try insert.insert(event) {
                    books.depth += 1
                    books.bytes += Int64(event.bytes.count)
                } else {
                    // An id that this library made and the caller gave back while it was queued: the first stays.
                    books.duplicates += 1
                }
            }
            for (reason, count) in dropped { try Self.count(db, &books, reason, count) }
            return try discard(db, &books, now: now)
        }
    }

    // MARK: - Books

    /// One transaction, whose changes to the books are seen by others only after its commit.
    ///
    /// - Parameters:
    ///   - growing: Whether it stores events: then a full disk refuses it, while others get the ballast's room.
    ///   - released: Reservations of the events that it stores.
    func transaction<Value>(
        growing: Bool = false, releasing released: QueueUsage = QueueUsage(), _ body: (Database, inout QueueBooks) throws -> Value
    ) throws -> Value {
        let database = database
        do {
            return try transaction(on: database, growing: growing, releasing: released, body)
        } catch  where error.isDamage {
            try takeOver(from: database)
            // What stores goes on; others decided by rows that may be gone.
            guard growing else { throw error }
            return try transaction(on: self.database, growing: growing, releasing: released, body)
        }
    }

    private func transaction<Value>(
        on database: DatabaseQueue, growing: Bool, releasing released: QueueUsage, _ body: (Database, inout QueueBooks) throws -> Value
    ) throws -> Value {
        try database.writeWithoutTransaction { db in
            if growing {
                try requireBallast()
                return try attempt(db, releasing: released, body)
            }
            defer { giveBackRoom(db) }
            do {
                return try attempt(db, releasing: released, body)
            } catch  where error.isDiskFull {
                makeRoom(db)
                return try attempt(db, releasing: released, body)
            }
        }
    }

    private func attempt<Value>(
        _ db: Database, releasing released: QueueUsage, _ body: (Database, inout QueueBooks) throws -> Value
    ) throws -> Value {
        let before = currentBooks.withLock { $0 }
        var books = before
        var value: Value?
        try db.inTransaction(.immediate) {
            value = try body(db, &books)
            if books != before { try Self.write(books, db) }
            return .commit
        }
        currentBooks.withLock { $0 = books }
        account.withLock { $0.committed(books.usage - before.usage, releasing: released) }
        guard let value else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
        return value
    }

    static func write(_ books: QueueBooks, _ db: Database) throws {
        try db.cachedStatement(
            sql: """
                UPDATE books SET last_sequence = ?, adopted = ?, depth = ?, bytes = ?, stored = ?, duplicates = ?, dead_lettered = ?,
                    discarded = ?, letters = ?, letter_bytes = ?
                """
        ).execute(
            arguments: [
                books.lastSequence, books.adopted, books.depth, books.bytes, books.stored, books.duplicates, books.deadLettered,
                books.discarded, books.letters, books.letterBytes,
            ])
    }

    static func books(_ db: Database) throws -> QueueBooks {
        var books = QueueBooks()
        if let row = try Row.fetchOne(db, sql: "SELECT * FROM books") {
            books.lastSequence = try row.value("last_sequence")
            books.adopted = try row.value("adopted")
            books.depth = try row.value("depth")
            books.bytes = try row.value("bytes")
            books.stored = try row.value("stored")
            books.duplicates = try row.value("duplicates")
            books.deadLettered = try row.value("dead_lettered")
            // A reader can meet a file from before these were kept.
            books.discarded = try row.optional("discarded") ?? 0
            books.letters = try row.optional("letters") ?? 0
            books.letterBytes = try row.optional("letter_bytes") ?? 0
        }
        for row in try Row.fetchAll(db, sql: "SELECT reason, count FROM dropped") {
            books.dropped[try row.value("reason")] = try row.value("count")
        }
        return books
    }

    static func installID(_ db: Database) throws -> EventID {
        guard let id = try Data.fetchOne(db, sql: "SELECT install_id FROM books").flatMap({ EventID(bytes: $0) }) else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT, message: "no install id")
        }
        return id
    }

    // MARK: - End

    /// Closes the file and gives up the lock. What comes after fails.
    package func close() {
        try? database.close()
        lock.withLock { $0 = nil }
    }

    /// Removes the whole directory while its lock is held, if nothing is in it that matters to anyone.
    ///
    /// - Returns: Whether it was removed.
    package func removeIfEmpty() -> Bool {
        let holdsNothing = try? reading { db in
            try Int.fetchOne(db, sql: "SELECT EXISTS (SELECT 1 FROM queue) OR EXISTS (SELECT 1 FROM dead_letters)") == 0
        }
        guard holdsNothing == true else { return false }
        // Nobody else can have added anything since: this process holds the lock.
        try? database.close()
        directory.removeFiles()
        lock.withLock { $0 = nil }
        return true
    }
}

/// What is counted about one queue.
package struct QueueBooks: Hashable, Sendable {
    /// The highest sequence given; sequences begin at 1 and leave no gap.
    package var lastSequence: Int64 = 0
    /// Events that came with sequences of another install, or with none.
    package var adopted: Int64 = 0
    package var depth: Int64 = 0
    /// Of the waiting events, as they will travel.
    package var bytes: Int64 = 0
    package var stored: Int64 = 0
    package var duplicates: Int64 = 0
    package var deadLettered: Int64 = 0
    /// Removed unsent after they had been stored.
    package var discarded: Int64 = 0
    /// Dead letters that are in the file now, and their bytes.
    package var letters: Int64 = 0
    package var letterBytes: Int64 = 0
    /// Refused at intake, which gives no sequence, or discarded, by reason; dead letters that the quota removed are here as well.
    package var dropped: [String: Int64] = [:]

    /// I12. Added up without trapping, since a damaged file can hold any number.
    var isBalanced: Bool {
        lastSequence &+ adopted == depth &+ stored &+ duplicates &+ deadLettered &+ discarded
    }

    var usage: QueueUsage { QueueUsage(events: depth + letters, bytes: bytes + letterBytes) }

    package init() {}
}

/// An event as the queue takes it.
struct PreparedEvent: Sendable {
    var id: EventID
    var sequence: Int64
    var time: Int64
    var bytes: [UInt8]
    var callerSupplied: Bool
    /// Why it can only be a dead letter.
    var problem: EventProblem?
    /// Room that was promised to it at intake.
    var reserved = QueueUsage()
}

/// Why a queue cannot be used.
package enum QueueOpenError: Error, Hashable, Sendable {
    /// Another process, or another client in this one, works on it.
    case taken
    case unusable(StorageFailure)
}

extension StorageFailure {
    init(errno number: Int32) {
        self.init(code: 0, description: String(cString: strerror(number)))
    }

    /// Only codes and their fixed texts: messages of SQLite can quote values.
    init(_ error: any Error) {
        if error is NewerSchema {
            self.init(code: 0, description: "the queue was made by a newer version")
        } else if let error = (error as? SalvageFailure)?.cause as? DatabaseError ?? error as? DatabaseError {
            let text = "\(error.extendedResultCode)"
            self.init(code: error.extendedResultCode.rawValue, description: text)
        } else if let error = error as? CocoaError {
            self.init(code: 0, description: "file error \(error.code.rawValue)")
        } else {
            self.init(code: 0, description: "\(type(of: error))")
        }
    }
}
