import Foundation
import GRDB
import HapaxModel

/// What is counted about one queue file, in the transactions of the rows that it is about (I12).
package struct QueueCounters: Hashable, Sendable {
    /// Names the file; one that took over from a damaged file is another install.
    package var installID: EventID
    /// Raised by each transaction, so that of two envelopes the later one is known.
    package internal(set) var word: Int64 = 0
    /// The highest sequence given; sequences begin at 1.
    package internal(set) var created: Int64 = 0
    /// The highest sequence that a receipt has settled.
    package internal(set) var acknowledged: Int64 = 0
    /// Events that wait, those that are held included, and their bytes.
    package internal(set) var waiting: Int64 = 0
    package internal(set) var bytes: Int64 = 0
    /// Of these, those that the server refused alone: they wait for a proof that it accepts others.
    package internal(set) var held: Int64 = 0
    package internal(set) var stored: Int64 = 0
    package internal(set) var duplicates: Int64 = 0
    /// Events that became dead letters and have not been put back.
    package internal(set) var deadLettered: Int64 = 0
    /// Removed unsent after they had been stored: by the quota or a purge.
    package internal(set) var removed: Int64 = 0
    /// Dead letters that are in the file now, and their bytes.
    package internal(set) var deadLetters: Int64 = 0
    package internal(set) var deadLetterBytes: Int64 = 0
    /// Ranges of sequences that will never come and are still to be reported.
    package internal(set) var unreported: Int64 = 0
    /// The first sequence that was tracked while the user's consent was pending; all from there on wait for that. 0 for none.
    package internal(set) var pendingFrom: Int64 = 0
    /// Behind which decision the first of them was taken (``KeptConsent/number``): the next one is about all of them.
    package internal(set) var pendingSince: Int64 = 0
    /// By reason: refused at intake, removed, dead letters that the quota removed.
    package internal(set) var dropped: [String: Int64] = [:]

    package init(of installID: EventID) { self.installID = installID }

    /// I12.
    package var isBalanced: Bool { created == waiting + stored + duplicates + deadLettered + removed }

    var usage: QueueUsage { QueueUsage(events: waiting + deadLetters, bytes: bytes + deadLetterBytes) }

    var deadLetterUsage: QueueUsage { QueueUsage(events: deadLetters, bytes: deadLetterBytes) }

    /// Events that no server has refused alone yet.
    package var sendable: Int64 { waiting - held }

    /// Rises whenever an event that waited is removed unsent, also where its sequence is taken back.
    package var removals: Int64 { removed + (dropped["purged"] ?? 0) }

    /// Whether the server is to hear anything new: dead letters and held events alone are nothing to send.
    package var hasSomethingToSend: Bool { sendable > 0 || unreported > 0 }

    /// Events refused at intake, which have no sequence, as they are reported. What somebody did who had denied consent is nobody's business.
    var refused: [String: Int64] { dropped.filter { $0.key != DropReason.optedOut.rawValue && DropReason(rawValue: $0.key) != nil } }

    // MARK: - On disk

    private static let columns = [
        "word", "created", "acknowledged", "waiting", "bytes", "held", "stored", "duplicates", "dead_lettered", "gone", "letters",
        "letter_bytes", "untold", "pending_from", "pending_since",
    ]
    private static let fields: [any WritableKeyPath<QueueCounters, Int64> & Sendable] = [
        \.word, \.created, \.acknowledged, \.waiting, \.bytes, \.held, \.stored, \.duplicates, \.deadLettered, \.removed, \.deadLetters,
        \.deadLetterBytes, \.unreported, \.pendingFrom, \.pendingSince,
    ]

    static let tableColumns = columns.map { "\($0) INTEGER NOT NULL DEFAULT 0" }.joined(separator: ", ")
    private static let update = "UPDATE counters SET " + columns.map { "\($0) = ?" }.joined(separator: ", ")

    /// - Throws: SQLITE_CORRUPT if there are none, or none that can be right: SQLite has no check sums.
    init(_ db: Database) throws {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM counters"), let id = EventID(bytes: try row.value("install_id") as Data)
        else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        installID = id
        // A damaged file of an earlier version has not all of them.
        for (column, field) in zip(Self.columns, Self.fields) { self[keyPath: field] = try row.optional(column) ?? 0 }
        for row in try Row.fetchAll(db, sql: "SELECT reason, count FROM dropped") {
            dropped[try row.value("reason")] = try row.value("count") as Int64
        }
        let isPossible = Self.fields.allSatisfy { (0...Self.largest).contains(self[keyPath: $0]) }
        guard isPossible, isBalanced else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }

    /// No count comes near it, and sums of a few are still numbers.
    private static let largest = Int64(1) << 53

    /// All but ``dropped``, which ``count(_:_:_:)`` keeps.
    func write(_ db: Database) throws {
        try db.cachedStatement(sql: Self.update).execute(arguments: StatementArguments(Self.fields.map { self[keyPath: $0] }))
        guard db.changesCount == 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }

    mutating func count(_ reason: String, _ count: Int64, _ db: Database) throws {
        guard count > 0 else { return }
        dropped[reason, default: 0] += count
        try db.cachedStatement(
            sql: "INSERT INTO dropped (reason, count) VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET count = excluded.count"
        ).execute(arguments: [reason, dropped[reason]])
    }
}

extension Row {
    /// A damaged row can hold anything in any column, where a subscript would trap.
    func value<Value: DatabaseValueConvertible>(_ column: String) throws -> Value {
        guard let value: Value = try optional(column) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        return value
    }

    /// nil for NULL and for a column that is not there.
    func optional<Value: DatabaseValueConvertible>(_ column: String) throws -> Value? {
        guard let stored = self[column] as DatabaseValue?, !stored.isNull else { return nil }
        guard let value = Value.fromDatabaseValue(stored) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        return value
    }
}
