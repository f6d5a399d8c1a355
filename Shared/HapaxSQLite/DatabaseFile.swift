import Foundation
import GRDB

/// Opens a SQLite file the way every file of Hapax is opened: one connection, write-ahead log, a stated durability.
///
/// One connection also keeps clear of the WAL-reset defect of SQLite before 3.51.3, which needs several.
package enum DatabaseFile {
    /// What a COMMIT has survived when it returns (https://www.sqlite.org/pragma.html#pragma_synchronous).
    package enum Synchronous: String, Sendable {
        /// The end of the process, however it ends. A power cut may take back the latest commits, never a part of one.
        case normal = "NORMAL"
        /// A power cut as well: the log is flushed at each commit.
        case full = "FULL"
    }

    /// - Throws: GRDB's `DatabaseError`.
    package static func open(
        path: String, synchronous: Synchronous, label: String, readonly: Bool = false
    ) throws -> DatabaseQueue {
        var configuration = Configuration()
        configuration.label = label
        configuration.readonly = readonly
        // Our one connection never waits for itself; another process only ever looks.
        configuration.busyMode = .timeout(5)
        if !readonly { configuration.journalMode = .wal }
        let database = try DatabaseQueue(path: path, configuration: configuration)
        // Only now: switching to the write-ahead log makes GRDB set NORMAL.
        try database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA synchronous = \(synchronous.rawValue)") }
        return database
    }
}
