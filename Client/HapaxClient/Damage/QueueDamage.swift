import GRDB
import HapaxModel

/// A queue file that could not be read and was set aside. It is never deleted.
public struct QueueDamage: Hashable, Sendable {
    /// The file's new name, in the queue's directory; behind `spool/` and a name where it was a queue beside this one.
    public internal(set) var file: String
    /// Waiting events that could be read and are in the queue that took over, with their ids.
    public internal(set) var salvaged = 0
    /// Dead letters that could be read, likewise.
    public internal(set) var salvagedDeadLetters = 0
    /// Waiting events that were found and are dead letters now: their bytes have changed, or another event has their id.
    public internal(set) var deadLettered = 0
    /// Waiting events that could not be read; nil if nobody knows how many there were, or if counts of events that had been dropped before
    /// were lost with the file.
    public internal(set) var lost: Int?
    /// Dead letters that could not be read, likewise.
    public internal(set) var lostDeadLetters: Int?
    /// Whether everything that can be read has been taken over. Uploads wait for a salvage under way, so that the oldest events go first;
    /// one that fails, as on a disk that gives nothing for now, keeps nothing else back and is tried again.
    public internal(set) var isSalvaged = false

    /// The event that tells the server; its properties are the counts, never the path.
    static let eventName = "$QueueDamaged"

    var properties: Properties {
        var properties: Properties = [
            "$salvaged": .integer(Int64(salvaged)), "$salvaged_dead_letters": .integer(Int64(salvagedDeadLetters)),
            "$dead_lettered": .integer(Int64(deadLettered)),
        ]
        if let lost { properties["$lost"] = .integer(Int64(lost)) }
        if let lostDeadLetters { properties["$lost_dead_letters"] = .integer(Int64(lostDeadLetters)) }
        return properties
    }
}

/// What a queue remembers about its damaged files.
struct DamageRecord: Sendable {
    /// Still to be salvaged, oldest first.
    var pending: [DamagedFile]
    /// The highest number that a file is known to have had; its row numbers are not given again, even if it has been deleted.
    var highest: Int64
    /// The latest since the queue was opened.
    var latest: QueueDamage?
    /// The file has been closed and could not be renamed so far.
    var isClosed = false
    /// A new file that has not become this queue yet: the disk was full.
    var unfinished: DamagedFile?
    /// Of which the events that tell, with these ids, are not stored yet.
    var untold: [EventID: DamagedFile] = [:]
    var salvaging: Task<Void, Never>?
    /// Waiting events that became dead letters and that no flush has reported.
    var unreportedLetters = 0
    /// Whom events concern stood in the file, as far as anybody knows, and cannot be read.
    var hasLostIdentity = false
    /// Why the latest salvage did not get to its end.
    var failure: SalvageFailure?
    var observer = DamageObserver()

    init(pending: [DamagedFile], highest: Int64) {
        self.pending = pending
        self.highest = highest
        latest = pending.last.map { QueueDamage(file: $0.name) }
    }

    /// It is known better now.
    mutating func update(_ file: DamagedFile) {
        for index in pending.indices where pending[index].name == file.name { pending[index] = file }
    }
}

/// Who has to know about damage.
struct DamageObserver: Sendable {
    /// What the new file must know from its first transaction on, since it is written only when it changes; nil for what only the damaged
    /// file knows.
    var state: @Sendable () -> (identity: EventQueue.SavedIdentity?, session: EventQueue.OpenSession?) = { (nil, nil) }
    /// Whom events concern: a file said so that could not be opened at the start, and nobody has said it since.
    var identified: @Sendable (EventQueue.SavedIdentity) -> Void = { _ in }
    /// These were found and are dead letters now.
    var buried: @Sendable ([Settlement]) -> Void = { _ in }
    /// The id is the one under which to tell the server.
    var salvaged: @Sendable (QueueDamage, EventID) -> Void = { _, _ in }
}

/// The queue was set aside as well while it took over from a damaged file.
struct DamagedAgain: Error {}

extension Error {
    var isDamagedAgain: Bool { self is DamagedAgain || (self as? SalvageFailure)?.cause is DamagedAgain }
}

/// The file was made by a later version: it is left as it is.
struct NewerSchema: Error {}

extension Error {
    /// Whether SQLite found the file to be damaged, or to be something else.
    var isDamage: Bool {
        if self is RowDecodingError { return true }
        guard let error = self as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_CORRUPT || error.resultCode == .SQLITE_NOTADB || error.isStrangeSchema
    }
}

extension Error {
    /// Whether a file cannot be opened as what we made it: of our own statements none is wrong, whatever SQLite says about them.
    var isDamageAtOpening: Bool { isDamage || (self as? DatabaseError)?.resultCode == .SQLITE_ERROR }

    /// Whether the connection was closed since its user got it, as when somebody else met damage.
    var isUseOfAClosedFile: Bool { (self as? DatabaseError)?.resultCode == .SQLITE_MISUSE }

    /// Whether SQLite could not look for now, which says nothing about the file.
    var isTrouble: Bool {
        if let failure = self as? SalvageFailure { return failure.cause.isTrouble }
        // The file is shorter than it was.
        guard let error = self as? DatabaseError, error.extendedResultCode != .SQLITE_IOERR_SHORT_READ else { return false }
        // SQLITE_AUTH is how a file that iOS has locked with the device can look.
        return [.SQLITE_IOERR, .SQLITE_CANTOPEN, .SQLITE_NOMEM, .SQLITE_BUSY, .SQLITE_LOCKED, .SQLITE_FULL, .SQLITE_PERM, .SQLITE_AUTH]
            .contains(error.resultCode)
    }

    /// Whether the disk could not do what it should, rather than the process.
    var isDiskFailure: Bool {
        if let failure = self as? SalvageFailure { return failure.cause.isDiskFailure }
        return isDiskFull || (self as? DatabaseError)?.resultCode == .SQLITE_IOERR
    }
}

extension DatabaseError {
    /// Our statements name only what we have made: a name that is not found has changed on the disk.
    fileprivate var isStrangeSchema: Bool {
        guard resultCode == .SQLITE_ERROR, let message else { return false }
        return ["no such table", "no such column", "has no column", "unsupported file format"].contains { message.contains($0) }
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
