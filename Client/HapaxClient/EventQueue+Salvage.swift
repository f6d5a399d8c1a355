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
        while let file = damage.withLock({ $0.pending.first }) {
            do {
                var damage = QueueDamage(file: file.name)
                try salvage(file, &damage)
                self.damage.withLock { record in
                    record.pending.removeFirst()
                    record.latest = damage
                }
                self.damage.withLock { $0.observer }.salvaged(damage)
            } catch {
                break
            }
        }
        damage.withLock { $0.salvaging = nil }
    }

    private func salvage(_ file: DamagedFile, _ damage: inout QueueDamage) throws {
        var salvager = Salvager(queue: self, file: file, damage: damage)
        if let source = QueueSalvage(path: directory.path + "/" + file.name) {
            defer { source.close() }
            salvager.owner = file.isOwn ? nil : source.installID.map(\.bytes) ?? []
            try source.rows(of: "queue") { row in
                salvager.rows.append(row.copy())
                if salvager.rows.count == Self.rowsPerTransaction { try salvager.takeRows() }
            }
            try salvager.takeRows()
            try source.rows(of: "dead_letters") { row in
                guard let letter = try? Self.deadLetter(row) else { return }
                salvager.letters.append(letter)
                if salvager.letters.count == Self.rowsPerTransaction { try salvager.takeLetters() }
            }
            try salvager.takeLetters()
            salvager.damage.lost = (file.depth ?? source.depth).map { max(Int(clamping: $0) - salvager.damage.salvaged, 0) }
        } else {
            salvager.damage.lost = file.depth.map { Int(clamping: $0) }
        }
        try transaction { db, _ in
            try db.execute(sql: "UPDATE damaged_files SET is_salvaged = 1 WHERE name = ?", arguments: [file.name])
        }
        damage = salvager.damage
        damage.isSalvaged = true
    }

    /// One file's rows on their way into the queue.
    private struct Salvager {
        let queue: EventQueue
        let file: DamagedFile
        var damage: QueueDamage
        /// Whose the file's own rows are; nil for this queue's, empty for nobody's.
        var owner: [UInt8]?
        var rows: [Row] = []
        var letters: [DeadLetter] = []

        mutating func takeRows() throws {
            var taken: [EventID] = []
            let isOwn = file.isOwn
            try queue.transaction(growing: true) { db, books in
                taken = []
                let insert = try RowInsert(db)
                for row in rows {
                    guard let event = try? WaitingRow(row) else {
                        guard try bury(row, db, &books) else { continue }
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
                    else { continue }
                    found(&books, waiting: true)
                    books.bytes += Int64(event.payload.count)
                    taken.append(event.id)
                }
                let count = Int64(taken.count)
                if isOwn, count > 0 { try EventQueue.count(db, &books, EventQueue.damagedEvent, -count) }
            }
            damage.salvaged += taken.count
            rows = []
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
            let origin = -number
            let isNew = try EventQueue.bury(
                db, &books, id: id, install: Data(owner ?? queue.installID.bytes), origin: origin, reason: DamagedRows.reason,
                detail: DamagedRows.detail, payload: payload, time: (try? row.optional("time") as Int64?) ?? 0)
            if isNew, file.isOwn { try EventQueue.count(db, &books, EventQueue.damagedEvent, -1) }
            return isNew
        }

        mutating func takeLetters() throws {
            var taken = 0
            try queue.transaction(growing: true) { db, books in
                taken = 0
                for letter in letters where try take(letter, db, &books) { taken += 1 }
                guard taken > 0 else { return }
                if file.isOwn {
                    try EventQueue.count(db, &books, EventQueue.damagedLetter, -Int64(taken))
                } else {
                    books.adopted += Int64(taken)
                    books.deadLettered += Int64(taken)
                }
            }
            damage.salvagedDeadLetters += taken
            letters = []
        }

        private func take(_ letter: DeadLetter, _ db: Database, _ books: inout QueueBooks) throws -> Bool {
            let install: Data?
            switch letter.origin {
            case .own: install = owner.map { Data($0) }
            case .nobody: install = Data()
            case .install(let id): install = Data(id.bytes)
            }
            // In a queue of the same install it keeps its number; elsewhere the number is its origin.
            let isOurs = letter.origin == .own && file.isOwn
            return try EventQueue.bury(
                db, &books, number: isOurs ? letter.number : nil, id: letter.eventID, install: install,
                origin: letter.originNumber ?? (isOurs ? nil : letter.number), reason: letter.reason, detail: letter.detail,
                payload: Data(letter.event), time: letter.time)
        }
    }
}
