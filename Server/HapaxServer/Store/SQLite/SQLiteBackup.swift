import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// Copies the embedded store's file while a server writes to it (https://www.sqlite.org/backup.html).
enum SQLiteBackup {
    struct Problem: Error, CustomStringConvertible {
        var description: String
    }

    /// Pages between two looks at how far it is, some 16 MiB.
    private static let pagesAtOnce: CInt = 4_096

    /// Where it is noted when the last backup was made: nobody but the server may write into the file.
    private static func mark(of path: String) -> String {
        let file = URL(fileURLWithPath: path)
        return file.deletingLastPathComponent().appendingPathComponent("last-backup-of-\(file.lastPathComponent)").path
    }

    /// When the last backup was made, in Unix milliseconds; nil if none was.
    static func lastBackup(of path: String) -> Int64? {
        let date = (try? FileManager.default.attributesOfItem(atPath: mark(of: path)))?[.modificationDate] as? Date
        return date.map { Int64($0.timeIntervalSince1970 * 1_000) }
    }

    private static func flush(_ directory: String) -> Bool {
        let descriptor = open(directory, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        return DriveCache.synchronize(descriptor) == 0
    }

    /// Makes a copy as of one moment, checks it and puts it on the disk. Events that are stored meanwhile are no part of it.
    ///
    /// - Parameters:
    ///   - target: Must not exist. There is no half-made file under this name, however it ends.
    ///   - progress: Called with the part that is done, 0 to 1.
    /// - Returns: Its size in bytes.
    static func run(from path: String, to target: String, progress: @escaping (Double) -> Void) throws -> Int64 {
        let files = FileManager.default
        guard files.fileExists(atPath: path) else { throw Problem(description: "there is no store at \(path)") }
        guard !files.fileExists(atPath: target) else { throw Problem(description: "\(target) exists already: name another file") }
        let path = DatabaseFile.resolved(path)
        // Two at once must not share it.
        let partial = "\(target).\(UUID().uuidString.prefix(8)).partial"
        let made = OwnedFile.descriptor(partial, isNew: true)
        guard made >= 0 else {
            throw Problem(description: "\(target) cannot be made: is there such a directory, and may you write into it?")
        }
        close(made)
        defer { DatabaseFile.remove(partial) }
        var configuration = Configuration()
        configuration.readonly = true
        configuration.busyMode = DatabaseFile.busyMode
        let source = try DatabaseQueue(path: path, configuration: configuration)
        let copy = try DatabaseQueue(path: partial)
        // Within one transaction, which sees one state: else each commit of the server would begin the copy anew.
        try source.read { from in
            _ = try Int.fetchOne(from, sql: "SELECT count(*) FROM sqlite_master")
            try copy.writeWithoutTransaction { to in
                try from.backup(to: to, pagesPerStep: pagesAtOnce) { step in
                    progress(1 - Double(step.remainingPageCount) / Double(max(step.totalPageCount, 1)))
                }
            }
        }
        try source.close()
        let complaint = try copy.writeWithoutTransaction { db in
            // One file, which needs none beside it.
            try db.execute(sql: "PRAGMA journal_mode = DELETE; PRAGMA user_version = \(SQLiteNumber.make())")
            guard try db.tableExists("grdb_migrations") else { return "it is no store of Hapax" }
            return try String.fetchOne(db, sql: "PRAGMA quick_check(1)") ?? "it cannot be checked"
        }
        try copy.close()
        guard complaint == "ok" else {
            throw Problem(description: "\(path) was copied, and the copy is of no use, as most likely the store itself: \(complaint)")
        }
        // SQLite has put its content on the disk; the name is put there by a flush of the directory.
        // A file of that name that has appeared meanwhile stays.
        do throws(FirstName.Failure) { try FirstName.give(target, to: partial) } catch {
            switch error {
            case .taken: throw Problem(description: "\(target) exists already: name another file")
            case .unsupported:
                throw Problem(
                    description:
                        "\(target) is on a file system that can neither link files nor rename one only to a free name: name a file on another disk"
                )
            case .system(let number): throw Problem(description: "\(target) cannot be made: \(String(cString: strerror(number)))")
            }
        }
        guard flush(URL(fileURLWithPath: target).deletingLastPathComponent().path) else {
            throw Problem(description: "\(target) cannot be put on the disk: \(String(cString: strerror(errno)))")
        }
        let bytes = (try? files.attributesOfItem(atPath: target)[.size] as? NSNumber)?.int64Value ?? 0
        guard files.createFile(atPath: mark(of: path), contents: Data("\(target)\n".utf8), attributes: [.posixPermissions: 0o600]) else {
            throw Problem(description: "the backup is made, but it could not be noted in \(mark(of: path))")
        }
        return bytes
    }
}
