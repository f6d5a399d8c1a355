import Foundation
import HapaxModel
import HapaxSQLite

/// A queue's directory: `1.sqlite`, `2.sqlite`, … which are equals, a lock file beside each, and what belongs to all of them.
///
/// A client owns one file, and nobody else opens that. The lock files are never deleted, so that a number always means the same install's
/// file or the one that took over from it.
package struct QueueDirectory: Hashable, Sendable {
    package let path: String

    /// Files in one directory; no more are begun.
    static let maximumFiles = 10_000

    /// - Parameter path: A relative one is taken from where the process works now: it may work elsewhere later.
    package init(path: String) {
        self.path = path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
    }

    package func databasePath(_ number: Int) -> String { path + "/\(number).sqlite" }
    package func lockPath(_ number: Int) -> String { path + "/\(number).lock" }
    var ballastPath: String { path + "/ballast" }
    func statusPath(_ number: Int) -> String { path + "/\(number).status" }
    package var identityPath: String { path + "/identity.json" }
    package var pausePath: String { path + "/pause" }
    var projectsPath: String { path + "/projects" }
    var destinationsPath: String { path + "/destinations" }
    package var consentPath: String { path + "/consent" }
    /// Of versions before 0.1.
    var optOutPath: String { path + "/opt-out" }

    /// Makes the directory, readable by its owner only.
    package func make() throws(StorageFailure) {
        do {
            try OwnedFile.makeDirectory(path)
        } catch {
            // A file is in its place.
            let isFile = (error as? CocoaError)?.code == .fileWriteFileExists
            throw isFile ? StorageFailure(errno: ENOTDIR) : StorageFailure(error)
        }
        DeviceStorage.keepOpen(path)
        if isOfAnEarlierVersion { throw .earlierVersion }
        if FileSystem.isShared(path) { throw .sharedDisk }
    }

    /// The numbers of all files, smallest first; none if there is no directory.
    ///
    /// - Throws: If the directory cannot be listed: that is not the same as none.
    package func numbers() throws(StorageFailure) -> [Int] {
        let names = try names()
        func numbers(_ suffix: String) -> [Int] {
            // A number that was written another way is somebody else's file.
            names.compactMap { name in
                name.hasSuffix(suffix) ? Int(name.dropLast(suffix.count)).flatMap { "\($0)\(suffix)" == name && $0 > 0 ? $0 : nil } : nil
            }
        }
        // An empty lock file without a database is somebody's attempt to begin one.
        var all = Set(numbers(".sqlite"))
        for number in numbers(".lock") where try FileStatus.size(of: lockPath(number)) != 0 { all.insert(number) }
        return all.sorted()
    }

    /// Whether an earlier version keeps its queue here: it is left as it is.
    var isOfAnEarlierVersion: Bool {
        ["queue.sqlite", "queue.lock", "spool"].contains { FileManager.default.fileExists(atPath: path + "/" + $0) }
    }

    /// The names of damaged files that were set aside, of one file or of all, in the order in which that happened.
    ///
    /// - Throws: If the directory cannot be listed: that is not the same as none.
    package func filesSetAside(_ number: Int? = nil) throws(StorageFailure) -> [String] {
        try names().compactMap { name -> (name: String, file: Int, aside: Int)? in
            guard let range = name.range(of: Self.setAsideSuffix), let aside = Int(name[range.upperBound...]),
                let file = Int(name[..<range.lowerBound])
            else { return nil }
            return number == nil || number == file ? (name, file, aside) : nil
        }.sorted { ($0.file, $0.aside) < ($1.file, $1.aside) }.map(\.name)
    }

    /// Renames a damaged database and its log to a name that no file had.
    func setAside(_ number: Int) throws {
        let taken = try filesSetAside(number).last.flatMap { name in
            name.range(of: Self.setAsideSuffix).flatMap { Int(name[$0.upperBound...]) }
        }
        let database = databasePath(number)
        // Of one that somebody deleted only the log is left.
        if try FileStatus.size(of: database) == nil {
            let descriptor = OwnedFile.descriptor(database)
            guard descriptor >= 0 else { throw StorageFailure(errno: errno) }
            close(descriptor)
        }
        try move(database, "\(path)/\(number)\(Self.setAsideSuffix)\((taken ?? 0) + 1)")
        try finishSettingAside(number)
    }

    /// A log whose database has been set aside goes with it, also after a crash between the two renames.
    ///
    /// - Parameter keepsLog: Whether a log of which there is no database stays.
    func finishSettingAside(_ number: Int, keepsLog: Bool = false) throws {
        let database = databasePath(number)
        guard try FileStatus.size(of: database) == nil else { return }
        if let name = try filesSetAside(number).last, try FileStatus.size(of: "\(path)/\(name)-wal") == nil,
            try FileStatus.size(of: database + "-wal") != nil
        {
            try move(database + "-wal", "\(path)/\(name)-wal")
        }
        if !keepsLog { DatabaseFile.removeLogs(database) }
    }

    /// Whether a file in which there was something is empty or missing. SQLite takes such a one for a new database, and removes the log beside it, also
    /// for who only reads.
    func isEmptied(_ number: Int, isNew: Bool) throws(StorageFailure) -> Bool {
        let path = databasePath(number)
        let hasLog = try FileStatus.size(of: path + "-wal") ?? 0 > 0
        guard let size = try FileStatus.size(of: path) else { return hasLog }
        return size == 0 && (!isNew || hasLog)
    }

    private func move(_ path: String, _ name: String) throws {
        guard rename(path, name) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    private static let setAsideSuffix = ".sqlite.damaged-"

    private func names() throws(StorageFailure) -> [String] {
        // Foundation's error does not say which it is.
        guard let list = opendir(path) else {
            if errno == ENOENT { return [] }
            throw StorageFailure(errno: errno)
        }
        closedir(list)
        do { return try FileManager.default.contentsOfDirectory(atPath: path) } catch { throw StorageFailure(error) }
    }
}

/// Why a queue cannot be used.
package enum QueueOpenError: Error, Hashable, Sendable {
    /// Another process, or another client in this one, works on the file.
    case taken
    case unusable(StorageFailure)

    /// Whether it lies with one queue file, while another may be opened.
    var isOfOneFile: Bool { if case .unusable(let failure) = self { failure.isOfOneFile } else { false } }
}
