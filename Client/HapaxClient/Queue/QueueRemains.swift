import Foundation
import GRDB
import HapaxModel

/// What is left of a queue in which nothing waits: what the server has to be told of it.
package struct QueueRemains: Hashable, Sendable {
    var drops: DropCounts
    /// Damaged files of which the event that tells is still to be stored.
    var damaged: [DamagedFile]

    var isUntold: Bool { drops.isUntold || !damaged.isEmpty }
}

extension EventQueue {
    /// - Returns: nil if there is more: an event, a dead letter, or a session that is open.
    func remains(_ db: Database) throws -> QueueRemains? {
        let sql = "SELECT EXISTS (SELECT 1 FROM queue) OR EXISTS (SELECT 1 FROM dead_letters) OR EXISTS (SELECT 1 FROM session)"
        guard try Int.fetchOne(db, sql: sql) == 0 else { return nil }
        return QueueRemains(drops: books.drops, damaged: try DamagedFile.untold(db))
    }

    /// Takes over what another queue, which is to go then, has to tell; durable on return. Done twice, it is the same as once.
    package func adopt(_ remains: QueueRemains) throws {
        guard !remains.drops.counts.isEmpty || !remains.damaged.isEmpty else { return }
        try transaction { db, books in
            // In one that no later client finds it would go with the process.
            try requireFile()
            try Self.adopt(remains.drops, db, &books)
            for file in remains.damaged { try file.insertIfUnknown(db) }
        }
    }
}
