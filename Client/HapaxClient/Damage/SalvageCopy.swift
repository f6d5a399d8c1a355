import Foundation
import HapaxSQLite

/// A copy of a damaged queue file that SQLite can read where it cannot read the file itself: with a log in which no commit is hidden,
/// with a first page that is made anew, and with inner pages that lead to all rows.
enum SalvageCopy {
    /// How much of a file a copy takes over; the rest of it is empty.
    enum Extent {
        /// Where a queue keeps what is there once: its books, whom events concern.
        case state
        case everything

        fileprivate static let stateLength = 64 * QueueRoom.pageBytes
    }

    /// Copies a file with the pages of its log, of which some are made anew.
    static func make(of source: String, at target: String, replacing pages: [UInt32: [UInt8]]) throws {
        try FileManager.default.copyItem(atPath: DatabaseFile.resolved(source), toPath: target)
        try QueuePages(path: source).write(to: target, replacing: pages)
    }

    /// Copies a file and its log.
    ///
    /// - Parameter log: The log, if the copy is to have another than the file's own.
    /// - Throws: What the disk says; the copy has to be removed then as well.
    static func make(of source: String, at target: String, _ extent: Extent, log: Data?) throws {
        let source = DatabaseFile.resolved(source)
        switch extent {
        case .everything: try FileManager.default.copyItem(atPath: source, toPath: target)
        case .state: try copyState(source, to: target)
        }
        if let log {
            try write(log, to: target + "-wal")
        } else if FileManager.default.fileExists(atPath: source + "-wal") {
            try FileManager.default.copyItem(atPath: source + "-wal", toPath: target + "-wal")
        }
    }

    /// For its owner only, as the queue's own files.
    private static func write(_ bytes: Data, to path: String) throws {
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: DatabaseFile.prepare(path)))
        defer { try? file.close() }
        try file.write(contentsOf: bytes)
    }

    static func replaceFirstPage(of target: String, by page: Data) throws {
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: target))
        defer { try? file.close() }
        try file.write(contentsOf: page)
    }

    /// The copy is as long as the file, so that no page number in it is beyond its end.
    private static func copyState(_ source: String, to target: String) throws {
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: source))
        defer { try? file.close() }
        let bytes = try file.read(upToCount: Extent.stateLength) ?? Data()
        let length = try file.seekToEnd()
        try write(bytes, to: target)
        let copy = try FileHandle(forWritingTo: URL(fileURLWithPath: target))
        defer { try? copy.close() }
        try copy.truncate(atOffset: length)
    }
}
