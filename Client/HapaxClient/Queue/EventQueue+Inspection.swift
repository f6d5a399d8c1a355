import GRDB

extension EventQueue {
    /// The numbers of all dead letters, in the order they came.
    package func deadLetterNumbers() throws -> [Int64] {
        try readingLetters { db in
            try Self.checkLetters(db)
            return try Int64.fetchAll(db, sql: "SELECT row FROM dead_letters ORDER BY row")
        }
    }

    /// Forgets the waiting events, those of damaged files that can still be read included, and keeps the dead letters. Counted as
    /// ``purge()`` counts; durable on return.
    ///
    /// - Returns: How many there were.
    /// - Throws: Also while a damaged file cannot be taken over, as for want of room: what it holds would come back afterwards. Purging the
    ///   dead letters as well forgets that, too.
    package func purgeWaiting() async throws -> Int {
        await salvage()
        guard damage.withLock({ $0.pending.isEmpty }) else { throw salvageFailure?.cause ?? DatabaseError(resultCode: .SQLITE_FULL) }
        let before = books.depth
        try transaction { db, books in _ = try Self.purgeWaiting(db, &books) }
        eraseFreePages()
        return Int(before)
    }
}
