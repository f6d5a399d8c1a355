import Foundation
import GRDB
import HapaxModel

/// What is counted about one queue.
package struct QueueBooks: Hashable, Sendable {
    /// Whose they are.
    package var installID: EventID
    /// The highest sequence given; sequences begin at 1 and leave no gap.
    package var lastSequence: Int64 = 0
    /// Events that came with sequences of another install, or with none.
    package var adopted: Int64 = 0
    /// No waiting event has a lower row number: a page that gives one is from before it was delivered.
    var head: Int64 = 1
    package var depth: Int64 = 0
    /// Of the waiting events, as they will travel.
    package var bytes: Int64 = 0
    package var stored: Int64 = 0
    package var duplicates: Int64 = 0
    package var deadLettered: Int64 = 0
    /// Gone unsent after they had been stored: removed by the quota, purged, or lost with a damaged file.
    package var discarded: Int64 = 0
    /// Dead letters that are in the file now, and their bytes.
    package var letters: Int64 = 0
    package var letterBytes: Int64 = 0
    /// What was refused at intake, which gives no sequence; what was discarded; dead letters that did not stay.
    package internal(set) var drops = DropCounts()

    package init(of installID: EventID) { self.installID = installID }

    /// I12.
    var isBalanced: Bool { lastSequence + adopted == depth + stored + duplicates + deadLettered + discarded }

    var usage: QueueUsage { QueueUsage(events: depth + letters, bytes: bytes + letterBytes) }

    // MARK: - On disk

    /// No count comes near it, and sums of a few are still numbers.
    static let possible = -(Int64(1) << 53)...(Int64(1) << 53)

    /// - Throws: SQLITE_CORRUPT if there are none, or none that can be right.
    init(_ db: Database) throws {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM books") else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        try self.init(row)
        drops = try EventQueue.drops(db)
    }

    /// All but ``drops``.
    ///
    /// - Throws: SQLITE_CORRUPT if they cannot be right.
    init(_ row: Row) throws {
        guard let id = EventID(bytes: try row.value("install_id") as Data) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        installID = id
        lastSequence = try row.value("last_sequence")
        adopted = try row.value("adopted")
        head = try row.value("head")
        depth = try row.value("depth")
        bytes = try row.value("bytes")
        stored = try row.value("stored")
        duplicates = try row.value("duplicates")
        deadLettered = try row.value("dead_lettered")
        discarded = try row.value("discarded")
        letters = try row.value("letters")
        letterBytes = try row.value("letter_bytes")
        // SQLite has no checksums: a number that changed on the disk shows here.
        let all = [lastSequence, adopted, depth, bytes, stored, duplicates, deadLettered, discarded, letters, letterBytes]
        guard all.allSatisfy(Self.possible.contains), isBalanced, min(lastSequence, adopted, head, depth, bytes, letters, letterBytes) >= 0
        else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT)
        }
    }

    /// All but ``drops``, which ``EventQueue/count(_:_:_:_:)`` keeps.
    func write(_ db: Database) throws {
        try db.cachedStatement(
            sql: """
                UPDATE books SET last_sequence = ?, adopted = ?, head = ?, depth = ?, bytes = ?, stored = ?, duplicates = ?, dead_lettered = ?,
                    discarded = ?, letters = ?, letter_bytes = ?
                """
        ).execute(
            arguments: [lastSequence, adopted, head, depth, bytes, stored, duplicates, deadLettered, discarded, letters, letterBytes])
        guard db.changesCount == 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }
}
