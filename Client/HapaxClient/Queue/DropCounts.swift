import Foundation
import GRDB
import HapaxModel

/// How many events were dropped, by install and reason, and how much of that the server has acknowledged.
///
/// A count only grows, and whoever knows two keeps the greater one: the server for each install, and a queue that takes over another one's
/// counts, of a spool or of a file that was set aside. They stay counts of the install they are of. So a count can be taken over twice, and
/// reported by two, as after a crash or a lost answer, and adds up once.
package struct DropCounts: Hashable, Sendable {
    struct Key: Hashable, Comparable {
        var install: EventID
        var reason: String

        static func < (left: Key, right: Key) -> Bool { (left.install, left.reason) < (right.install, right.reason) }
    }

    struct Count: Hashable {
        var count: Int64 = 0
        /// What the server has acknowledged of it.
        var told: Int64 = 0

        var isUntold: Bool { count > told }
    }

    private(set) var counts: [Key: Count] = [:]

    package init() {}

    /// Those of all installs.
    package var byReason: [String: Int64] {
        counts.reduce(into: [:]) { $0[$1.key.reason, default: 0] += $1.value.count }
    }

    package var isUntold: Bool { counts.values.contains(where: \.isUntold) }

    /// One install's, by reason.
    func of(_ install: EventID) -> [String: Int64] {
        counts.reduce(into: [:]) { if $1.key.install == install { $0[$1.key.reason] = $1.value.count } }
    }

    /// What the server is still to learn of other installs: of so many of them as one envelope takes.
    func untold(exceptOf own: EventID) -> [EventID: [String: Int64]] {
        var installs: [EventID: [String: Int64]] = [:]
        for (key, count) in counts.filter({ $0.value.isUntold && $0.key.install != own }).sorted(by: { $0.key < $1.key }) {
            let install = key.install
            guard installs[install] != nil || installs.count < EventLimits.maximumInstallsTakenOver else { break }
            installs[install, default: [:]][key.reason] = count.count
        }
        return installs
    }

    subscript(key: Key) -> Count {
        get { counts[key] ?? Count() }
        set { counts[key] = newValue }
    }

    mutating func remove(_ key: Key) { counts[key] = nil }

    /// Those of installs that are gone take a row each, which every envelope looks at: from here on they are gathered.
    static let maximumRows = 256
}

extension EventQueue {
    /// Reasons by which events that had been stored are gone; the others refuse events before they count, or concern dead letters.
    private static let reasonsOfStoredEvents: Set = [
        "purged", EventQueue.damagedEvent, DiscardReason.age.rawValue, DiscardReason.oldest.rawValue,
    ]

    /// - Throws: SQLITE_CORRUPT if they cannot be right.
    static func drops(_ db: Database) throws -> DropCounts {
        var drops = DropCounts()
        for row in try Row.fetchAll(db, sql: "SELECT * FROM dropped") {
            let count = DropCounts.Count(count: try row.value("count"), told: try row.value("told"))
            guard let install = EventID(bytes: try row.value("install_id") as Data),
                QueueBooks.possible.contains(count.count), QueueBooks.possible.contains(count.told)
            else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            drops[DropCounts.Key(install: install, reason: try row.value("reason"))] = count
        }
        return drops
    }

    static func save(_ count: DropCounts.Count, for key: DropCounts.Key, _ db: Database, _ books: inout QueueBooks) throws {
        try db.cachedStatement(
            sql: """
                INSERT INTO dropped (install_id, reason, count, told) VALUES (?, ?, ?, ?)
                ON CONFLICT (install_id, reason) DO UPDATE SET count = excluded.count, told = excluded.told
                """
        ).execute(arguments: [Data(key.install.bytes), key.reason, count.count, count.told])
        books.drops[key] = count
    }

    static func count(_ db: Database, _ books: inout QueueBooks, _ reason: String, _ count: Int64) throws {
        let key = DropCounts.Key(install: books.installID, reason: reason)
        var drop = books.drops[key]
        drop.count += count
        try save(drop, for: key, db, &books)
    }

    /// The server has acknowledged a batch whose envelope said this.
    static func told(_ envelope: EventBatch.Envelope, _ db: Database, _ books: inout QueueBooks) throws {
        func told(_ counts: [String: Int64], of install: EventID) throws {
            for (reason, count) in counts {
                let key = DropCounts.Key(install: install, reason: reason)
                var drop = books.drops[key]
                guard drop.told < count else { continue }
                drop.told = count
                try save(drop, for: key, db, &books)
            }
        }
        try told(envelope.dropped, of: books.installID)
        for (install, counts) in envelope.takenOver { try told(counts, of: install) }
    }

    /// Adds up what the server has of other installs, under one name, which it is never told, if these are many.
    ///
    /// Only if none of them can be taken over again: then it would count twice.
    func gatherDrops() throws {
        guard books.drops.counts.count > DropCounts.maximumRows, !directory.holdsMore else { return }
        try transaction { db, books in try Self.gatherDrops(db, &books) }
    }

    private static func gatherDrops(_ db: Database, _ books: inout QueueBooks) throws {
        let gone = EventID.derived(name: "\(books.installID)", key: "dropped by installs that are gone")
        for (key, count) in books.drops.counts where ![books.installID, gone].contains(key.install) && !count.isUntold {
            let sum = DropCounts.Key(install: gone, reason: key.reason)
            let all = books.drops[sum].count + count.count
            try save(DropCounts.Count(count: all, told: all), for: sum, db, &books)
            try db.cachedStatement(sql: "DELETE FROM dropped WHERE install_id = ? AND reason = ?")
                .execute(arguments: [Data(key.install.bytes), key.reason])
            books.drops.remove(key)
        }
    }

    /// Done twice, it is the same as once.
    static func adopt(_ drops: DropCounts, _ db: Database, _ books: inout QueueBooks) throws {
        for (key, other) in drops.counts {
            var drop = books.drops[key]
            let added = max(other.count - drop.count, 0)
            drop.count += added
            drop.told = max(drop.told, other.told)
            try save(drop, for: key, db, &books)
            guard reasonsOfStoredEvents.contains(key.reason) else { continue }
            books.adopted += added
            books.discarded += added
        }
    }
}
