import Foundation

/// The files of one queue: `queue.sqlite`, `queue.ballast`, `queue.lock`, and in `spool` the queues of those who found it taken.
package struct QueueDirectory: Hashable, Sendable {
    package let path: String

    package init(path: String) {
        self.path = path
    }

    package var databasePath: String { path + "/queue.sqlite" }
    var ballastPath: String { path + "/queue.ballast" }
    package var lockPath: String { path + "/queue.lock" }
    private var spoolPath: String { path + "/spool" }

    private var databaseName: String { "queue.sqlite" }

    /// Renames the database and its log, which belongs to it; what the readers share can be made anew.
    ///
    /// - Returns: The new name.
    func setAside() throws -> String {
        let manager = FileManager.default
        var number = 1
        while manager.fileExists(atPath: path + "/\(databaseName).damaged-\(number)") { number += 1 }
        let name = "\(databaseName).damaged-\(number)"
        unlink(databasePath + "-shm")
        // The log first: a log beside a new database of the same name would be taken for its own.
        if manager.fileExists(atPath: databasePath + "-wal") {
            try manager.moveItem(atPath: databasePath + "-wal", toPath: path + "/" + name + "-wal")
        }
        try manager.moveItem(atPath: databasePath, toPath: path + "/" + name)
        return name
    }

    /// The names that ``setAside()`` gave.
    func damagedFiles() -> [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
        return names.filter { $0.hasPrefix(databaseName + ".damaged-") && !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm") }.sorted()
    }

    package func spool(named name: String) -> QueueDirectory {
        QueueDirectory(path: spoolPath + "/" + name)
    }

    /// By name; a spool's name is a UUID that carries its time, so that the oldest comes first.
    package func spools() -> [QueueDirectory] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: spoolPath)) ?? []
        return names.sorted().map { spool(named: $0) }
    }

    /// Removes a queue's own files and then the directory; one that holds anything else stays.
    ///
    /// The lock file goes last: whoever waits for it must find it gone, not a queue half removed.
    func removeFiles() {
        for file in [databasePath, databasePath + "-wal", databasePath + "-shm", ballastPath, lockPath] { unlink(file) }
        rmdir(path)
    }
}
