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
