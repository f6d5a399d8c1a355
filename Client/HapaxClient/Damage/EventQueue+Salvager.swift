import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// One file's rows on their way into the queue.
    struct Salvager {
        /// Rows taken over in one transaction: events are stored in between.
        private static let rowsPerTransaction = 200

        let queue: EventQueue
        let file: DamagedFile
        /// Whose the file's own rows are; nil for this queue's, empty for nobody's.
        var owner: [UInt8]?
        /// Rows before it did not wait any more, and stand on a page that the disk has not written since. They cost nothing to send again, and
        /// are not what the file lost and had.
        var head: Int64 = 1
        /// With the event, if the row is what was stored.
        private var rows: [(row: Row, event: WaitingRow?)] = []
        private var bytes = 0
        private var letters: [DeadLetter] = []
        /// The highest number of a file that was set aside when it began.
        private let generation: Int64

        init(queue: EventQueue, file: DamagedFile) {
            self.queue = queue
            self.file = file
            generation = queue.damage.withLock { $0.highest }
        }

        /// One transaction, in the file in which the salvage began and no other: what was taken over before is there.
        ///
        /// - Returns: What is known of the damaged file behind it.
        /// - Throws: ``DamagedAgain``.
        @discardableResult
        func transaction(
            growing: Bool = false, committed: ([EventID]) -> Void = { _ in },
            _ body: (Database, inout QueueBooks) throws -> [EventID]
        ) throws -> DamagedFile {
            func requireFile() throws {
                guard queue.damage.withLock({ $0.highest }) == generation else { throw DamagedAgain() }
            }
            do {
                return try queue.transaction(
                    growing: growing,
                    committed: { taken, known in
                        // Its losses are counted, and must not be again if what follows fails.
                        queue.damage.withLock { $0.update(known) }
                        committed(taken)
                    },
                    { db, books in
                        try requireFile()
                        return (try body(db, &books), try DamagedFile(named: file.name, db) ?? file)
                    }
                ).1
            } catch {
                try requireFile()
                throw error
            }
        }

        /// - Returns: Whether the row is what was stored.
        mutating func add(_ row: Row) throws -> Bool {
            let event = try? WaitingRow(row)
            rows.append((row.copy(), event))
            bytes += (try? row.optional("payload") as Data?)?.count ?? 0
            if rows.count == Self.rowsPerTransaction || bytes >= queue.room.groupBytes { try takeRows() }
            return event != nil
        }

        /// - Returns: Whether the row can be what was stored.
        mutating func addLetter(_ row: Row) throws -> Bool {
            guard let letter = try? EventQueue.deadLetter(row) else { return false }
            letters.append(letter)
            bytes += letter.event.count
            if letters.count == Self.rowsPerTransaction || bytes >= queue.room.groupBytes { try takeLetters() }
            return true
        }

        /// Whether a row has its turn, which it has once, also when the salvage has to begin anew: it may have been delivered since.
        ///
        /// - Parameter checkSum: Beside the number, which can be another row's if it changed on the disk.
        private func isNew(_ number: Int64, _ checkSum: Int64, isLetter: Bool, _ db: Database) throws -> Bool {
            // A purge may have ended the salvage meanwhile.
            try db.cachedStatement(
                sql: """
                    INSERT INTO salvaged_rows (file, is_letter, row, check_sum)
                    SELECT ?, ?, ?, ? FROM damaged_files WHERE name = ? AND is_salvaged = 0
                    ON CONFLICT DO NOTHING
                    """
            ).execute(arguments: [file.number, isLetter, number, checkSum, file.name])
            return db.changesCount == 1
        }

        mutating func takeRows() throws {
            let all = rows
            (rows, bytes) = ([], 0)
            try take(all[...])
        }

        /// On a disk that is nearly full a few find room where many do not, and make more once they are delivered.
        private func take(_ rows: ArraySlice<(row: Row, event: WaitingRow?)>) throws {
            do {
                try takeTogether(rows)
            } catch  where error.isDiskFull && rows.count > 1 {
                let middle = rows.startIndex + rows.count / 2
                try take(rows[..<middle])
                try take(rows[middle...])
            }
        }

        private func takeTogether(_ rows: ArraySlice<(row: Row, event: WaitingRow?)>) throws {
            var letters: [Settlement] = []
            var buried = 0
            func committed(_ taken: [EventID]) {
                queue.damage.withLock { $0.unreportedLetters += buried }
                queue.tell(.added(taken))
            }
            try transaction(growing: true, committed: committed) { db, books in
                var taken: [EventID] = []
                letters = []
                var discarded = try DamagedFile(named: file.name, db)?.discarded ?? 0
                // Whether it is in this queue's books already, as discarded.
                func isKnown(_ waited: Bool) -> Bool {
                    guard waited, discarded > 0 else { return false }
                    discarded -= 1
                    return true
                }
                var salvaged = 0
                buried = 0
                let insert = try RowInsert(db)
                for (row, event) in rows {
                    let checkSum = (try? row.optional("check_sum") as Int64?) ?? 0
                    let number: Int64? = row[0]
                    if let number, try !isNew(number, checkSum, isLetter: false, db) { continue }
                    let waited = number.map { $0 >= head } ?? true
                    func bury(_ reason: String, _ detail: String) throws {
                        guard try self.bury(row, reason, detail, db, &books) else { return }
                        if waited { buried += 1 }
                        if let id = (try? row.optional("event_id") as Data?).flatMap({ EventID(bytes: $0) }) {
                            letters.append(Settlement(buried: id, reason, detail))
                        }
                        found(&books, isKnown: isKnown(waited), waiting: false)
                    }
                    guard let event else {
                        try bury(DamagedRows.reason, DamagedRows.detail)
                        continue
                    }
                    let install = event.install.map { [UInt8]($0) } ?? owner
                    let time = (try? row.optional("time") as Int64?) ?? 0
                    func take(at number: Int64?) throws -> Bool {
                        try insert.insert(
                            id: event.id, payload: event.payload, checkSum: event.checkSum, time: time, row: number, install: install)
                    }
                    // Its number can be another's, or one behind which there is no room: that can be damaged as well.
                    let place = number.flatMap { QueueBooks.possible.contains($0) ? $0 : nil }
                    guard try take(at: place) || take(at: nil) else {
                        // It waits already: from a file that was set aside before, or tracked again by its caller, if that is the same event.
                        guard try EventQueue.isWaiting(event.id, event.payload, db) else {
                            try bury(PreparedEvent.conflict.reason, PreparedEvent.conflict.detail)
                            continue
                        }
                        if waited { salvaged += 1 }
                        if isKnown(waited) { (books.discarded, books.duplicates) = (books.discarded - 1, books.duplicates + 1) }
                        continue
                    }
                    if waited { salvaged += 1 }
                    if let place { books.head = min(books.head, place) }
                    found(&books, isKnown: isKnown(waited), waiting: true)
                    books.bytes += Int64(event.payload.count)
                    taken.append(event.id)
                }
                try db.execute(
                    sql: "UPDATE damaged_files SET salvaged = salvaged + ?, buried = buried + ?, discarded = ? WHERE name = ?",
                    arguments: [salvaged, buried, discarded, file.name])
                return taken
            }
            if !letters.isEmpty { queue.damage.withLock { $0.observer }.buried(letters) }
        }

        private func found(_ books: inout QueueBooks, isKnown: Bool, waiting: Bool) {
            if isKnown { books.discarded -= 1 } else { books.adopted += 1 }
            if waiting { books.depth += 1 } else { books.deadLettered += 1 }
        }

        /// A row that can be read and is not to be sent.
        private func bury(
            _ row: Row, _ reason: String, _ detail: String, _ db: Database, _ books: inout QueueBooks
        ) throws -> Bool {
            guard let payload = try? row.optional("payload") as Data? else { return false }
            let number: Int64? = row[0]
            let checkSum = (try? row.optional("check_sum") as Int64?) ?? 0
            let id = (try? row.optional("event_id") as Data?).flatMap { EventID(bytes: $0) }
            let install = (try? row.optional("install_id") as Data?) ?? Data(owner ?? queue.installID.bytes)
            // Known by the file and its row, so that it is found again after a crash; two rows can have one number.
            return try EventQueue.bury(
                db, &books, id: id, install: install, origin: madeOrigin("row \(number ?? 0) \(checkSum)"),
                reason: reason, detail: detail, payload: payload,
                time: (try? row.optional("time") as Int64?) ?? 0)
        }

        /// Under which number a row is known that has none of its install's: by the file it came from, of which each install has its own.
        private func madeOrigin(_ key: String) -> Int64 {
            let install = owner.flatMap { EventID(bytes: $0) } ?? queue.installID
            return Int64(bitPattern: EventID.derived(name: "\(install) \(file.name)", key: key).low)
        }

        mutating func takeLetters() throws {
            try transaction(growing: true) { db, books in
                var (found, taken) = (0, 0)
                for letter in letters {
                    let checkSum = EventQueue.letterSum(letter.eventID, letter.event)
                    guard try isNew(letter.number, checkSum, isLetter: true, db) else { continue }
                    // One that is there already came from a file that was set aside before.
                    found += 1
                    if try take(letter, db, &books) { taken += 1 }
                }
                try db.execute(
                    sql: "UPDATE damaged_files SET salvaged_letters = salvaged_letters + ? WHERE name = ?", arguments: [found, file.name])
                // A file of this queue's is in its books already, but for letters that were retried before the salvage had to begin anew.
                let unknown = file.isOwn ? max(books.letters - books.deadLettered, 0) : Int64(taken)
                books.adopted += unknown
                books.deadLettered += unknown
                return []
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
                    db, &books, number: number, id: letter.eventID, install: install, origin: nil, reason: letter.reason,
                    detail: letter.detail, payload: Data(letter.event), time: letter.time)
            }
            guard isOurs else {
                return try EventQueue.buryOther(
                    db, &books, id: letter.eventID, install: install, origin: origin ?? madeOrigin("\(letter.number)"),
                    reason: letter.reason, detail: letter.detail, payload: Data(letter.event), time: letter.time)
            }
            // Its number can be another's by now, if somebody deleted files that were set aside.
            if try bury(letter.number) { return true }
            let isThere = try Int.fetchOne(
                db, sql: "SELECT EXISTS (SELECT 1 FROM dead_letters WHERE row = ? AND reason = ? AND payload = ?)",
                arguments: [letter.number, letter.reason, Data(letter.event)])
            return try isThere == 0 && bury(nil)
        }
    }
}
