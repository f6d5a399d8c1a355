import Foundation
import HapaxSQLite

/// The pages of a queue's file as its log has left them: those that SQLite would read.
final class QueuePages {
    private let file: FileHandle
    private let logged: [UInt32: [UInt8]]
    let count: UInt32

    init(path: String) throws {
        file = try FileHandle(forReadingFrom: URL(fileURLWithPath: DatabaseFile.resolved(path)))
        let inFile = try file.seekToEnd() / UInt64(QueueRoom.pageBytes)
        let log = QueueLog(of: path)?.pages()
        logged = log?.pages ?? [:]
        count = log?.count ?? UInt32(clamping: inFile)
    }

    deinit { try? file.close() }

    /// - Returns: nil if the file ends before it.
    func page(_ number: UInt32) throws -> [UInt8]? {
        guard number > 0 else { return nil }
        if let page = logged[number] { return page }
        try file.seek(toOffset: UInt64(number - 1) * UInt64(QueueRoom.pageBytes))
        guard let page = try file.read(upToCount: QueueRoom.pageBytes), page.count == QueueRoom.pageBytes else { return nil }
        return [UInt8](page)
    }

    /// Puts the log's pages, and then others, in their places in a copy of the file, which needs no log then.
    func write(to path: String, replacing pages: [UInt32: [UInt8]]) throws {
        let copy = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        defer { try? copy.close() }
        for (number, page) in logged.merging(pages, uniquingKeysWith: { $1 }) where number > 0 {
            try copy.seek(toOffset: UInt64(number - 1) * UInt64(QueueRoom.pageBytes))
            try copy.write(contentsOf: page)
        }
    }
}
