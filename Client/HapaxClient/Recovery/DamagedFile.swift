import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// A file that was set aside, read through SQLite as far as SQLite reads it.
struct DamagedFile {
    private let database: DatabaseQueue

    /// Queries that may fail in one call; the next one goes on behind them.
    private static let failuresPerCall = 1_000
    /// Where nobody knows how many rows there were, those behind so many that cannot be read are looked for in steps that double.
    private static let hopelessRows = Int64(300)

    /// - Returns: nil if it is not there, or SQLite finds that it cannot read it.
    /// - Throws: What may pass, as that the process may open no more files: the file can be read another time.
    static func unlessUnreadable(_ path: String) throws -> DamagedFile? {
        // SQLite would remove the log beside an empty one.
        guard try FileStatus.size(of: path) ?? 0 > 0 else { return nil }
        return try unlessUnreadable { try DamagedFile(path) }
    }

    private init(_ path: String) throws {
        var configuration = Configuration()
        configuration.readonly = true
        configuration.busyMode = DatabaseFile.busyMode
        database = try DatabaseQueue(path: path, configuration: configuration)
    }

    private static func unlessUnreadable<Value>(_ read: () throws -> Value?) throws -> Value? {
        do { return try read() } catch  where error.isUnreadable { return nil }
    }

    /// nil if it does not say, or not what can be right; so are the others.
    var counters: QueueCounters? {
        get throws { try Self.unlessUnreadable { try database.unsafeRead { try QueueCounters($0) } } }
    }

    /// What it was still to recover from files that were damaged before it.
    var recoveries: [Recovery]? {
        get throws { try Self.unlessUnreadable { try database.unsafeRead { try Recovery.all($0) } } }
    }

    var highestSequence: Int64? {
        get throws {
            let highest = "SELECT max((SELECT max(sequence) FROM events), ifnull((SELECT max(sequence) FROM dead_letters), 0))"
            return try Self.unlessUnreadable { try database.unsafeRead { try Int64.fetchOne($0, sql: highest) } }
        }
    }

    /// What one call has read.
    struct Chunk<Element> {
        var rows: [Element] = []
        /// Everything up to here has been looked at.
        var reached: Int64
    }

    /// Waiting events whose check sums hold.
    func events(_ range: ClosedRange<Int64>, maximumBytes: Int64) throws -> Chunk<(sequence: Int64, event: PreparedEvent, wasPending: Bool)>
    {
        try read("events", range, maximumBytes) { row in
            let (sequence, time): (Int64, Int64) = (try row.value("sequence"), try row.value("time"))
            let bytes = [UInt8](try row.value("payload") as Data)
            guard let id = EventID(bytes: try row.value("event_id") as Data) else { return nil }
            let event = PreparedEvent(id: id, time: time, bytes: bytes)
            let sum = RowCheckSum.ofRow(.event, sequence: sequence, id: id, time: time, payload: event.payloadSum)
            let wasPending = try row.optional("state") == RowState.pending.rawValue
            return try row.value("check_sum") == Int64(sum) ? (sequence, event, wasPending) : nil
        }
    }

    /// Dead letters whose check sums hold.
    func deadLetters(_ range: ClosedRange<Int64>, maximumBytes: Int64) throws -> Chunk<DeadLetter> {
        try read("dead_letters", range, maximumBytes) { row in
            let deadLetter = try QueueFile.deadLetter(row)
            return deadLetter.reason == DeadLetter.changed.reason ? nil : deadLetter
        }
    }

    /// Reads on from the range's beginning. A range that SQLite cannot read is halved, down to the rows that are lost.
    private func read<Element>(
        _ table: String, _ range: ClosedRange<Int64>, _ maximumBytes: Int64, _ element: (Row) throws -> Element?
    ) throws -> Chunk<Element> {
        var chunk = Chunk<Element>(reached: range.lowerBound - 1)
        var (left, failures, bytes) = ([range], 0, Int64(0))
        // One behind the other, each looked for alone.
        var lost = Int64(0)
        var isHopeless: Bool { range.upperBound >= Recovery.anyRow && lost >= Self.hopelessRows }
        // Without a transaction, whose end fails as well once a statement has met damage.
        try database.unsafeRead { db in
            while let range = left.popLast() {
                do {
                    let sql = "SELECT * FROM \(table) WHERE sequence BETWEEN ? AND ? ORDER BY sequence"
                    let rows = try Row.fetchCursor(db, sql: sql, arguments: [range.lowerBound, range.upperBound])
                    while let row = try rows.next() {
                        // Pages can stand in each other's places.
                        guard let sequence: Int64 = try row.value("sequence"), sequence > chunk.reached, range.contains(sequence) else {
                            throw DatabaseError(resultCode: .SQLITE_CORRUPT)
                        }
                        (chunk.reached, lost) = (sequence, 0)
                        // Of both only the decoding fails, which is damage.
                        bytes += (try? row.value("payload") as Data).map { Int64($0.count) } ?? 0
                        if let found = try? element(row) { chunk.rows.append(found) }
                        if chunk.rows.count == QueueFile.chunkRows || bytes >= maximumBytes { return }
                    }
                    chunk.reached = range.upperBound
                } catch  where error.isUnreadable {
                    failures += 1
                    let lower = max(range.lowerBound, chunk.reached + 1)
                    if lower < range.upperBound {
                        let middle = lower + (range.upperBound - lower) / 2
                        left += [middle + 1...range.upperBound, lower...middle]
                    } else {
                        chunk.reached = range.upperBound
                        lost += 1
                        if isHopeless, let last = left.first?.upperBound {
                            let skipped = min(chunk.reached + lost, last)
                            (chunk.reached, lost) = (skipped, lost * 2)
                            left = skipped < last ? [skipped + 1...last] : []
                        }
                    }
                    if failures >= Self.failuresPerCall, !isHopeless, left.last.map({ chunk.reached >= $0.lowerBound - 1 }) ?? true {
                        return
                    }
                }
            }
        }
        return chunk
    }
}

extension Error {
    /// Whether SQLite cannot give what it was asked for, and will not another time: of failures of the disk only that of the reading itself.
    fileprivate var isUnreadable: Bool {
        let ofReading: [ResultCode] = [.SQLITE_IOERR_READ, .SQLITE_IOERR_SHORT_READ, .SQLITE_IOERR_CORRUPTFS, .SQLITE_IOERR_DATA]
        return isDamageAtOpening || (self as? DatabaseError).map { ofReading.contains($0.extendedResultCode) } ?? false
    }
}
