import Dispatch
import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// Rows taken over in one transaction: events are stored in between.
    private static let rowsPerTransaction = 200

    /// Takes over what can be read of files that were set aside, under the same ids.
    ///
    /// Returns when that is done or has failed, as on a full disk; then the next call tries again. Done twice, after a crash, it is the same
    /// as once: what is still in the queue is left as it is, and what has been delivered since is a duplicate for the server.
    func salvage() async {
        let task: Task<Void, Never>? = damage.withLock { record in
            guard !record.pending.isEmpty else { return nil }
            if let task = record.salvaging { return task }
            let task = Task { [self] in
                // Not on the pool of the language: this is long, and waits for the disk.
                await withCheckedContinuation { continuation in
                    DispatchQueue.global().async {
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

    private func salvagePending() {
        var failure: SalvageFailure?
        var tried: Set<String> = []
        while let file = damage.withLock({ $0.pending.first { !tried.contains($0.name) } }) {
            tried.insert(file.name)
            do {
                if file.isUnread { throw DatabaseError(resultCode: .SQLITE_CANTOPEN) }
                if !file.isSalvaged { try salvage(file) }
                markSalvaged([file])
                let (damage, report) = try found(file)
                self.damage.withLock { record in
                    record.pending.removeAll { $0.name == file.name }
                    record.latest = damage
                    if let report { record.reports.insert(report) }
                }
                if let report { self.damage.withLock { $0.observer }.salvaged(damage, report) }
            } catch {
                failure = failure ?? error as? SalvageFailure ?? SalvageFailure(cause: error)
                // The next one may be readable; a full disk takes nothing from any.
                if error.isDiskFull { break }
            }
        }
        damage.withLock { record in
            record.salvaging = nil
            record.failure = failure
        }
    }

    private func salvage(_ file: DamagedFile) throws {
        var salvager = Salvager(queue: self, file: file)
        var (depth, letters) = (file.depth, file.letters)
        if var source = try QueueSalvage(path: directory.path + "/" + file.name, .everything) {
            defer { source.close() }
            salvager.owner = file.isOwn ? nil : source.installID.map(\.bytes) ?? []
            // Books that are older than commits that cannot be read do not tell how much is lost.
            let isOld = QueueLog(path: directory.path + "/" + file.name + "-wal")?.hidesCommits == true
            if !isOld { (depth, letters) = (depth ?? source.depth, letters ?? source.letters) }
            try source.rows(of: "queue") { try salvager.add($0) }
            try salvager.takeRows()
            try source.rows(of: "dead_letters") { try salvager.addLetter($0) }
            try salvager.takeLetters()
            // What could be read has been taken, once; the file stays to be read again.
            if let trouble = source.trouble { throw SalvageFailure(cause: trouble) }
        }
        try transaction { db, books in
            try db.execute(
                sql: "UPDATE damaged_files SET is_salvaged = 1, depth = ?, letters = ? WHERE name = ? AND is_salvaged = 0",
                arguments: [depth, letters, file.name])
            try db.execute(sql: "DELETE FROM salvaged_rows WHERE file = ?", arguments: [file.number])
            // What a running client lost is in these books already; else they learn of it now.
            guard !file.isOwn, let damage = try Self.found(file, db)?.damage else { return }
            if let lost = damage.lost, lost > 0 {
                books.adopted += Int64(lost)
                books.discarded += Int64(lost)
                try Self.count(db, &books, Self.damagedEvent, Int64(lost))
            }
            if let lost = damage.lostDeadLetters, lost > 0 { try Self.count(db, &books, Self.damagedLetter, Int64(lost)) }
        }
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

    private func found(_ file: DamagedFile) throws -> (damage: QueueDamage, report: EventID?) {
        try reading { try Self.found(file, $0) } ?? (QueueDamage(file: file.name), nil)
    }

    /// What came of a file, and the id of the event that is to tell of it.
    private static func found(_ file: DamagedFile, _ db: Database) throws -> (damage: QueueDamage, report: EventID?)? {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM damaged_files WHERE name = ?", arguments: [file.name]) else { return nil }
        var damage = QueueDamage(file: file.name)
        damage.salvaged = try row.value("salvaged")
        damage.salvagedDeadLetters = try row.value("salvaged_letters")
        let buried: Int = try row.value("buried")
        damage.lost = (try row.optional("depth") as Int64?).map { max(Int(clamping: $0) - damage.salvaged - buried, 0) }
        damage.lostDeadLetters = (try row.optional("letters") as Int64?).map { max(Int(clamping: $0) - damage.salvagedDeadLetters, 0) }
        damage.isSalvaged = try row.value("is_salvaged")
        return (damage, (try row.optional("report_id") as Data?).flatMap { EventID(bytes: $0) })
    }

    /// The event that tells of a damaged file is being stored: it is not made again.
    static func reported(_ id: EventID, _ db: Database) throws {
        try db.execute(sql: "UPDATE damaged_files SET report_id = NULL WHERE report_id = ?", arguments: [Data(id.bytes)])
    }

    /// One file's rows on their way into the queue.
    private struct Salvager {
        let queue: EventQueue
        let file: DamagedFile
        /// Whose the file's own rows are; nil for this queue's, empty for nobody's.
        var owner: [UInt8]?
        private var rows: [Row] = []
        private var bytes = 0
        private var letters: [DeadLetter] = []

        init(queue: EventQueue, file: DamagedFile) {
            self.queue = queue
            self.file = file
        }

        mutating func add(_ row: Row) throws {
            rows.append(row.copy())
            bytes += (try? row.optional("payload") as Data?)?.count ?? 0
            if rows.count == EventQueue.rowsPerTransaction || bytes >= queue.room.groupBytes { try takeRows() }
        }

        mutating func addLetter(_ row: Row) throws {
            guard let letter = try? EventQueue.deadLetter(row) else { return }
            letters.append(letter)
            bytes += letter.event.count
            if letters.count == EventQueue.rowsPerTransaction || bytes >= queue.room.groupBytes { try takeLetters() }
        }

        /// Whether a row has its turn, which it has once, also when the salvage has to begin anew: it may have been delivered since.
        private func isNew(_ number: Int64, isLetter: Bool, _ db: Database) throws -> Bool {
            // A purge may have ended the salvage meanwhile.
            try db.cachedStatement(
                sql: """
                    INSERT INTO salvaged_rows (file, is_letter, row) SELECT ?, ?, ? FROM damaged_files WHERE name = ? AND is_salvaged = 0
                    ON CONFLICT DO NOTHING
                    """
            ).execute(arguments: [file.number, isLetter, number, file.name])
            return db.changesCount == 1
        }

        mutating func takeRows() throws {
            let all = rows
            (rows, bytes) = ([], 0)
            try take(all[...])
        }

        /// On a disk that is nearly full a few find room where many do not, and make more once they are delivered.
        private func take(_ rows: ArraySlice<Row>) throws {
            do {
                try takeTogether(rows)
            } catch  where error.isDiskFull && rows.count > 1 {
                let middle = rows.startIndex + rows.count / 2
                try take(rows[..<middle])
                try take(rows[middle...])
            }
        }

        private func takeTogether(_ rows: ArraySlice<Row>) throws {
            var taken: [EventID] = []
            let isOwn = file.isOwn
            try queue.transaction(growing: true) { db, books in
                taken = []
                var (buried, known) = (0, 0)
                let insert = try RowInsert(db)
                for row in rows {
                    if let number: Int64 = row[0], try !isNew(number, isLetter: false, db) { continue }
                    guard let event = try? WaitingRow(row) else {
                        guard try bury(row, db, &books) else { continue }
                        buried += 1
                        found(&books, waiting: false)
                        continue
                    }
                    let install = event.install.map { [UInt8]($0) } ?? owner
                    let time = (try? row.optional("time") as Int64?) ?? 0
                    let number: Int64? = row[0]
                    guard
                        try insert.insert(id: event.id, payload: event.payload, time: time, row: number, install: install)
                            || isMisnumbered(event.id, db)
                                && insert.insert(id: event.id, payload: event.payload, time: time, install: install)
                    else {
                        // It waits already: from a file that was set aside before, or tracked again by its caller.
                        known += 1
                        if isOwn { (books.discarded, books.duplicates) = (books.discarded - 1, books.duplicates + 1) }
                        continue
                    }
                    found(&books, waiting: true)
                    books.bytes += Int64(event.payload.count)
                    taken.append(event.id)
                }
                let count = Int64(taken.count + known)
                try db.execute(
                    sql: "UPDATE damaged_files SET salvaged = salvaged + ?, buried = buried + ? WHERE name = ?",
                    arguments: [count, buried, file.name])
                if isOwn, count > 0 { try EventQueue.count(db, &books, EventQueue.damagedEvent, -count) }
            }
            let observer = queue.damage.withLock { $0.observer }
            observer.took(taken)
        }

        /// Its number is taken, but not by the same event: a number can be damaged as well.
        private func isMisnumbered(_ id: EventID, _ db: Database) throws -> Bool {
            try Int.fetchOne(db, sql: "SELECT EXISTS (SELECT 1 FROM queue WHERE event_id = ?)", arguments: [Data(id.bytes)]) == 0
        }

        /// In this queue's own books the event is there already, as discarded.
        private func found(_ books: inout QueueBooks, waiting: Bool) {
            if file.isOwn { books.discarded -= 1 } else { books.adopted += 1 }
            if waiting { books.depth += 1 } else { books.deadLettered += 1 }
        }

        /// A row that can be read and is not what was stored.
        private func bury(_ row: Row, _ db: Database, _ books: inout QueueBooks) throws -> Bool {
            guard let payload = try? row.optional("payload") as Data?, let number: Int64 = row[0] else { return false }
            let id = (try? row.optional("event_id") as Data?).flatMap { EventID(bytes: $0) }
            // Known by the file and its row, so that it is found again after a crash.
            let isNew = try EventQueue.bury(
                db, &books, id: id, install: Data(owner ?? queue.installID.bytes), origin: madeOrigin(-number),
                reason: DamagedRows.reason, detail: DamagedRows.detail, payload: payload,
                time: (try? row.optional("time") as Int64?) ?? 0)
            if isNew, file.isOwn { try EventQueue.count(db, &books, EventQueue.damagedEvent, -1) }
            return isNew
        }

        /// Under which number a row is known that has none of its install's: by the file it came from, of which each queue has its own.
        private func madeOrigin(_ number: Int64) -> Int64 {
            Int64(bitPattern: EventID.derived(name: "\(queue.installID) \(file.name)", key: "\(number)").low)
        }

        mutating func takeLetters() throws {
            try queue.transaction(growing: true) { db, books in
                var taken = 0
                for letter in letters where try isNew(letter.number, isLetter: true, db) && take(letter, db, &books) { taken += 1 }
                guard taken > 0 else { return }
                try db.execute(
                    sql: "UPDATE damaged_files SET salvaged_letters = salvaged_letters + ? WHERE name = ?", arguments: [taken, file.name])
                if file.isOwn {
                    try EventQueue.count(db, &books, EventQueue.damagedLetter, -Int64(taken))
                } else {
                    books.adopted += Int64(taken)
                    books.deadLettered += Int64(taken)
                }
            }
            (letters, bytes) = ([], 0)
        }

        private func take(_ letter: DeadLetter, _ db: Database, _ books: inout QueueBooks) throws -> Bool {
            let install: Data?
            var origin = letter.originNumber
            // In a queue of the same install it keeps its number; elsewhere the number is its origin.
            let isOurs = letter.origin == .own && file.isOwn
            switch letter.origin {
            case .own:
                install = owner.map { Data($0) }
                if owner?.isEmpty == false { origin = letter.number }
            case .nobody: install = Data()
            case .install(let id): install = Data(id.bytes)
            }
            func bury(_ number: Int64?) throws -> Bool {
                try EventQueue.bury(
                    db, &books, number: number, id: letter.eventID, install: install,
                    origin: isOurs ? nil : origin ?? madeOrigin(letter.number), reason: letter.reason, detail: letter.detail,
                    payload: Data(letter.event), time: letter.time)
            }
            // Its number can be another's by now, if somebody deleted files that were set aside.
            guard isOurs else { return try bury(nil) }
            if try bury(letter.number) { return true }
            let isThere = try Int.fetchOne(
                db, sql: "SELECT EXISTS (SELECT 1 FROM dead_letters WHERE row = ? AND reason = ? AND payload = ?)",
                arguments: [letter.number, letter.reason, Data(letter.event)])
            return try isThere == 0 && bury(nil)
        }
    }
}
