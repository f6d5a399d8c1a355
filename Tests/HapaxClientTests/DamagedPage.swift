import Foundation
import GRDB
import HapaxModel
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
        try queue.database.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)")
            try db.execute(sql: "PRAGMA cache_size = 0; PRAGMA shrink_memory")
        }
        try spoil(queue.directory.databasePath, at: id)
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

extension FaultyDisk {
    /// From this operation on nothing is read or written any more, as for a process that was killed there.
    func cutOff(at number: Int, _ operations: Set<Operation> = Set(Operation.allCases)) {
        fail(Fault(at: number, count: .max / 2, code: ResultCode.SQLITE_IOERR.rawValue, operations: operations))
    }
}
