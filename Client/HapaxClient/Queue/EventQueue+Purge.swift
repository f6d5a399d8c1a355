import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// Forgets every event, waiting or dead, and empties the pages that held them. Waiting ones are counted as discarded and under `purged`,
    /// which the server is told. What a damaged file holds is forgotten with them, whether it can be read or not.
    ///
    /// - Returns: How many there were.
    @discardableResult
    package func purge() throws -> (waiting: Int, deadLetters: Int) {
        // One that is set aside behind this commit can hold events that were tracked behind it.
        var files: [DamagedFile] = []
        func committed(_ purged: (ids: [EventID], letters: Int)) {
            // Before anybody can meet damage and begin a file that remembers them.
            let names = Set(files.map(\.name))
            damage.withLock { $0.pending.removeAll { names.contains($0.name) } }
            tell(.removed(purged.ids))
        }
        let purged = try transaction(committed: committed) { db, books in
            files = damage.withLock { $0.pending }
            let ids = try Self.purgeWaiting(db, &books)
            try db.execute(sql: "DELETE FROM dead_letters")
            (books.letters, books.letterBytes) = (0, 0)
            let letters = db.changesCount
            // What could not be salvaged before, as on a full disk, must not come back later.
            for file in files {
                guard let known = try DamagedFile(named: file.name, db), !known.isSalvaged else { continue }
                let damage = known.damage
                if let missing = known.remaining {
                    try Self.countMissing(Int64(missing), of: file, as: "purged", db, &books)
                }
                // Those of a file that a running client set aside are in its books already.
                guard !file.isOwn, let letters = damage.lostDeadLetters else { continue }
                books.adopted += Int64(letters)
                books.deadLettered += Int64(letters)
            }
            try db.execute(sql: "UPDATE damaged_files SET is_salvaged = 1; DELETE FROM salvaged_rows")
            return (ids: ids, letters: letters)
        }
        markSalvaged(files)
        eraseFreePages()
        return (purged.ids.count, purged.letters)
    }

    static func purgeWaiting(_ db: Database, _ books: inout QueueBooks) throws -> [EventID] {
        let ids = try Data.fetchAll(db, sql: "SELECT event_id FROM queue").compactMap { EventID(bytes: $0) }
        try db.execute(sql: "DELETE FROM queue")
        let waiting = Int64(db.changesCount)
        if waiting > 0 { try count(db, &books, "purged", waiting) }
        books.discarded += books.depth
        (books.depth, books.bytes) = (0, 0)
        return ids
    }
}
