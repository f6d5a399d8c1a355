import Foundation
import GRDBSQLite
import HapaxModel
import HapaxServer

/// What SQLite itself can take: the same bytes in the same table, with its unique index and check sums, by its C interface, in transactions of the
/// same size. No lock, no mailbox, no encoding, no counters.
enum RawSQLite {
    static let rowsPerCommit = 1_000

    /// - Returns: Rows per second until the last COMMIT, in the table of the client's queue.
    static func queue(path: String, synchronous: String, corpus: Corpus) throws -> Double {
        let ids = corpus.ids.map(\.bytes)
        return try run(
            path: path, synchronous: synchronous,
            table: """
                CREATE TABLE events (
                    sequence INTEGER PRIMARY KEY, event_id BLOB NOT NULL UNIQUE, time INTEGER NOT NULL, state INTEGER NOT NULL,
                    check_sum INTEGER NOT NULL, payload BLOB NOT NULL
                );
                CREATE INDEX held ON events (sequence) WHERE state = 1
                """,
            insert: "INSERT INTO events VALUES (?, ?, ?, 0, ?, ?)", count: ids.count
        ) { statement, index in
            // No destructor: the arrays outlive the step.
            ids[index].withUnsafeBytes { id in
                corpus.events[index].withUnsafeBytes { payload in
                    sqlite3_bind_int64(statement, 1, Int64(index) + 1)
                    sqlite3_bind_blob(statement, 2, id.baseAddress, 16, nil)
                    sqlite3_bind_int64(statement, 3, 1_763_680_000_000)
                    sqlite3_bind_int64(statement, 4, Int64(CheckSum.crc32(payload)))
                    sqlite3_bind_blob(statement, 5, payload.baseAddress, Int32(payload.count), nil)
                    return sqlite3_step(statement)
                }
            }
        }
    }

    /// - Parameter path: A file in which the server has made its schema.
    /// - Returns: Rows per second until the last COMMIT, in the server's table with its indexes.
    static func store(path: String, corpus: Corpus) throws -> Double {
        let rows = zip(corpus.ids, corpus.events).map { id, bytes in
            (id: id.bytes, fields: EventRecord(EventScanner.scan(bytes[...]), id: id, projectID: 1, envelope: .init()))
        }
        return try run(
            path: path, synchronous: "FULL", table: "",
            insert: """
                INSERT INTO events (project_id, event_id, event, distinct_id, time, received_at, sequence, fingerprint, properties)
                VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)
                """, count: rows.count
        ) { statement, index in
            let fields = rows[index].fields
            func text(_ position: Int32, _ bytes: ArraySlice<UInt8>) {
                bytes.withUnsafeBytes { _ = sqlite3_bind_text(statement, position, $0.baseAddress, Int32($0.count), nil) }
            }
            rows[index].id.withUnsafeBytes { _ = sqlite3_bind_blob(statement, 1, $0.baseAddress, 16, nil) }
            text(2, fields.name)
            text(3, fields.distinctID)
            for (position, value) in [fields.time, fields.time, Int64(index), Int64(index)].enumerated() {
                sqlite3_bind_int64(statement, Int32(position) + 4, value)
            }
            text(8, fields.properties)
            return sqlite3_step(statement)
        }
    }

    /// - Parameter step: Binds the row of a number and steps.
    private static func run(
        path: String, synchronous: String, table: String, insert: String, count: Int, step: (OpaquePointer?, Int) -> Int32
    ) throws -> Double {
        var handle: OpaquePointer?
        guard sqlite3_open(path, &handle) == SQLITE_OK else { throw BenchmarkError("SQLite cannot open its file") }
        defer { sqlite3_close(handle) }
        func execute(_ sql: String) throws {
            guard sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else { throw BenchmarkError("SQLite refused: \(sql)") }
        }
        try execute("PRAGMA journal_mode = WAL")
        try execute("PRAGMA synchronous = \(synchronous)")
        try execute(table)
        var statement: OpaquePointer?
        guard sqlite3_prepare_v2(handle, insert, -1, &statement, nil) == SQLITE_OK else {
            throw BenchmarkError("SQLite refused: \(insert)")
        }
        defer { sqlite3_finalize(statement) }
        let start = ContinuousClock.now
        for first in stride(from: 0, to: count, by: rowsPerCommit) {
            try execute("BEGIN")
            for index in first..<min(first + rowsPerCommit, count) {
                guard step(statement, index) == SQLITE_DONE else { throw BenchmarkError("SQLite refused a row") }
                sqlite3_reset(statement)
            }
            try execute("COMMIT")
        }
        return Double(count) / ((ContinuousClock.now - start) / .seconds(1))
    }
}
