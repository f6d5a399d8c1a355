import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// Takes over what can be read of files that were set aside, under the same ids.
    ///
    /// Returns when that is done or has failed, as on a full disk; then the next call tries again. Done twice, after a crash, it is the same
    /// as once: what is still in the queue is left as it is, and what has been delivered since is a duplicate for the server.
    func salvage() async {
        let task: Task<Void, Never>? = damage.withLock { record in
            guard !record.pending.isEmpty else { return nil }
            if let task = record.salvaging { return task }
            let task = Task { [self] in
                await withCheckedContinuation { continuation in
                    BlockingExecutor.run("hapax.salvage") {
                        self.salvagePending()
                        continuation.resume()
                    }
                }
            }
            record.salvaging = task
            return task
        }
        await task?.value
    }

    /// Waiting events that salvages made dead letters since the last call.
    func takeUnreportedLetters() -> Int {
        damage.withLock { record in
            defer { record.unreportedLetters = 0 }
            return record.unreportedLetters
        }
    }

    /// Of a queue beside this one.
    func addUnreportedLetters(_ count: Int) {
        damage.withLock { $0.unreportedLetters += count }
    }

    /// The event that tells of it is told apart when it is stored: then that is not to be done again.
    func tellOfSalvaged(_ file: DamagedFile) {
        guard let report = file.reportID else { return }
        let observer = damage.withLock { record in
            record.untold[report] = file
            return record.observer
        }
        observer.salvaged(file.damage, report)
    }

    /// How often a salvage begins anew before that is left to the next call: a disk may spoil whatever is written.
    private static let maximumSalvages = 4

    private func salvagePending() {
        var failure: SalvageFailure?
        var tried: Set<String> = []
        var attemptsLeft = Self.maximumSalvages
        // The next one may be readable; a full disk takes nothing from any, and one that spoils what it takes sets aside another.
        var isOver = false
        // In one with the end: for what is set aside behind it, the next call begins anew.
        func next() -> DamagedFile? {
            damage.withLock { record in
                let file = isOver ? nil : record.pending.first { !tried.contains($0.name) }
                if file == nil { (record.salvaging, record.failure) = (nil, failure) }
                return file
            }
        }
        while var file = next() {
            tried.insert(file.name)
            do {
                if file.isUnread { file = try lookInto(file) }
                // A purge has forgotten it.
                if file.isUnread { continue }
                let salvaged = file.isSalvaged ? file : try salvage(file)
                markSalvaged([file])
                damage.withLock { record in
                    record.pending.removeAll { $0.name == file.name }
                    record.latest = salvaged.damage
                }
                tellOfSalvaged(salvaged)
            } catch  where error.isDamagedAgain && attemptsLeft > 1 {
                attemptsLeft -= 1
                tried.remove(file.name)
            } catch {
                failure = error as? SalvageFailure ?? SalvageFailure(cause: error)
                isOver = error.isDiskFull || error.isDamagedAgain
            }
        }
    }

    /// One that the disk did not give when the queue opened.
    ///
    /// - Returns: What the queue knows of it now.
    private func lookInto(_ file: DamagedFile) throws -> DamagedFile {
        let source = try QueueSalvage.state(of: file.name, in: directory)
        defer { source?.close() }
        return try Salvager(queue: self, file: file).transaction { db, books in
            guard damage.withLock({ $0.pending.contains { $0.name == file.name } }) else { return [] }
            // A later file may have said of it that it was salvaged into that.
            if try DamagedFile(named: file.name, db) == nil {
                var seen = file
                seen.isUnread = false
                let before = try Self.identity(db)
                try Self.takeUp(seen, source, db, &books)
                let identity = try Self.identity(db)
                // Inside the transaction, like a change that the user makes: of the two the later one holds, in memory and on disk.
                if identity != before { damage.withLock { $0.observer }.identified(identity) }
            }
            return []
        }
    }

    /// - Returns: What came of it.
    /// - Throws: ``DamagedAgain`` if it has to begin anew.
    private func salvage(_ file: DamagedFile) throws -> DamagedFile {
        var salvager = Salvager(queue: self, file: file)
        var (depth, letters) = (file.depth, file.letters)
        // Of a running client's file the books in memory know.
        var drops: DropCounts? = DropCounts()
        var untold: [DamagedFile] = []
        if var source = try QueueSalvage(path: directory.path + "/" + file.name, .everything) {
            defer { source.close() }
            salvager.owner = file.isOwn ? nil : source.installID.map(\.bytes) ?? []
            salvager.head = source.head ?? 1
            (depth, letters) = (depth ?? source.depth, letters ?? source.letters)
            if !file.isOwn { drops = source.drops }
            untold = source.untold
            try source.rows(of: "queue") { try salvager.add($0) }
            try salvager.takeRows()
            try source.rows(of: "dead_letters") { try salvager.addLetter($0) }
            try salvager.takeLetters()
            // What could be read has been taken, once; the file stays to be read again.
            if let trouble = source.trouble { throw SalvageFailure(cause: trouble) }
        }
        var told: [DamagedFile] = []
        let salvaged = try salvager.transaction { db, books -> [EventID] in
            try db.execute(
                sql: "UPDATE damaged_files SET is_salvaged = 1, depth = ?, letters = ? WHERE name = ? AND is_salvaged = 0",
                arguments: [depth, letters, file.name])
            // Or a purge has ended it, and has counted.
            let isDone = db.changesCount == 1
            try db.execute(sql: "DELETE FROM salvaged_rows WHERE file = ?", arguments: [file.number])
            // What it was itself still to tell of others, which were salvaged into it.
            told = try untold.filter { try DamagedFile(named: $0.name, db) == nil }
            for older in told { try older.insert(db) }
            guard isDone, let damage = try DamagedFile(named: file.name, db)?.damage else { return [] }
            // At the opening the disk may have failed.
            if let drops { try Self.adopt(drops, db, &books) }
            if let lost = damage.lost { try Self.countMissing(Int64(lost), of: file, as: Self.damagedEvent, db, &books) }
            if let lost = damage.lostDeadLetters, lost > 0 { try Self.count(db, &books, Self.damagedLetter, Int64(lost)) }
            // With them the file may have lost counts of events that were gone already, of which the server was not told.
            if drops == nil { try db.execute(sql: "UPDATE damaged_files SET depth = NULL WHERE name = ?", arguments: [file.name]) }
            return []
        }
        for older in told { tellOfSalvaged(older) }
        return salvaged
    }

    /// Events of a file that will not be taken over.
    static func countMissing(
        _ count: Int64, of file: DamagedFile, as reason: String, _ db: Database, _ books: inout QueueBooks
    ) throws {
        guard count > 0 else { return }
        try Self.count(db, &books, reason, count)
        // Those of a file that a running client set aside are discarded in its books already.
        guard !file.isOwn else { return }
        books.adopted += count
        books.discarded += count
    }

    /// Outside of the database, which may be damaged in its turn. If it fails, as on a full disk, the next opening tries again.
    func markSalvaged(_ files: [DamagedFile]) {
        do {
            // The mark must not survive a power cut that takes back what it says.
            try Self.work(on: database) { _ = try $0.checkpoint(.passive) }
            for file in files { try directory.markSalvaged(file.name) }
        } catch {
            return
        }
    }

    /// The event that tells of a damaged file is being stored: it is not made again.
    static func reported(_ id: EventID, _ db: Database) throws {
        try db.execute(sql: "UPDATE damaged_files SET report_id = NULL WHERE report_id = ?", arguments: [Data(id.bytes)])
    }
}
