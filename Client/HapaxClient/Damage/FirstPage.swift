import Foundation
import GRDB
import HapaxSQLite

/// The first page of a queue's file, with the header and the schema: the same in all queues of one version, but for a few counts.
///
/// If it is damaged SQLite finds nothing on the other pages, whole as they may be. Then they are read through a ``SalvageCopy`` with
/// a first page that is made anew (https://www.sqlite.org/fileformat2.html#the_database_header).
enum FirstPage {
    /// Whether a file has the tables that a salvage reads as they were made: a changed letter in a name is not damage to SQLite.
    static func hasSchema(_ db: Database) throws -> Bool {
        try made.get().isSubset(of: schema(db))
    }

    private static let made = Result {
        let tables = try DatabaseQueue()
        try EventQueue.migrator.migrate(tables)
        return try tables.read(schema)
    }

    private static func schema(_ db: Database) throws -> Set<String> {
        try String.fetchSet(
            db,
            sql: """
                SELECT name || ' ' || sql FROM sqlite_schema
                WHERE type = 'table' AND name IN ('queue', 'dead_letters', 'books', 'identity', 'session')
                """)
    }

    /// That of a queue in which nothing has been stored, and which does not say how long its file is.
    ///
    /// - Parameter path: Where to make one; nothing is left there.
    static func new(at path: String) throws -> Data {
        defer { DatabaseFile.remove(path) }
        try EventQueue.makeFile(at: path)
        var page = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)).prefix(QueueRoom.pageBytes))
        guard page.count == QueueRoom.pageBytes else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
        // The length counts only if the two counters at 24 and 92 are the same.
        for index in 92..<96 { page[index] = ~page[index - 68] }
        return Data(page)
    }
}
