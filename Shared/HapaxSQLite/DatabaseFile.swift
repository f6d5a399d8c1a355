import Foundation
import GRDB

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

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

    /// Our one connection never waits for itself; another process only ever looks.
    package static let busyMode = Database.BusyMode.timeout(Double(busyMilliseconds) / 1_000)
    package static let busyMilliseconds = 5_000

    /// Makes directory and file if they are missing, readable by their owner only, and follows links: two names of one file must meet at one
    /// lock.
    ///
    /// What cannot be made shows at once when it is locked or opened.
    ///
    /// - Returns: The file's real path.
    package static func prepare(_ path: String) -> String {
        let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
        try? FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        #if canImport(Darwin)
        let descriptor = Darwin.open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        #elseif canImport(Musl)
        let descriptor = Musl.open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        #else
        let descriptor = Glibc.open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        #endif
        if descriptor >= 0 { close(descriptor) }
        return resolved(path)
    }

    /// Where a database really lies, and so what SQLite keeps beside it; the same path if nothing is there.
    package static func resolved(_ path: String) -> String {
        guard let resolved = realpath(path, nil) else { return path }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// Removes a database and what SQLite makes beside it.
    package static func remove(_ path: String) {
        unlink(path)
        removeLogs(path)
    }

    /// Removes what SQLite makes beside a database: of one that was closed with its log emptied, or of none.
    package static func removeLogs(_ path: String) {
        for suffix in ["-wal", "-shm", "-journal"] { unlink(path + suffix) }
    }

    /// - Parameter logPages: The write-ahead log is emptied from this length on and cut to it, nothing of a transaction is in it before the
    ///   commit, and deleting writes no more pages than it must (https://www.sqlite.org/pragma.html#pragma_secure_delete); nil for SQLite's own
    ///   choices.
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
                // What SQLite writes before a commit it can write again in place, and a log that a kill leaves in between looks like a damaged one.
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
        // Only now: switching to the write-ahead log makes GRDB set NORMAL.
        try database.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA synchronous = \(synchronous.rawValue)")
            // On Apple's systems; see DriveCache for what it does not do there. Others know no such difference.
            if synchronous == .full { try db.execute(sql: "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON") }
        }
        return database
    }
}
