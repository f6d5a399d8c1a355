import Foundation
import HapaxSQLite

#if canImport(Glibc)
import Glibc
#endif

/// The files of one queue: `queue.sqlite`, `queue.ballast`, `queue.lock`, `queue.destination`, `queue.opted-out` if events are refused, and
/// in `spool` the queues of those who found it taken.
package struct QueueDirectory: Hashable, Sendable {
    package let path: String

    /// - Parameter path: A relative one is taken from where the process works now: it may work elsewhere later.
    package init(path: String) {
        self.path = path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
    }

    package var databasePath: String { path + "/queue.sqlite" }
    /// Of a queue that is being made.
    var newDatabasePath: String { databasePath + ".new" }
    var ballastPath: String { path + "/queue.ballast" }
    var optOutPath: String { path + "/queue.opted-out" }
    var destinationPath: String { path + "/queue.destination" }
    package var lockPath: String { path + "/queue.lock" }
    package var spoolPath: String { path + "/\(Self.spools)" }
    private static let spools = "spool"

    /// Of a spool, from the main queue's directory.
    var nameInMain: String { Self.spools + "/" + (path as NSString).lastPathComponent }

    // MARK: - Spools

    /// Queues beside the main one that wait for their delivery; no more are begun then.
    static let maximumSpools = 10_000

    package func spool(named name: String) -> QueueDirectory {
        QueueDirectory(path: spoolPath + "/" + name)
    }

    var hasRoomForSpool: Bool {
        ((try? FileManager.default.contentsOfDirectory(atPath: spoolPath)) ?? []).count < Self.maximumSpools
    }

    /// By name; a spool's name is a UUID that carries its time, so that the oldest comes first. One of which only
    /// salvaged files are left is none any more.
    ///
    /// - Throws: If they cannot be listed: that is not the same as none.
    package func spools() throws(StorageFailure) -> [QueueDirectory] {
        // Foundation's error does not say which it is.
        guard let list = opendir(spoolPath) else {
            if errno == ENOENT { return [] }
            throw StorageFailure(errno: errno)
        }
        closedir(list)
        let names: [String]
        do { names = try FileManager.default.contentsOfDirectory(atPath: spoolPath) } catch { throw StorageFailure(error) }
        return names.sorted().map { spool(named: $0) }.filter { spool in
            // As a file that a desktop has left.
            if spool.isFile { return false }
            let files = spool.filesSetAside
            return spool.hasQueue || files.isEmpty || !files.allSatisfy(spool.isSalvaged)
        }
    }

    /// Whether there is a queue, or was one whose log is left.
    package var hasQueue: Bool {
        [databasePath, databasePath + "-wal"].contains { FileManager.default.fileExists(atPath: $0) }
    }

    /// Whether anything has its name: a spool that was delivered has not.
    package var isThere: Bool { FileManager.default.fileExists(atPath: path) }

    private var isFile: Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT != S_IFDIR
    }

    /// Why nobody can tell whether there is a queue, as `errno`; nil if that can be told.
    var obstacle: Int32? {
        var status = stat()
        guard stat(databasePath, &status) != 0, errno != ENOENT else { return nil }
        return errno
    }

    /// Whether there may be events that are not in the queue's file: in files that were set aside and not salvaged, or beside the queue.
    package var holdsMore: Bool { (try? spools().isEmpty) != true || holdsUnsalvaged }

    /// Whether a file that was set aside may hold what the queue has not taken over.
    package var holdsUnsalvaged: Bool { filesSetAside.contains { !isSalvaged($0) } }

    /// The same for it and the queues beside it.
    package var holdsUnsalvagedAnywhere: Bool { holdsUnsalvaged || spoolsByName.contains { $0.holdsUnsalvaged } }

    /// Removes a queue's own files and then the directory; one that holds anything else stays.
    ///
    /// The lock file goes last: whoever waits for it must find it gone, not a queue half removed.
    func removeFiles() {
        for database in [databasePath, newDatabasePath] { DatabaseFile.remove(database) }
        for file in [ballastPath, destinationPath, lockPath] { unlink(file) }
        rmdir(path)
    }

    // MARK: - Damaged files

    /// Renames the database and its log or journal, which belong to it; what the readers share can be made anew.
    ///
    /// - Parameter known: The highest number known to have been given; its file may have been deleted since.
    /// - Returns: The new name, which no file had: not even one of which only a log or a mark is left.
    func setAside(above known: Int64 = 0) throws -> String {
        let given = try names.filter { $0.hasPrefix(Self.damagedPrefix) }.compactMap {
            Self.given($0.dropFirst(Self.damagedPrefix.count).prefix { $0.isASCII && $0.isNumber })
        }
        let number = max(given.max() ?? 0, Int(clamping: known)) + 1
        let name = "\(Self.damagedPrefix)\(number)"
        unlink(databasePath + "-shm")
        try Data().write(to: URL(fileURLWithPath: path + "/" + name + Self.movingSuffix))
        try FileManager.default.moveItem(atPath: databasePath, toPath: path + "/" + name)
        try setLogsAside(with: name)
        return name
    }

    /// After a crash between the renames: SQLite would delete a log that has no database, and roll another one back by its journal.
    ///
    /// A log that is left in another way belongs to none of the files that were set aside.
    func finishSettingAside() throws {
        for name in try names where name.hasPrefix(Self.damagedPrefix) && name.hasSuffix(Self.movingSuffix) {
            let file = String(name.dropLast(Self.movingSuffix.count))
            // Or nothing had been renamed yet.
            if FileManager.default.fileExists(atPath: path + "/" + file) {
                try setLogsAside(with: file)
            } else {
                unlink(path + "/" + name)
            }
        }
    }

    private func setLogsAside(with name: String) throws {
        for suffix in ["-wal", "-journal"] where FileManager.default.fileExists(atPath: databasePath + suffix) {
            try FileManager.default.moveItem(atPath: databasePath + suffix, toPath: path + "/" + name + suffix)
        }
        unlink(path + "/" + name + Self.movingSuffix)
    }

    /// The names that ``setAside()`` gave, in the order it gave them.
    ///
    /// - Throws: If the directory cannot be listed: that is not the same as none.
    package func damagedFiles() throws -> [String] {
        try names.compactMap { name in Self.number(name).map { (name, $0) } }.sorted { $0.1 < $1.1 }.map(\.0)
    }

    /// The same to look at: of a directory that is not there, none.
    package var filesSetAside: [String] { (try? damagedFiles()) ?? [] }

    /// Those of the queues beside this one, by their paths from here.
    package var filesSetAsideBeside: [String] {
        spoolsByName.flatMap { spool in
            spool.filesSetAside.map { "spool/\((spool.path as NSString).lastPathComponent)/\($0)" }
        }
    }

    /// Whatever there is in the place of the queues beside this one, also what is none any more.
    private var spoolsByName: [QueueDirectory] {
        ((try? FileManager.default.contentsOfDirectory(atPath: spoolPath)) ?? []).sorted().map { spool(named: $0) }
    }

    /// Whether nothing is left to be taken from a file that was set aside: then it must not come back, even if the file it went into is
    /// set aside in its turn and cannot be read at all.
    func isSalvaged(_ name: String) -> Bool { FileManager.default.fileExists(atPath: salvagedMark(name)) }

    /// Of a file that cannot be read as it is; one that is there when a queue opens was left by a crash.
    static func copy(of file: String) -> String { file + ".copy" }

    func removeCopies() throws {
        for name in try damagedFiles() { DatabaseFile.remove(Self.copy(of: path + "/" + name)) }
    }

    /// To be called once that is durable. A file that is gone needs no mark.
    func markSalvaged(_ name: String) throws {
        guard FileManager.default.fileExists(atPath: path + "/" + name) else { return }
        try Data().write(to: URL(fileURLWithPath: salvagedMark(name)))
    }

    private func salvagedMark(_ name: String) -> String { path + "/" + name + ".salvaged" }

    private var names: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: path) } }

    private static let damagedPrefix = "queue.sqlite.damaged-"
    /// Beside a file whose log is still to follow it.
    private static let movingSuffix = ".moving"

    /// 1 for the first file that was set aside; nil for other files.
    static func number(_ name: String) -> Int? {
        name.hasPrefix(damagedPrefix) ? given(name.dropFirst(damagedPrefix.count)) : nil
    }

    /// Nobody gets so far by counting; somebody else named such a file.
    private static func given(_ digits: Substring) -> Int? { Int(digits).flatMap { (1...1_000_000_000).contains($0) ? $0 : nil } }
}
