import Foundation
import GRDB

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Opens a SQLite file the way every file of Hapax is opened for writing: one connection, write-ahead log, a stated durability.
///
/// One writing connection also avoids the WAL-reset bug of SQLite before 3.51.3, which needs several.
package enum DatabaseFile {
    /// What a commit survives once COMMIT has returned (https://www.sqlite.org/pragma.html#pragma_synchronous).
    package enum Synchronous: String, Sendable {
        /// The end of the process, however it ends. A power cut may undo the latest commits, never a part of one.
        case normal = "NORMAL"
        /// A power cut as well: the log is flushed at each commit.
        case full = "FULL"
    }

    /// Waits are rare: a file has one connection that writes, and all others only read.
    package static let busyMode = Database.BusyMode.timeout(Double(busyMilliseconds) / 1_000)
    package static let busyMilliseconds = 5_000

    /// Makes directory and file if they are missing, readable by the directory's owner only, and follows links, so that two names of one file share one
    /// lock.
    ///
    /// Reports no error: if something could not be made, locking or opening it fails next.
    ///
    /// - Returns: The file's real path.
    package static func prepare(_ path: String) -> String {
        let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
        try? FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let descriptor = OwnedFile.descriptor(path)
        if descriptor >= 0 { close(descriptor) }
        return resolved(path)
    }

    /// The real path of a database, next to which SQLite keeps its other files; the same path if there is no file.
    package static func resolved(_ path: String) -> String {
        guard let resolved = realpath(path, nil) else { return path }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// Removes a database and the files that SQLite makes next to it.
    package static func remove(_ path: String) {
        unlink(path)
        removeLogs(path)
    }

    /// Removes the files that SQLite makes next to a database, which must be gone or have been closed with an empty log.
    package static func removeLogs(_ path: String) {
        for suffix in ["-wal", "-shm", "-journal"] { unlink(path + suffix) }
    }

    /// - Parameter logPages: The length at which the write-ahead log is emptied, and to which it is cut; no transaction is in it before its
    ///   commit, and deleted content is overwritten only where that writes no further pages
    ///   (https://www.sqlite.org/pragma.html#pragma_secure_delete). nil keeps SQLite's defaults.
    /// - Throws: GRDB's `DatabaseError`.
    package static func open(
        path: String, synchronous: Synchronous, label: String, readonly: Bool = false, logPages: Int? = nil
    ) throws -> DatabaseQueue {
        var configuration = Configuration()
        configuration.label = label
        configuration.readonly = readonly
        configuration.busyMode = busyMode
        if !readonly { configuration.journalMode = .wal }
        if let logPages, !readonly {
            configuration.prepareDatabase { db in
                // SQLite may overwrite in place what it wrote before a commit; a log that a kill leaves in between looks damaged.
                try db.execute(
                    sql: """
                        PRAGMA cache_spill = OFF;
                        PRAGMA secure_delete = FAST;
                        PRAGMA wal_autocheckpoint = \(logPages);
                        PRAGMA journal_size_limit = \(logPages * 4_096);
                        """)
            }
        }
        let database = try DatabaseQueue(path: path, configuration: configuration)
        // Only now, since GRDB sets NORMAL when it switches to the write-ahead log.
        try database.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA synchronous = \(synchronous.rawValue)")
            // Has an effect on Apple's systems only; DriveCache says why it is not enough there.
            if synchronous == .full { try db.execute(sql: "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON") }
        }
        return database
    }
}
