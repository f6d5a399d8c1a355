import Foundation
import GRDB
import HapaxModel

extension EventQueue {
    /// - Parameters:
    ///   - number: nil for the next one.
    ///   - install: Whose the event is; nil for the queue's own, empty for nobody's.
    ///   - origin: Its number there.
    /// - Returns: Whether it was not there yet.
    @discardableResult
    static func bury(
        _ db: Database, _ books: inout QueueBooks, number: Int64? = nil, id: EventID?, install: Data?, origin: Int64?, reason: String,
        detail: String, payload: Data, time: Int64
    ) throws -> Bool {
        try db.cachedStatement(
            sql: """
                INSERT INTO dead_letters (row, event_id, reason, detail, payload, time, check_sum, install_id, origin)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
                """
        ).execute(
            arguments: [number, id.map { Data($0.bytes) }, reason, detail, payload, time, letterSum(id, [UInt8](payload)), install, origin])
        guard db.changesCount == 1 else { return false }
        books.letters += 1
        books.letterBytes += Int64(payload.count)
        return true
    }

    /// The same for a letter of another install or file, which is known again by its number there. Numbers can come back or change on a disk: a
    /// letter that is another one under the same number is kept as well.
    static func buryOther(
        _ db: Database, _ books: inout QueueBooks, id: EventID?, install: Data?, origin: Int64, reason: String, detail: String,
        payload: Data, time: Int64
    ) throws -> Bool {
        func bury(_ origin: Int64) throws -> Bool {
            try self.bury(
                db, &books, id: id, install: install, origin: origin, reason: reason, detail: detail, payload: payload, time: time)
        }
        if try bury(origin) { return true }
        let isSame = try Bool.fetchOne(
            db, sql: "SELECT event_id IS ? AND payload = ? FROM dead_letters WHERE install_id = ? AND origin = ?",
            arguments: [id.map { Data($0.bytes) }, payload, install, origin])
        guard isSame == false else { return false }
        return try bury(Int64(bitPattern: EventID.derived(name: "\(origin)", key: "\(letterSum(id, [UInt8](payload)))").low))
    }

    static func letterSum(_ id: EventID?, _ event: [UInt8]) -> Int64 {
        Int64(CheckSum.crc32(id ?? .derived(name: "", key: ""), event))
    }

    /// In the order they came, those after `number`.
    package func deadLetters(after number: Int64, limit: Int) throws -> [DeadLetter] {
        try readingLetters { try Self.deadLetters($0, after: number, limit: limit) }
    }

    /// Reads what must not be taken for all there is while a file that was set aside may hold more.
    func readingLetters<Value>(_ body: (Database) throws -> Value) throws -> Value {
        let value = try reading(body)
        // Behind it: the damage may have been met by this very read.
        try requireLetters()
        return value
    }

    /// - Throws: ``UnsalvagedLetters`` while a salvage can bring more. A disk that cannot be read keeps nobody from what is here.
    private func requireLetters() throws {
        let isAllHere = damage.withLock { $0.pending.allSatisfy(\.isSalvaged) }
        guard isAllHere || !isSalvageDue else { throw UnsalvagedLetters() }
    }

    /// Does it with all that the queue has: what has been set aside is salvaged before, and also if the damage is met on the way.
    package func salvaging<Value>(_ body: (EventQueue) async throws -> Value) async throws -> Value {
        await salvage()
        do {
            return try await body(self)
        } catch  where error.isDamage || error.isUseOfAClosedFile || error is UnsalvagedLetters {
            await salvage()
            return try await body(self)
        }
    }

    static func deadLetters(_ db: Database, after number: Int64, limit: Int) throws -> [DeadLetter] {
        let letters = try Row.fetchAll(
            db, sql: "SELECT * FROM dead_letters WHERE row > ? ORDER BY row LIMIT ?", arguments: [number, limit]
        ).map { try deadLetter($0) }
        // Pages can stand in each other's places: who reads on behind the last one would come back to them.
        guard zip([number] + letters.map(\.number), letters).allSatisfy({ $0 < $1.number }) else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT)
        }
        if letters.count < limit { try checkLetters(db) }
        return letters
    }

    /// At the opening, which others wait for.
    static let lettersCheckedAtOpening = 10_000

    /// Counts them, by the table and not by an index.
    ///
    /// - Parameter limit: Where to stop.
    /// - Throws: SQLITE_CORRUPT if the books know another number: a page can be empty, or from before.
    static func checkLetters(_ db: Database, atMost limit: Int = .max) throws {
        let sql = "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM dead_letters NOT INDEXED LIMIT ?)) = min(letters, ?) FROM books"
        guard try Int.fetchOne(db, sql: sql, arguments: [limit, limit]) == 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }

    /// The latest of this event.
    package func deadLetter(of id: EventID) throws -> DeadLetter? {
        try readingLetters { db in
            try Row.fetchOne(
                db, sql: "SELECT * FROM dead_letters WHERE event_id = ? ORDER BY row DESC", arguments: [Data(id.bytes)]
            ).map { try Self.deadLetter($0) }
        }
    }

    /// One whose bytes changed on the disk has this for its reason, whatever it was before.
    static func deadLetter(_ row: Row) throws -> DeadLetter {
        let id = (try row.optional("event_id") as Data?).flatMap { EventID(bytes: $0) }
        let event = [UInt8](try row.value("payload") as Data)
        var (reason, detail): (String, String) = (try row.value("reason"), try row.value("detail"))
        if try row.value("check_sum") != letterSum(id, event) { (reason, detail) = (DamagedRows.reason, DamagedRows.detail) }
        var letter = DeadLetter(
            number: try row.value("row"), eventID: id, reason: reason, detail: detail, time: try row.value("time"), event: event)
        letter.originNumber = try row.optional("origin")
        if let install = try row.optional("install_id") as Data? { letter.origin = EventID(bytes: install).map { .install($0) } ?? .nobody }
        return letter
    }

    package func deadLetterCount() throws -> Int {
        try readingLetters { db in
            try Self.checkLetters(db)
            return try Int.fetchOne(db, sql: "SELECT letters FROM books") ?? 0
        }
    }

    /// Puts letters back at the queue's end if they obey the limits now; the others stay.
    ///
    /// - Parameter numbers: nil for all.
    package func retryDeadLetters(_ numbers: [Int64]?) throws -> RetriedDeadLetters {
        try transaction(committed: { tell(.added($0.retried)) }) { db, books in
            try requireLetters()
            try requireFile()
            var result = RetriedDeadLetters()
            var tried: Set<Int64> = []
            var missing: Set<Int64> = []
            for number in try numbers ?? Int64.fetchAll(db, sql: "SELECT row FROM dead_letters ORDER BY row") {
                guard tried.insert(number).inserted else { continue }
                guard let row = try Row.fetchOne(db, sql: "SELECT * FROM dead_letters WHERE row = ?", arguments: [number]) else {
                    missing.insert(number)
                    continue
                }
                let letter = try Self.deadLetter(row)
                let scanned = EventScanner.scan(letter.event[...])
                guard scanned.problem == nil, let id = scanned.id, letter.holdsWhatWasTracked else {
                    result.unfit += 1
                    continue
                }
                let install: Data? = try row.optional("install_id")
                let isNew = try RowInsert(db).insert(
                    id: id, payload: letter.event, checkSum: CheckSum.crc32(id, letter.event), time: scanned.time,
                    install: install.map { [UInt8]($0) })
                guard isNew else {
                    // The id waits already, perhaps with other content: one at a time.
                    result.unfit += 1
                    continue
                }
                try db.execute(sql: "DELETE FROM dead_letters WHERE row = ?", arguments: [number])
                books.deadLettered -= 1
                books.letters -= 1
                books.letterBytes -= Int64(letter.event.count)
                books.depth += 1
                books.bytes += Int64(letter.event.count)
                result.retried.append(id)
            }
            if !missing.isEmpty { try requireAbsence(ofLetters: missing, db) }
            return result
        }
    }

    /// Removes letters for ever. They stay counted.
    package func purgeDeadLetters(_ numbers: [Int64]) throws -> Int {
        defer { eraseFreePages() }
        return try transaction { db, books in
            try requireLetters()
            // All at once takes next to no room in the log (https://www.sqlite.org/lang_delete.html, the truncate optimization): a disk that they
            // have filled has no more.
            if numbers.count >= books.letters {
                let present = try Int64.fetchAll(db, sql: "SELECT row FROM dead_letters")
                if Set(present).isSubset(of: numbers) {
                    try Self.checkLetters(db)
                    try db.execute(sql: "DELETE FROM dead_letters")
                    (books.letters, books.letterBytes) = (0, 0)
                    return present.count
                }
            }
            var purged = 0
            var missing: Set<Int64> = []
            for number in numbers {
                let sql = "DELETE FROM dead_letters WHERE row = ? RETURNING length(payload)"
                guard let length = try Int64.fetchOne(db, sql: sql, arguments: [number]) else {
                    missing.insert(number)
                    continue
                }
                books.letters -= 1
                books.letterBytes -= length
                purged += 1
            }
            if !missing.isEmpty { try requireAbsence(ofLetters: missing, db) }
            return purged
        }
    }

    /// Somebody else may have purged them. But where a page above the rows has changed, a look for one finds nothing, and a look at all does.
    private func requireAbsence(ofLetters numbers: Set<Int64>, _ db: Database) throws {
        let rows = try Int64.fetchCursor(db, sql: "SELECT row FROM dead_letters")
        while let row = try rows.next() {
            if numbers.contains(row) { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        }
    }

    private func bury(_ letter: DeadLetter, _ install: Data, _ db: Database, _ books: inout QueueBooks) throws -> Bool {
        guard let origin = letter.originNumber else {
            return try Self.bury(
                db, &books, id: letter.eventID, install: install, origin: nil, reason: letter.reason, detail: letter.detail,
                payload: Data(letter.event), time: letter.time)
        }
        return try Self.buryOther(
            db, &books, id: letter.eventID, install: install, origin: origin, reason: letter.reason, detail: letter.detail,
            payload: Data(letter.event), time: letter.time)
    }

    /// Takes over letters that belong to another install, or to none; again is the same as once if they have an origin number.
    ///
    /// - Parameter growing: Whether they come from nowhere that gives room back: then they get none of the ballast's, as events do not.
    package func adoptDeadLetters(_ letters: [DeadLetter], growing: Bool = false) throws {
        try transaction(growing: growing) { db, books in
            // They leave the queue that they come from: not for a file that no later client finds.
            try requireFile()
            for letter in letters {
                let install: Data
                switch letter.origin {
                case .own: preconditionFailure("a queue's own letters are not adopted")
                case .nobody: install = Data()
                case .install(let id): install = Data(id.bytes)
                }
                let isNew = try bury(letter, install, db, &books)
                guard isNew else { continue }
                books.adopted += 1
                books.deadLettered += 1
            }
        }
    }
}

/// What is in the queue is not all: a file was set aside, and is to be salvaged.
struct UnsalvagedLetters: Error {
    static let text = "the queue's file was damaged, and what can be read of it has not been taken over yet"
}

/// What became of dead letters that were to be sent again.
public struct RetriedDeadLetters: Hashable, Sendable {
    /// Back in the queue.
    public internal(set) var retried: [EventID] = []
    /// Still dead letters: they break a limit whatever the server says, their bytes changed on the disk, or their id waits in the queue.
    public internal(set) var unfit = 0

    package init() {}
}
