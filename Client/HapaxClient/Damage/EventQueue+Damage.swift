import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

extension EventQueue {
    /// The latest damage since the queue was opened.
    var latestDamage: QueueDamage? { damage.withLock { $0.latest } }

    /// How many files that were set aside may still hold events.
    var unsalvagedFiles: Int { damage.withLock { $0.pending.count } }

    /// What somebody has deleted of them, dead letters included; nil if nobody knows how many there were.
    var lostAside: Int? {
        damage.withLock { $0.pending }.filter { !$0.isSalvaged && FileIdentity(path: directory.path + "/" + $0.name) == nil }.reduce(0) {
            guard let sum = $0, let events = $1.remaining, let letters = $1.damage.lostDeadLetters else { return nil }
            return sum + events + letters
        }
    }

    /// Why some of them could not be salvaged so far.
    var salvageFailure: SalvageFailure? { damage.withLock { $0.pending.isEmpty ? nil : $0.failure } }

    /// Whether a salvage could get on: it has not been tried, or found no room, which deliveries make. A disk that fails is left in peace as
    /// long as other events wait.
    var isSalvageDue: Bool { salvageFailure.map { $0.cause.isDiskFull } ?? true }

    func observeDamage(_ observer: DamageObserver) {
        damage.withLock { $0.observer = observer }
    }

    /// After a failure: whether it was this file's damage, and the queue goes on in another file now.
    func takesOver(from database: DatabaseQueue, after error: any Error) throws -> Bool {
        if error.isDamage { return try takeOver(from: database) }
        // Used while it was being set aside, or nothing has taken over yet.
        guard error.isUseOfAClosedFile else { return false }
        if damage.withLock({ $0.unfinished != nil || $0.isClosed }) { return try takeOver(from: database) }
        return connection.withLock { $0 != nil && $0 !== database }
    }

    /// Sets the damaged file aside and goes on in a new one, which is the same install: its books are in memory and whole. What can be read
    /// of the old file follows later, see ``salvage()``.
    ///
    /// - Returns: false if the queue has been closed.
    private func takeOver(from damaged: DatabaseQueue) throws -> Bool {
        try connection.withLock { current in
            guard let database = current else { return false }
            // Somebody else met the damage first.
            guard database === damaged else { return true }
            current = try replace(damaged)
            // Before anybody can store in it.
            tell(.forgotten)
            return true
        }
    }

    private func replace(_ damaged: DatabaseQueue) throws -> DatabaseQueue {
        // Somebody may have put another in its place, which may be a later client's.
        if damage.withLock({ $0.isClosed || $0.unfinished != nil }) { try requireDirectory() } else { try requireFile() }
        let file: DamagedFile
        if let unfinished = damage.withLock({ $0.unfinished }) {
            file = unfinished
        } else {
            // Before it is renamed: closing looks for the log under the name that the file had.
            try? damaged.close()
            damage.withLock { $0.isClosed = true }
            file = DamagedFile(
                name: try directory.setAside(above: damage.withLock { $0.highest }), isOwn: true, depth: books.depth,
                letters: books.letters)
            damage.withLock { record in
                record.isClosed = false
                record.highest = file.number
                record.unfinished = file
                record.latest = QueueDamage(file: file.name)
            }
        }
        let (database, books) = try begin(after: file)
        self.file.withLock { $0 = FileIdentity(path: directory.databasePath) }
        let before = currentBooks.withLock { current in
            defer { current = books }
            return current
        }
        oldest.withLock { $0 = nil }
        account.withLock { $0.committed(books.usage - before.usage, releasing: QueueUsage()) }
        damage.withLock { record in
            record.unfinished = nil
            record.pending.append(file)
        }
        return database
    }

    /// A new file with this queue's books, in which everything that waited is discarded until it is salvaged.
    private func begin(after file: DamagedFile) throws -> (DatabaseQueue, QueueBooks) {
        var ids = UUIDv7Generator()
        // A name of its own until it has the books: after a crash in between, no sequence may be given again (I7).
        let name = ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
        let database: DatabaseQueue
        do {
            database = try Self.open(directory, durability, name, room).database
        } catch  where error.isDiskFull {
            ballast.withLock { $0.release() }
            database = try Self.open(directory, durability, name, room).database
        }
        var books = books
        try database.write { db in
            for (key, count) in books.drops.counts { try Self.save(count, for: key, db, &books) }
            books.discarded += books.depth
            (books.depth, books.bytes, books.letters, books.letterBytes) = (0, 0, 0, 0)
            try db.execute(sql: "UPDATE books SET install_id = ?", arguments: [Data(installID.bytes)])
            try books.write(db)
            for var older in damage.withLock({ $0.pending }) where !older.isUnread {
                // Begun anew: what the file at hand had taken over from it, and lost, can be found there once more. What was delivered is so
                // twice, which the server knows.
                if !older.isSalvaged { (older.salvaged, older.salvagedLetters, older.buried) = (0, 0, 0) }
                try Self.remember(older, db)
            }
            try Self.remember(file, db)
            // Told of by events that are still to be stored, or will be made at the next start.
            for told in damage.withLock({ $0.untold.values }) { try told.insertIfUnknown(db) }
            let state = damage.withLock { $0.observer }.state()
            if let identity = state.identity { try Self.save(identity, db) }
            if let session = state.session { try Self.save(session, db) }
            if state.identity == nil {
                let source = try? QueueSalvage.state(of: file.name, in: directory)
                defer { source?.close() }
                if let source { try? Self.takeState(source, db) }
                damage.withLock { $0.hasLostIdentity = source?.identity == nil }
            }
        }
        return (database, books)
    }

    /// Reasons in `dropped` for what cannot be read any more.
    static let damagedEvent = "damaged"
    static let damagedLetter = "damaged_dead_letter"

    /// So many numbers of rows are left out.
    static let rowsPerDamagedFile: Int64 = 1 << 40

    static func remember(_ file: DamagedFile, _ db: Database) throws {
        try file.insert(db)
        try leaveNumbers(to: file, db)
    }

    /// Row numbers begin so far behind those of the damaged file, that none can be mistaken for another (D3) and what is salvaged under
    /// its old number comes first (R9). Dead letters, whose numbers people read, take smaller steps.
    static func leaveNumbers(to file: DamagedFile, _ db: Database) throws {
        for (table, step) in [("queue", rowsPerDamagedFile), ("dead_letters", 1_000_000)] {
            let known = try Int64.fetchOne(db, sql: "SELECT seq FROM sqlite_sequence WHERE name = ?", arguments: [table]) ?? 0
            try db.execute(sql: "DELETE FROM sqlite_sequence WHERE name = ?", arguments: [table])
            let (first, overflow) = step.multipliedReportingOverflow(by: file.number)
            try db.execute(
                sql: "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", arguments: [table, overflow ? known : max(known, first)])
        }
    }
}
