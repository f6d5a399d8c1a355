import Foundation
import GRDB
import HapaxModel

/// Sequences that will never come: the server is told each, with a reason, until a receipt has covered it (I12).
extension QueueFile {
    /// - Parameter install: Of a damaged file whose events these were; nil for this file's own.
    static func tellGone(
        _ sequences: ClosedRange<Int64>, _ reason: String, of install: EventID? = nil, _ db: Database, _ counters: inout QueueCounters
    ) throws {
        let install = install.map { Data($0.bytes) }
        // The word that this transaction gives.
        let word = counters.word + 1
        try db.cachedStatement(
            sql: """
                UPDATE gone SET last = ?, word = ? WHERE id = (SELECT max(id) FROM gone) AND last = ? AND reason = ? AND install_id IS ?
                """
        ).execute(arguments: [sequences.upperBound, word, sequences.lowerBound - 1, reason, install])
        if db.changesCount == 1 { return }
        try db.cachedStatement(sql: "INSERT INTO gone (install_id, first, last, reason, word) VALUES (?, ?, ?, ?, ?)")
            .execute(arguments: [install, sequences.lowerBound, sequences.upperBound, reason, word])
        counters.untold += 1
    }

    /// The same for sequences in ascending order.
    static func tellGone(_ sequences: [Int64], _ reason: String, _ db: Database, _ counters: inout QueueCounters) throws {
        for range in ranges(of: sequences) { try tellGone(range, reason, db, &counters) }
    }

    static func ranges(of sequences: [Int64]) -> [ClosedRange<Int64>] {
        var ranges: [ClosedRange<Int64>] = []
        for sequence in sequences {
            if let last = ranges.last, last.upperBound == sequence - 1 {
                ranges[ranges.count - 1] = last.lowerBound...sequence
            } else {
                ranges.append(sequence...sequence)
            }
        }
        return ranges
    }

    /// At most so many ranges, the last of which then covers all that follow.
    static func merged(_ ranges: [ClosedRange<Int64>]) -> [ClosedRange<Int64>] {
        let limit = EventLimits.maximumSaidRanges
        guard ranges.count > limit, let last = ranges.last else { return ranges }
        return Array(ranges[..<(limit - 1)]) + [ranges[limit - 1].lowerBound...last.upperBound]
    }

    /// What an envelope says, and up to which row of `gone`.
    struct Said: Sendable {
        var envelope = EventBatch.Envelope()
        fileprivate var install: Data?
        fileprivate var lastGone: Int64 = 0
    }

    /// - Parameters:
    ///   - sent: The sequences of the envelope's events, in order; without any, what is to be told of damaged files may come first.
    ///   - aside: Events that wait until the others have been sent.
    func said(with sent: [Int64], besides aside: Set<Int64> = [], _ db: Database) throws -> Said {
        let counters = counters
        var said = Said()
        var rows = counters.untold > 0 ? try Self.gone(of: nil, db) : []
        if sent.isEmpty, rows.isEmpty, counters.untold > 0 {
            said.install = try Data.fetchOne(db, sql: "SELECT install_id FROM gone LIMIT 1")
            rows = try Self.gone(of: said.install, db)
        }
        let told = rows.prefix(EventLimits.maximumSaidRanges)
        // It would be told for ever.
        guard told.allSatisfy({ $0.word <= counters.word }), counters.untold == 0 || !told.isEmpty || !sent.isEmpty else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT)
        }
        said.lastGone = told.last?.id ?? 0
        said.envelope.gone = told.map { EventBatch.Envelope.Gone($0.sequences, reason: $0.reason) }
        if let install = said.install.flatMap({ EventID(bytes: $0) }) {
            said.envelope.installID = install
            return said
        }
        said.envelope.installID = counters.installID
        (said.envelope.word, said.envelope.created, said.envelope.acknowledged) = (counters.word, counters.created, counters.acknowledged)
        said.envelope.refused = counters.refused
        // Those that did not fit are no loss: they are told next time.
        var held = rows.dropFirst(EventLimits.maximumSaidRanges).map(\.sequences)
        if counters.held > 0 || !aside.isEmpty {
            // Up to there the server takes for lost what is neither stored nor held.
            let last = max(sent.last ?? 0, counters.acknowledged)
            let sql = "SELECT sequence FROM events WHERE state = 1 AND sequence < ?"
            let waiting = counters.held > 0 ? try Int64.fetchAll(db, sql: sql, arguments: [last]) : []
            held += Self.ranges(of: (waiting + aside.filter { $0 < last }).filter { !sent.contains($0) }.sorted())
        }
        said.envelope.held = Self.merged(held.sorted { $0.lowerBound < $1.lowerBound })
        return said
    }

    private static func gone(of install: Data?, _ db: Database) throws -> [(
        id: Int64, sequences: ClosedRange<Int64>, reason: String, word: Int64
    )] {
        let sql = "SELECT id, first, last, reason, word FROM gone WHERE install_id IS ? ORDER BY id LIMIT ?"
        return try Row.fetchAll(db, sql: sql, arguments: [install, 2 * EventLimits.maximumSaidRanges]).map { row in
            let (first, last): (Int64, Int64) = (try row.value("first"), try row.value("last"))
            guard first <= last else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            return (try row.value("id"), first...last, try row.value("reason"), try row.value("word"))
        }
    }

    /// A receipt has covered an envelope. What has been added to one of its ranges since is told again.
    static func told(_ said: Said, _ db: Database, _ counters: inout QueueCounters) throws {
        guard said.lastGone > 0 else { return }
        try db.execute(
            sql: "DELETE FROM gone WHERE id <= ? AND install_id IS ? AND word <= ?",
            arguments: [said.lastGone, said.install, said.envelope.word ?? .max])
        counters.untold -= Int64(db.changesCount)
    }
}
