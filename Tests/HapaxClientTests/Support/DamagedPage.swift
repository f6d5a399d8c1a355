import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Noise in a queue's file, where the row of one event is. SQLite meets it when it reads that page.
enum DamagedPage {
    /// In a closed file. It gets an empty log, as after a kill: then its pages are looked at when it opens.
    static func make(in path: String, at id: EventID) throws {
        try spoil(path, at: id)
        try Data().write(to: URL(fileURLWithPath: path + "-wal"))
    }

    /// Behind the back of an open queue.
    static func make(in queue: EventQueue, at id: EventID) throws {
        try queue.readPagesAnew()
        try spoil(queue.directory.databasePath, at: id)
    }

    /// Noise over the head of a page, which is counted from 0, or over all of it. The first page begins with the file's own header.
    static func make(in path: String, page: Int, bytes: Int = 64) throws {
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.seek(toOffset: UInt64(page * QueueRoom.pageBytes))
        try handle.write(contentsOf: Data(repeating: 0xFF, count: bytes))
        try handle.close()
    }

    static func pages(of path: String) throws -> Int {
        try #require(try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int) / QueueRoom.pageBytes
    }

    private static func spoil(_ path: String, at id: EventID) throws {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        let place = try #require(bytes.range(of: Data(id.description.utf8), options: .backwards)).lowerBound
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.seek(toOffset: UInt64(place / 4_096 * 4_096 + 1))
        try handle.write(contentsOf: Data(repeating: 0xFF, count: 200))
        try handle.close()
    }
}

extension EventQueue {
    /// Moves the log to the file, and forgets what was read of it: damage to the file is met by whoever reads that page next.
    func readPagesAnew() throws {
        try EventQueue.work(on: database) { db in
            _ = try db.checkpoint(.truncate)
            try db.execute(sql: "PRAGMA cache_size = 0; PRAGMA shrink_memory")
        }
    }
}

extension FaultyDisk {
    /// From this operation on nothing is read or written any more, as for a process that was killed there.
    func cutOff(at number: Int, _ operations: Set<Operation> = Set(Operation.allCases)) {
        fail(Fault(at: number, count: .max / 2, code: ResultCode.SQLITE_IOERR.rawValue, operations: operations))
    }
}
