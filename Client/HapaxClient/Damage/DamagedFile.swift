import Foundation
import GRDB
import HapaxModel

/// A file that was set aside and may still hold events.
struct DamagedFile: Hashable, Sendable {
    var name: String
    /// Set aside by a running client, whose books counted its rows: the install is the same.
    var isOwn: Bool
    /// How many events waited in it and how many dead letters it held, if that is known better than from the file itself.
    var depth: Int64?
    var letters: Int64?
    /// So many of its events the queue's books count as discarded, until they are found.
    var discarded: Int64
    /// What was found so far: events that wait now, dead letters, and events that are dead letters now.
    var salvaged = 0
    var salvagedLetters = 0
    var buried = 0
    /// Only the event that tells of it is missing.
    var isSalvaged = false
    /// Under which the server is to be told; nil once that event is stored.
    var reportID: EventID?
    /// It could not be looked at when the queue opened, whose `damaged_files` does not know it: that is for the salvage, or the next opening.
    var isUnread = false

    init(name: String, isOwn: Bool, depth: Int64? = nil, letters: Int64? = nil) {
        (self.name, self.isOwn, self.depth, self.letters) = (name, isOwn, depth, letters)
        discarded = isOwn ? depth ?? 0 : 0
        var ids = UUIDv7Generator()
        reportID = ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
    }

    /// As the queue remembers it, in `damaged_files`.
    init(_ row: Row) throws {
        name = try row.value("name")
        isOwn = try row.value("is_own")
        (depth, letters) = (try row.optional("depth"), try row.optional("letters"))
        discarded = try row.value("discarded")
        (salvaged, salvagedLetters, buried) = (try row.value("salvaged"), try row.value("salvaged_letters"), try row.value("buried"))
        isSalvaged = try row.value("is_salvaged")
        reportID = (try row.optional("report_id") as Data?).flatMap { EventID(bytes: $0) }
    }

    /// - Returns: nil if the queue does not know it.
    init?(named name: String, _ db: Database) throws {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM damaged_files WHERE name = ?", arguments: [name]) else { return nil }
        try self.init(row)
    }

    /// Those that have been salvaged, and of which the event that tells is still to be stored.
    static func untold(_ db: Database) throws -> [DamagedFile] {
        try Row.fetchAll(db, sql: "SELECT * FROM damaged_files WHERE is_salvaged AND report_id IS NOT NULL ORDER BY name").map(Self.init)
    }

    func insertIfUnknown(_ db: Database) throws {
        if try DamagedFile(named: name, db) == nil { try insert(db) }
    }

    func insert(_ db: Database) throws {
        try db.execute(
            sql: """
                INSERT INTO damaged_files
                    (name, is_own, is_salvaged, depth, letters, discarded, salvaged, salvaged_letters, buried, report_id)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
            arguments: [
                name, isOwn, isSalvaged, depth, letters, discarded, salvaged, salvagedLetters, buried, reportID.map { Data($0.bytes) },
            ])
    }

    var number: Int64 { Int64(QueueDirectory.number(name) ?? 0) }

    /// Waiting events that are not accounted for so far; nil if nobody knows how many. Of its own files the queue's books know better: what
    /// a salvage that was begun anew had found before has been delivered since, or waits.
    var remaining: Int? { isOwn ? Int(clamping: discarded) : damage.lost }

    /// What came of it so far.
    var damage: QueueDamage {
        var damage = QueueDamage(file: name)
        (damage.salvaged, damage.salvagedDeadLetters, damage.isSalvaged) = (salvaged, salvagedLetters, isSalvaged)
        damage.deadLettered = buried
        damage.lost = depth.map { max(Int(clamping: $0) - salvaged - buried, 0) }
        damage.lostDeadLetters = letters.map { max(Int(clamping: $0) - salvagedLetters, 0) }
        return damage
    }
}
