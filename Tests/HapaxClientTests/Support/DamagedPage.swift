import Foundation
import GRDB

@testable import HapaxClient

/// Changes pages of a file as a disk does, below SQLite.
enum DamagedPage {
    /// nil if there is no file.
    static func pages(of path: String) -> Int? {
        (try? FileManager.default.attributesOfItem(atPath: path)[.size] as? Int).flatMap { $0 }.map { $0 / QueueRoom.pageBytes }
    }

    /// - Parameter bytes: So many of the page's first ones.
    static func make(in path: String, page: Int, bytes: Int = QueueRoom.pageBytes) throws {
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        defer { try? file.close() }
        try file.seek(toOffset: UInt64(page * QueueRoom.pageBytes))
        try file.write(contentsOf: Data(repeating: 0xA5, count: bytes))
    }
}

extension QueueFile {
    /// Empties the log into the file and forgets what is in memory, so that the next statement reads what lies on the disk.
    func readPagesAnew() throws {
        try Self.work(on: try database) { db in
            try db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA shrink_memory")
        }
    }
}
