import Foundation
import HapaxModel
import HapaxServer

/// What PostgreSQL itself can take: the same rows by binary COPY on two connections into the month's own table, with no server, no HTTP, no
/// JSON scan and no look-up of ids. Nothing that keeps the table's unique key can be faster on this machine.
enum CopyLimit {
    static let connections = 2
    static let rowsPerCopy = 5_000

    /// - Returns: Rows per second until the last COPY has committed.
    static func run(uri: String, corpus: Corpus) throws -> Double {
        let envelope = EventBatch.Envelope(sentAt: 1_767_225_600_000)
        let records = corpus.events.enumerated().map { index, bytes in
            EventRecord(
                EventScanner.scan(bytes[...]), id: corpus.ids[index], projectID: 1, envelope: envelope)
        }
        let copies = stride(from: 0, to: records.count, by: rowsPerCopy).map { start in
            let group = StoreGroup(records: Array(records[start..<min(start + rowsPerCopy, records.count)]))
            return PostgresCopy.bytes(group.records, in: group.batches)
        }
        let shared = Locked<(next: Int, failure: String?)>((0, nil))
        let start = ContinuousClock.now
        let group = DispatchGroup()
        for _ in 0..<connections {
            Thread.detachNewThread(in: group) {
                do {
                    let connection = try PostgresConnection(uri: uri)
                    let month = try connection.query("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')").first?[0] ?? ""
                    while true {
                        let index = shared.withLock { state in
                            defer { state.next += 1 }
                            return state.next
                        }
                        guard index < copies.count else { return }
                        try connection.copyIn(PostgresCopy.statement(into: "events_\(month)"), copies[index])
                    }
                } catch {
                    shared.withLock { $0.failure = "\(error)" }
                }
            }
        }
        group.wait()
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        if let failure = shared.withLock({ $0.failure }) { throw BenchmarkError(failure) }
        return Double(records.count) / seconds
    }
}
