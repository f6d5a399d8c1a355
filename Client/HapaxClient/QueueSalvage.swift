import Foundation
import GRDB
import HapaxModel

/// Reads what can still be read from a damaged queue file, which it does not change.
struct QueueSalvage {
    private let database: DatabaseQueue
    /// The install the file belonged to; nil if that cannot be read.
    let installID: EventID?
    /// How many events waited, by the file's own books.
    let depth: Int?

    /// Rows that are looked up one by one behind a page that cannot be read.
    private static let longestGap: Int64 = 1_000_000

    /// - Returns: nil if it is no database any more.
    init?(path: String) {
        var configuration = Configuration()
        configuration.readonly = true
        guard let database = try? DatabaseQueue(path: path, configuration: configuration) else { return nil }
        self.database = database
        let books = try? database.unsafeRead { try Row.fetchOne($0, sql: "SELECT install_id, depth FROM books") }
        installID = (try? books?.optional("install_id") as Data?).flatMap { EventID(bytes: $0) }
        depth = (try? books?.optional("depth") as Int?) ?? nil
    }

    /// Every row of a table that can be read, most of them in order; a row can come twice.
    func rows(of table: String, _ body: (Row) throws -> Void) throws {
        // Without a transaction: its end would fail once a page could not be read.
        try database.unsafeRead { db in
            var last: Int64 = 0
            do {
                let rows = try Row.fetchCursor(db, sql: "SELECT * FROM \(table) ORDER BY row")
                while let row = try rows.next() {
                    last = max(last, row["row"])
                    try kept(row, body)
                }
                return
            } catch is DatabaseError {}
            // From the other end to the damage, then what lies between, row by row.
            var first = (try? Int64.fetchOne(db, sql: "SELECT seq FROM sqlite_sequence WHERE name = ?", arguments: [table])) ?? 0
            if first < .max { first += 1 }
            do {
                let rows = try Row.fetchCursor(db, sql: "SELECT * FROM \(table) WHERE row > ? ORDER BY row DESC", arguments: [last])
                while let row = try rows.next() {
                    first = row["row"]
                    try kept(row, body)
                }
            } catch is DatabaseError {}
            guard first > last, first - last <= Self.longestGap else { return }
            for number in (last + 1)..<max(first, last + 1) {
                do {
                    guard let row = try Row.fetchOne(db, sql: "SELECT * FROM \(table) WHERE row = ?", arguments: [number]) else { continue }
                    try kept(row, body)
                } catch is DatabaseError {}
            }
        }
    }

    /// A failure to keep a row is not the damage that is being worked around.
    private func kept(_ row: Row, _ body: (Row) throws -> Void) throws {
        do { try body(row) } catch { throw SalvageFailure(cause: error) }
    }
}

/// The new queue could not take what was salvaged.
struct SalvageFailure: Error {
    var cause: any Error
}
