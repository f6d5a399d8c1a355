import Foundation
import GRDB
import HapaxModel

/// A waiting event, as people look at it.
package struct QueuedEvent: Hashable, Sendable {
    /// Its sequence in its file.
    package var number: Int64
    package var id: EventID
    package var name: String
    /// When it happened, in Unix milliseconds.
    package var time: Int64
    /// As it will travel.
    package var bytes: [UInt8]
    /// Whether the server has refused it alone.
    package var isHeld: Bool
}

extension QueueFile {
    /// Oldest first, those after `number`.
    ///
    /// - Returns: Those that are what was stored, and the numbers of the others.
    package func events(after number: Int64, limit: Int) throws -> (whole: [QueuedEvent], damaged: [Int64]) {
        try reading { try Self.events(try StoredRows($0, where: "sequence > ?", [number], limit: limit)) }
    }

    /// - Returns: nil if it does not wait, or is not what was stored.
    package func event(of id: EventID) throws -> QueuedEvent? {
        try reading { db in
            let sequence = try Int64.fetchOne(db, sql: "SELECT sequence FROM events WHERE event_id = ?", arguments: [Data(id.bytes)])
            return try sequence.flatMap { try Self.events(try StoredRows(db, where: "sequence = ?", [$0], limit: 1)).whole.first }
        }
    }

    private static func events(_ rows: StoredRows) throws -> (whole: [QueuedEvent], damaged: [Int64]) {
        defer { rows.end() }
        var (whole, damaged): ([QueuedEvent], [Int64]) = ([], [])
        while let row = try rows.next() {
            guard let event = row.event else {
                damaged.append(row.sequence)
                continue
            }
            let outgoing = OutgoingEvent(
                sequence: row.sequence, id: event.id, bytes: event.payload, isRetried: event.state == .retried)
            whole.append(
                QueuedEvent(
                    number: row.sequence, id: event.id, name: String(decoding: EventScanner.scan(event.payload[...]).name, as: UTF8.self),
                    time: event.time, bytes: outgoing.wire, isHeld: event.state == .held))
        }
        return (whole, damaged)
    }
}
