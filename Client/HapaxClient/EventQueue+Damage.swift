import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// Row numbers of a queue that took over begin so far behind those before, that no batch under way can name one of them (D3).
    private static let rowNumberStride: Int64 = 1 << 40

    /// Tells about damage found while opening, and about any that is found from now on.
    func onDamage(_ handler: @escaping @Sendable (QueueDamage) -> Void) {
        damageHandler.withLock { $0 = handler }
        for damage in damages.withLock({ $0 }) { handler(damage) }
    }

    /// Reads; if the file turns out to be damaged, from the queue that took over.
    func reading<Value>(_ body: (Database) throws -> Value) throws -> Value {
        let database = database
        do {
            return try database.read(body)
        } catch  where error.isDamage {
            try takeOver(from: database)
            return try self.database.read(body)
        }
    }

    /// Sets the damaged file aside and goes on in a new one, which is the same install: its books are in memory and whole.
    func takeOver(from damaged: DatabaseQueue) throws {
        let damage: QueueDamage? = try current.withLock { current in
            // Somebody else met the damage first.
            guard current === damaged else { return nil }
            try? damaged.close()
            let file = try directory.setAside()
            let opened = try Self.open(directory, durability, installID, room)
            var books = currentBooks.withLock { $0 }
            let before = books
            (books.depth, books.bytes, books.letters, books.letterBytes) = (0, 0, 0, 0)
            var damage = QueueDamage(file: file)
            try opened.database.write { db in
                try Self.salvage(file, in: directory, into: db, &books, &damage, as: nil)
                books.adopted = before.adopted
                books.deadLettered = before.deadLettered
                damage.lost = Int(before.depth - books.depth)
                books.discarded = before.discarded + before.depth - books.depth
                if books.depth < before.depth { try Self.count(db, &books, "damaged", before.depth - books.depth) }
                for (reason, count) in before.dropped {
                    try db.execute(
                        sql: "INSERT INTO dropped VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
                        arguments: [reason, count])
                }
                try Self.write(books, db)
            }
            current = opened.database
            currentBooks.withLock { $0 = books }
            account.withLock { $0.committed(books.usage - before.usage, releasing: QueueUsage()) }
            return damage
        }
        guard let damage else { return }
        damages.withLock { $0.append(damage) }
        damageHandler.withLock { $0 }?(damage)
    }

    /// Takes over what earlier damage left behind and nobody has salvaged yet, a salvage that was cut short included.
    ///
    /// The rows stay what they are: events of the install that gave their sequences.
    static func salvageLeftovers(_ directory: QueueDirectory, _ opened: inout Opened) throws -> [QueueDamage] {
        let files = directory.damagedFiles()
        if files.isEmpty { return [] }
        return try opened.database.write { db in
            let done = try Set(String.fetchAll(db, sql: "SELECT file FROM salvaged"))
            var damages: [QueueDamage] = []
            for file in files where !done.contains(file) {
                var damage = QueueDamage(file: file)
                try salvage(file, in: directory, into: db, &opened.books, &damage, as: Data())
                damages.append(damage)
            }
            if !damages.isEmpty { try write(opened.books, db) }
            return damages
        }
    }

    /// - Parameter owner: Whose the file's own events are if it cannot say so; nil for this queue's.
    private static func salvage(
        _ file: String, in directory: QueueDirectory, into db: Database, _ books: inout QueueBooks, _ damage: inout QueueDamage,
        as owner: Data?
    ) throws {
        try db.execute(sql: "INSERT INTO salvaged (file) VALUES (?)", arguments: [file])
        guard let source = QueueSalvage(path: directory.path + "/" + file) else { return }
        let own = owner == nil ? nil : source.installID.map { Data($0.bytes) } ?? owner
        try source.rows(of: "queue") { row in
            guard let id: Data = try? row.value("event_id"), EventID(bytes: id) != nil, let payload: Data = try? row.value("payload") else {
                return
            }
            try db.cachedStatement(
                sql: "INSERT OR IGNORE INTO queue (row, event_id, payload, time, caller_supplied, install_id) VALUES (?, ?, ?, ?, ?, ?)"
            ).execute(
                arguments: [
                    row["row"] as Int64, id, payload, (try? row.optional("time") as Int64?) ?? 0,
                    (try? row.optional("caller_supplied") as Int?) ?? 1, (try? row.optional("install_id") as Data?) ?? own,
                ])
            guard db.changesCount == 1 else { return }
            damage.salvaged += 1
            books.adopted += 1
            books.depth += 1
            books.bytes += Int64(payload.count)
        }
        try source.rows(of: "dead_letters") { row in
            guard let letter = try? deadLetter(row) else { return }
            let install: Data? = (try? row.optional("install_id") as Data?) ?? own
            // A letter of its own had no origin number there: then its row is one, so that a second salvage finds it again.
            let origin = letter.originNumber ?? (owner == nil ? nil : letter.number)
            let isNew = try bury(
                db, &books, id: letter.eventID, install: install, origin: origin, reason: letter.reason, detail: letter.detail,
                payload: Data(letter.event), time: letter.time)
            guard isNew else { return }
            damage.salvagedDeadLetters += 1
            books.adopted += 1
            books.deadLettered += 1
        }
        damage.lost = source.depth.map { max($0 - damage.salvaged, 0) }
        try db.execute(
            sql:
                "INSERT INTO sqlite_sequence (name, seq) SELECT 'queue', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'queue')"
        )
        try db.execute(
            sql: "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'queue' AND seq < ?", arguments: [rowNumberStride, Int64.max / 2])
    }
}
