import Foundation
import GRDBSQLite
import HapaxModel

/// What SQLite itself can take: the same bytes in the same table, with its unique index and check sums, by its C interface, in transactions of the
/// same size. No lock, no mailbox, no encoding, no counters.
enum RawSQLite {
    static let rowsPerCommit = 1_000

    /// - Returns: Rows per second until the last COMMIT.
    static func run(path: String, synchronous: String, corpus: Corpus) throws -> Double {
        var handle: OpaquePointer?
        guard sqlite3_open(path, &handle) == SQLITE_OK else { throw BenchmarkError("SQLite cannot open its file") }
        defer { sqlite3_close(handle) }
        func execute(_ sql: String) throws {
            guard sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else { throw BenchmarkError("SQLite refused: \(sql)") }
        }
        try execute("PRAGMA journal_mode = WAL")
        try execute("PRAGMA synchronous = \(synchronous)")
        try execute(
            """
            CREATE TABLE events (
                sequence INTEGER PRIMARY KEY, event_id BLOB NOT NULL UNIQUE, time INTEGER NOT NULL, state INTEGER NOT NULL,
                check_sum INTEGER NOT NULL, payload BLOB NOT NULL
            );
            CREATE INDEX held ON events (sequence) WHERE state = 1
            """)
        var statement: OpaquePointer?
        sqlite3_prepare_v2(handle, "INSERT INTO events VALUES (?, ?, ?, 0, ?, ?)", -1, &statement, nil)
        defer { sqlite3_finalize(statement) }
        let ids = corpus.ids.map(\.bytes)
        let start = ContinuousClock.now
        for first in stride(from: 0, to: ids.count, by: rowsPerCommit) {
            try execute("BEGIN")
            for index in first..<min(first + rowsPerCommit, ids.count) {
                // No destructor: the arrays outlive the step.
                let status = ids[index].withUnsafeBytes { id in
                    corpus.events[index].withUnsafeBytes { payload in
                        sqlite3_bind_int64(statement, 1, Int64(index) + 1)
                        sqlite3_bind_blob(statement, 2, id.baseAddress, 16, nil)
                        sqlite3_bind_int64(statement, 3, 1_763_680_000_000)
                        sqlite3_bind_int64(statement, 4, Int64(CheckSum.crc32(payload)))
                        sqlite3_bind_blob(statement, 5, payload.baseAddress, Int32(payload.count), nil)
                        return sqlite3_step(statement)
                    }
                }
                guard status == SQLITE_DONE else { throw BenchmarkError("SQLite refused a row") }
                sqlite3_reset(statement)
            }
            try execute("COMMIT")
        }
        return Double(ids.count) / ((ContinuousClock.now - start) / .seconds(1))
    }
}
