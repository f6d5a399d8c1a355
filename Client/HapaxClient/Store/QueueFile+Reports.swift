import Foundation
import GRDB
import HapaxModel

/// What an envelope reports about its install. A sequence that will never come is reported with a reason, until a receipt has covered it (I12).
extension QueueFile {
    /// - Parameter install: Of a damaged file whose events these were; nil for this file's own.
    static func noteRemoved(
        _ sequences: ClosedRange<Int64>, _ reason: String, of install: EventID? = nil, _ db: Database, _ counters: inout QueueCounters
    ) throws {
        let install = install.map { Data($0.bytes) }
        // The report version of this transaction.
        let word = counters.word + 1
        try db.cachedStatement(
            sql: """
                UPDATE gone SET last = ?, word = ? WHERE id = (SELECT max(id) FROM gone) AND last = ? AND reason = ? AND install_id IS ?
                """
        ).execute(arguments: [sequences.upperBound, word, sequences.lowerBound - 1, reason, install])
        if db.changesCount == 1 { return }
        try db.cachedStatement(sql: "INSERT INTO gone (install_id, first, last, reason, word) VALUES (?, ?, ?, ?, ?)")
            .execute(arguments: [install, sequences.lowerBound, sequences.upperBound, reason, word])
        counters.unreported += 1
    }

    /// The same for sequences in ascending order.
    static func noteRemoved(_ sequences: [Int64], _ reason: String, _ db: Database, _ counters: inout QueueCounters) throws {
        for range in ranges(of: sequences) { try noteRemoved(range, reason, db, &counters) }
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
        let limit = EventLimits.maximumReportedRanges
        guard ranges.count > limit, let last = ranges.last else { return ranges }
        return Array(ranges[..<(limit - 1)]) + [ranges[limit - 1].lowerBound...last.upperBound]
    }

    /// What an envelope reports, and up to which row of `gone`.
    struct InstallReport: Sendable {
        var envelope = EventBatch.Envelope()
        fileprivate var install: Data?
        fileprivate var lastRow: Int64 = 0
    }

    /// - Parameters:
    ///   - sent: The sequences of the envelope's events, in order; without any, what is to be reported about damaged files may come first.
    ///   - aside: Events that wait until the others have been sent.
    func report(with sent: [Int64], besides aside: Set<Int64> = [], _ db: Database) throws -> InstallReport {
        let counters = counters
        var report = InstallReport()
        var rows = counters.unreported > 0 ? try Self.removedRanges(of: nil, db) : []
        if sent.isEmpty, rows.isEmpty, counters.unreported > 0 {
            report.install = try Data.fetchOne(db, sql: "SELECT install_id FROM gone LIMIT 1")
            rows = try Self.removedRanges(of: report.install, db)
        }
        let removed = rows.prefix(EventLimits.maximumReportedRanges)
        // It would be reported for ever.
        guard removed.allSatisfy({ $0.word <= counters.word }), counters.unreported == 0 || !removed.isEmpty || !sent.isEmpty else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT)
        }
        report.lastRow = removed.last?.id ?? 0
        report.envelope.removed = removed.map { EventBatch.Envelope.Removed($0.sequences, reason: $0.reason) }
        if let install = report.install.flatMap({ EventID(bytes: $0) }) {
            report.envelope.installID = install
            return report
        }
        report.envelope.installID = counters.installID
        (report.envelope.reportVersion, report.envelope.created, report.envelope.acknowledged) = (
            counters.word, counters.created, counters.acknowledged
        )
        report.envelope.refused = counters.refused
        // Those that did not fit are no loss: they are reported next time.
        var held = rows.dropFirst(EventLimits.maximumReportedRanges).map(\.sequences)
        if counters.held > 0 || !aside.isEmpty {
            // Up to there the server takes for lost what is neither stored nor held.
            let last = max(sent.last ?? 0, counters.acknowledged)
            let sql = "SELECT sequence FROM events WHERE state = 1 AND sequence < ?"
            let waiting = counters.held > 0 ? try Int64.fetchAll(db, sql: sql, arguments: [last]) : []
            held += Self.ranges(of: (waiting + aside.filter { $0 < last }).filter { !sent.contains($0) }.sorted())
        }
        report.envelope.held = Self.merged(held.sorted { $0.lowerBound < $1.lowerBound })
        return report
    }

    private static func removedRanges(of install: Data?, _ db: Database) throws -> [(
        id: Int64, sequences: ClosedRange<Int64>, reason: String, word: Int64
    )] {
        let sql = "SELECT id, first, last, reason, word FROM gone WHERE install_id IS ? ORDER BY id LIMIT ?"
        return try Row.fetchAll(db, sql: sql, arguments: [install, 2 * EventLimits.maximumReportedRanges]).map { row in
            let (first, last): (Int64, Int64) = (try row.value("first"), try row.value("last"))
            guard first <= last else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            return (try row.value("id"), first...last, try row.value("reason"), try row.value("word"))
        }
    }

    /// A receipt has covered an envelope. What has been added to one of its ranges since is reported again.
    static func acknowledge(_ report: InstallReport, _ db: Database, _ counters: inout QueueCounters) throws {
        guard report.lastRow > 0 else { return }
        try db.execute(
            sql: "DELETE FROM gone WHERE id <= ? AND install_id IS ? AND word <= ?",
            arguments: [report.lastRow, report.install, report.envelope.reportVersion ?? .max])
        counters.unreported -= Int64(db.changesCount)
    }
}
