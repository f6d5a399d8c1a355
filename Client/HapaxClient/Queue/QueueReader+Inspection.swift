import Foundation
import GRDB
import HapaxModel

/// A waiting event, as people look at it.
package struct QueuedEvent: Hashable, Sendable {
    /// Its name among the events of its queue; the oldest has the smallest.
    package var number: Int64
    package var id: EventID
    package var name: String
    /// When it happened, in Unix milliseconds.
    package var time: Int64
    /// As it will travel.
    package var bytes: [UInt8]

    /// - Throws: ``DamagedRows`` if it no longer is what was stored.
    init(_ row: Row) throws {
        number = try row.value("row")
        guard let waiting = try? WaitingRow(row) else { throw DamagedRows(rows: [number]) }
        id = waiting.id
        time = try row.value("time")
        bytes = waiting.payload
        name = String(decoding: EventScanner.scan(bytes[...]).name, as: UTF8.self)
    }

    fileprivate static let columns = "row, event_id, payload, time, install_id, check_sum"
}

extension QueueReader {
    /// Oldest first, those after `number`.
    ///
    /// - Returns: Those that are what was stored, and the numbers of the others.
    package func events(after number: Int64, limit: Int) throws(StorageFailure) -> (whole: [QueuedEvent], damaged: [Int64]) {
        try work { db in
            let rows = try Row.fetchCursor(
                db, sql: "SELECT \(QueuedEvent.columns) FROM queue WHERE row > ? ORDER BY row LIMIT ?", arguments: [number, limit])
            var (whole, damaged): ([QueuedEvent], [Int64]) = ([], [])
            while let row = try rows.next() {
                do { whole.append(try QueuedEvent(row)) } catch let rows as DamagedRows { damaged += rows.rows }
            }
            return (whole, damaged)
        }
    }

    /// - Returns: nil if it does not wait.
    package func event(of id: EventID) throws(StorageFailure) -> QueuedEvent? {
        try work { db in
            try Row.fetchOne(
                db, sql: "SELECT \(QueuedEvent.columns) FROM queue WHERE event_id = ?", arguments: [Data(id.bytes)]
            ).map { try QueuedEvent($0) }
        }
    }

    /// The latest dead letter of this event.
    package func deadLetter(of id: EventID) throws(StorageFailure) -> DeadLetter? {
        try work { db in
            try Row.fetchOne(
                db, sql: "SELECT * FROM dead_letters WHERE event_id = ? ORDER BY row DESC", arguments: [Data(id.bytes)]
            ).map { try EventQueue.deadLetter($0) }
        }
    }
}
