import GRDB

/// How many events one reason cost a queue, and what of that the server knows.
///
/// The server keeps the greatest count of each install and adds these up. So what a queue takes over from another, a spool or a file that was
/// set aside, is reported again only as far as the other install has not told it.
package struct DropCount: Hashable, Sendable {
    package var count: Int64 = 0
    /// What the server has acknowledged from this install.
    var told: Int64 = 0
    /// What it has from installs whose counts were taken over.
    var toldByOthers: Int64 = 0

    package init() {}

    /// What this install reports.
    var reported: Int64 { max(count - toldByOthers, 0) }

    package var isUntold: Bool { reported > told }

    /// What the server knows of it in all.
    fileprivate var known: Int64 { min(told + toldByOthers, count) }

    /// Reasons by which events that had been stored are gone; the others refuse events before they count, or concern dead letters.
    fileprivate static let ofStoredEvents: Set = [
        "purged", EventQueue.damagedEvent, DiscardReason.age.rawValue, DiscardReason.oldest.rawValue,
    ]
}

extension EventQueue {
    static func drops(_ db: Database) throws -> [String: DropCount] {
        var drops: [String: DropCount] = [:]
        for row in try Row.fetchAll(db, sql: "SELECT * FROM dropped") {
            var drop = DropCount()
            (drop.count, drop.told, drop.toldByOthers) = (try row.value("count"), try row.value("told"), try row.value("told_by_others"))
            guard [drop.count, drop.told, drop.toldByOthers].allSatisfy(QueueBooks.possible.contains) else {
                throw DatabaseError(resultCode: .SQLITE_CORRUPT)
            }
            drops[try row.value("reason")] = drop
        }
        return drops
    }

    static func save(_ drop: DropCount, for reason: String, _ db: Database, _ books: inout QueueBooks) throws {
        try db.cachedStatement(
            sql: """
                INSERT INTO dropped (reason, count, told, told_by_others) VALUES (?, ?, ?, ?) ON CONFLICT (reason) DO UPDATE
                SET count = excluded.count, told = excluded.told, told_by_others = excluded.told_by_others
                """
        ).execute(arguments: [reason, drop.count, drop.told, drop.toldByOthers])
        books.drops[reason] = drop
    }

    static func count(_ db: Database, _ books: inout QueueBooks, _ reason: String, _ count: Int64) throws {
        var drop = books.drops[reason] ?? DropCount()
        drop.count += count
        try save(drop, for: reason, db, &books)
        // What was taken for lost can be found again.
        guard count < 0, drop.count == 0 else { return }
        try db.execute(sql: "DELETE FROM dropped WHERE reason = ?", arguments: [reason])
        books.drops[reason] = nil
    }

    /// The server has acknowledged a batch whose envelope said this.
    static func told(_ reported: [String: Int64], _ db: Database, _ books: inout QueueBooks) throws {
        for (reason, count) in reported {
            guard var drop = books.drops[reason], drop.told < count else { continue }
            drop.told = count
            try save(drop, for: reason, db, &books)
        }
    }

    /// Takes over what another queue dropped, which is to go then.
    package func adopt(_ drops: [String: DropCount]) throws {
        guard !drops.isEmpty else { return }
        try transaction { db, books in try Self.adopt(drops, db, &books) }
    }

    static func adopt(_ drops: [String: DropCount], _ db: Database, _ books: inout QueueBooks) throws {
        for (reason, other) in drops where other.count > 0 {
            var drop = books.drops[reason] ?? DropCount()
            drop.count += other.count
            drop.toldByOthers += other.known
            try save(drop, for: reason, db, &books)
            guard DropCount.ofStoredEvents.contains(reason) else { continue }
            books.adopted += other.count
            books.discarded += other.count
        }
    }
}
