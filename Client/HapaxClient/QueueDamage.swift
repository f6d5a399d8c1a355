import GRDB

/// A queue file that could not be read and was set aside. It is never deleted.
public struct QueueDamage: Hashable, Sendable {
    /// The file's new name, in the queue's directory.
    public internal(set) var file: String
    /// Waiting events that could be read and are in the queue that took over.
    public internal(set) var salvaged = 0
    /// Dead letters that could be read, likewise.
    public internal(set) var salvagedDeadLetters = 0
    /// Waiting events that could not be read; nil if nobody knows how many there were.
    public internal(set) var lost: Int?

    /// The event that tells the server; its properties are the counts, never the path.
    static let eventName = "$QueueDamaged"
}

/// The file was made by a later version: it is left as it is.
struct NewerSchema: Error {}

extension Error {
    /// Whether SQLite found the file to be damaged, or to be something else.
    var isDamage: Bool {
        if self is RowDecodingError { return true }
        guard let error = self as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_CORRUPT || error.resultCode == .SQLITE_NOTADB
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
