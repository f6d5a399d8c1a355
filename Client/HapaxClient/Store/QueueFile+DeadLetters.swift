import Foundation
import GRDB
import HapaxModel

extension QueueFile {
    /// - Parameter isKnownToServer: Whether the server knows, since it refused the event itself.
    static func bury(_ deadLetter: DeadLetter, isKnownToServer: Bool, _ db: Database, _ counters: inout QueueCounters) throws {
        let sum = checkSum(deadLetter.number, deadLetter.eventID, deadLetter.unixMilliseconds, deadLetter.event)
        try db.cachedStatement(
            sql: """
                INSERT OR REPLACE INTO dead_letters (sequence, event_id, time, reason, detail, check_sum, payload) VALUES (?, ?, ?, ?, ?, ?, ?)
                """
        ).execute(
            arguments: [
                deadLetter.number, deadLetter.eventID.map { Data($0.bytes) }, deadLetter.unixMilliseconds, deadLetter.reason,
                deadLetter.detail, sum,
                Data(deadLetter.event),
            ])
        counters.deadLettered += 1
        counters.deadLetters += 1
        counters.deadLetterBytes += Int64(deadLetter.event.count)
        if !isKnownToServer { try noteRemoved(deadLetter.number...deadLetter.number, deadLetter.reason, db, &counters) }
    }

    private static func checkSum(_ sequence: Int64, _ id: EventID?, _ time: Int64, _ bytes: [UInt8]) -> Int64 {
        Int64(RowCheckSum.ofRow(.deadLetter, sequence: sequence, id: id, time: time, payload: RowCheckSum.ofPayload(bytes)))
    }

    /// One whose bytes changed on the disk has this for its reason, whatever it was before.
    static func deadLetter(_ row: Row) throws -> DeadLetter {
        let id = (try row.optional("event_id") as Data?).flatMap { EventID(bytes: $0) }
        let event = [UInt8](try row.value("payload") as Data)
        let (number, time): (Int64, Int64) = (try row.value("sequence"), try row.value("time"))
        var (reason, detail): (String, String) = (try row.value("reason"), try row.value("detail"))
        if try row.value("check_sum") != checkSum(number, id, time, event) { (reason, detail) = DeadLetter.changed }
        return DeadLetter(number: number, eventID: id, reason: reason, detail: detail, time: time, event: event)
    }

    /// Those after `number`, in the order of their sequences.
    package func deadLetters(after number: Int64, limit: Int) throws -> [DeadLetter] {
        let sql = "SELECT * FROM dead_letters WHERE sequence > ? ORDER BY sequence LIMIT ?"
        return try reading { try Row.fetchAll($0, sql: sql, arguments: [number, limit]).map { try Self.deadLetter($0) } }
    }

    /// The latest of this event.
    package func deadLetter(of id: EventID) throws -> DeadLetter? {
        let sql = "SELECT * FROM dead_letters WHERE event_id = ? ORDER BY sequence DESC LIMIT 1"
        return try reading { try Row.fetchOne($0, sql: sql, arguments: [Data(id.bytes)]).map { try Self.deadLetter($0) } }
    }

    /// Puts letters back among what waits, under their sequences, if they obey the limits now; the others stay. In chunks, each durable
    /// when the next begins: a failure leaves what was done before.
    ///
    /// - Parameter numbers: nil for all that are there.
    package func retryDeadLetters(_ numbers: [Int64]?) throws -> RetriedDeadLetters {
        var result = RetriedDeadLetters()
        var after: Int64 = 0
        let last = counters.created
        var left = numbers.map { Set($0).sorted()[...] }
        try inChunks {
            let (done, end): (RetriedDeadLetters, Int64?) = try transaction { db, counters in
                try requireFile()
                var (done, bytes, rows) = (RetriedDeadLetters(), Int64(0), 0)
                let insert = try RowInsert(db)
                while rows < chunkLimit, bytes < Self.chunkBytes {
                    guard let row = try Self.nextDeadLetter(after: &after, upTo: last, of: &left, db) else { return (done, nil) }
                    guard let row else { continue }
                    rows += 1
                    let deadLetter = try Self.deadLetter(row)
                    bytes += Int64(deadLetter.event.count)
                    if try Self.retry(deadLetter, insert, db, &counters) {
                        if let id = deadLetter.eventID { done.retried.append(id) }
                    } else {
                        done.unfit += 1
                    }
                }
                return (done, after)
            }
            result.retried += done.retried
            result.unfit += done.unfit
            return end != nil
        }
        try flushDrive()
        return result
    }

    /// - Returns: nil at the end; inside, nil for a number that is none.
    private static func nextDeadLetter(
        after: inout Int64, upTo last: Int64, of numbers: inout ArraySlice<Int64>?, _ db: Database
    ) throws -> Row?? {
        let row: Row?
        if numbers != nil {
            guard let number = numbers?.popFirst() else { return .none }
            row = try Row.fetchOne(db.cachedStatement(sql: "SELECT * FROM dead_letters WHERE sequence = ?"), arguments: [number])
        } else {
            let sql = "SELECT * FROM dead_letters WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT 1"
            row = try Row.fetchOne(db.cachedStatement(sql: sql), arguments: [after, last])
            guard let row else { return .none }
            after = try row.value("sequence")
        }
        return .some(row)
    }

    /// - Returns: false if it stays a dead letter.
    private static func retry(_ deadLetter: DeadLetter, _ insert: RowInsert, _ db: Database, _ counters: inout QueueCounters) throws -> Bool
    {
        let scanned = EventScanner.scan(deadLetter.event[...])
        guard scanned.problem == nil, let id = scanned.id, deadLetter.holdsWhatWasTracked,
            deadLetter.event.count + OutgoingEvent.addedBytes <= EventLimits.maximumEventBytes,
            // If its id waits, perhaps with other content: one at a time.
            try insert.insert(
                sequence: deadLetter.number, id: id, time: scanned.time, state: .retried, payload: deadLetter.event,
                payloadSum: RowCheckSum.ofPayload(deadLetter.event))
        else { return false }
        try db.cachedStatement(sql: "DELETE FROM dead_letters WHERE sequence = ?").execute(arguments: [deadLetter.number])
        counters.deadLettered -= 1
        counters.deadLetters -= 1
        counters.deadLetterBytes -= Int64(deadLetter.event.count)
        counters.waiting += 1
        counters.bytes += Int64(deadLetter.event.count)
        return true
    }

    /// Removes letters for ever, in chunks. They stay counted.
    ///
    /// - Parameter numbers: nil for all that are there.
    /// - Returns: How many there were.
    package func purgeDeadLetters(_ numbers: [Int64]? = nil) throws -> Int {
        let last = counters.created
        var purged = 0
        try erasing {
            if let numbers {
                for start in stride(from: 0, to: numbers.count, by: chunkLimit) {
                    let chunk = numbers[start..<min(start + chunkLimit, numbers.count)].map(String.init)
                    purged += try purgeDeadLetterRows("sequence IN (\(chunk.joined(separator: ",")))")
                }
            } else {
                try inChunks {
                    let count = try purgeDeadLetterRows(
                        "sequence IN (SELECT sequence FROM dead_letters WHERE sequence <= \(last) ORDER BY sequence LIMIT \(chunkLimit))")
                    purged += count
                    return count > 0
                }
            }
        }
        try flushDrive()
        return purged
    }

    private func purgeDeadLetterRows(_ condition: String) throws -> Int {
        try transaction { try Self.purgeDeadLetterRows(condition, $0, &$1) }
    }

    static func purgeDeadLetterRows(_ condition: String, _ db: Database, _ counters: inout QueueCounters) throws -> Int {
        let lengths = try Int64.fetchAll(db, sql: "DELETE FROM dead_letters WHERE \(condition) RETURNING length(payload)")
        counters.deadLetters -= Int64(lengths.count)
        counters.deadLetterBytes -= lengths.reduce(0, +)
        return lengths.count
    }
}
