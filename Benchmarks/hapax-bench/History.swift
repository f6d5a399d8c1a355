import Foundation
import GRDBSQLite
import HapaxModel
import HapaxServer
import TestSupport

/// Weeks of events, written by the database itself into the server's tables: received evenly, the last of them now.
///
/// Each user comes every 200,003rd event, so that the latest hundred of one lie as far apart as they can.
struct History {
    var days: Int
    var eventsPerDay: Int

    var count: Int { days * eventsPerDay }
    static let users = 200_003
    static let user = "user-4711"
    private static let part = 20_000

    /// In milliseconds, for the event `i`.
    private func receivedAt(_ now: Int64) -> String { "(\(now) - (\(count) - i) * 86400000 / \(eventsPerDay))" }
    private static let name = "CASE i % 10 WHEN 0 THEN '$AppStart' WHEN 1 THEN '$AppEnd' ELSE 'event_' || (i % 17) END"
    private static let distinctID = "'user-' || (i * 7919 % \(users))"
    private static let properties = """
        '{"$os":"Linux","$app_version":"7.31.2","order_id":"A-' || i || '","amount":' || (i % 10000) || ',"screen":"checkout/confirm","locale":"de_AT",'
        || '"referrer":"https://shop.example/categories/garden/chairs","$event_duration":' || (i % 900) || '}'
        """

    /// A server has been there before and closed days of which it knew nothing.
    private static let forgetting = ["zones", "bounds", "progress", "days", "events", "users", "late"].map {
        "DELETE FROM report_\($0);"
    }.joined()

    func write(postgres uri: String) throws {
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        let connection = try PostgresConnection(uri: uri)
        // Two sessions, since there are two cores, in small parts: rows lie and ids are in the order of time, as clients make them.
        let group = DispatchGroup()
        let failure = Locked<String?>(nil)
        for half in 0..<2 {
            Thread.detachNewThread(in: group) { [self] in
                do {
                    let connection = try PostgresConnection(uri: uri)
                    for first in stride(from: half * Self.part, to: count, by: 2 * Self.part) {
                        try connection.execute(
                            """
                            INSERT INTO events (project_id, event_id, bucket, event, distinct_id, time, received_at, fingerprint, properties)
                            SELECT 1, (lpad(to_hex(ms), 12, '0') || '7' || lpad(to_hex(i % 4096), 3, '0') || '8' || lpad(to_hex(i), 15, '0'))::uuid,
                              ms / 86400000, \(Self.name), \(Self.distinctID), to_timestamp(ms / 1000.0) - interval '3 seconds',
                              to_timestamp(ms / 1000.0), i, (\(Self.properties))::jsonb
                            FROM (SELECT i, \(receivedAt(now)) AS ms FROM generate_series(\(first)::int8, \(min(first + Self.part, count) - 1)) AS i) AS e
                            """)
                    }
                } catch {
                    failure.withLock { $0 = "\(error)" }
                }
            }
        }
        group.wait()
        if let failure = failure.withLock({ $0 }) { throw BenchmarkError(failure) }
        try connection.execute(Self.forgetting)
        // What autovacuum does within minutes.
        try connection.execute("VACUUM (ANALYZE) events")
        try connection.execute("CHECKPOINT")
    }

    func write(sqlite path: String) throws {
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        try withSQLite(path) { execute in
            try execute("PRAGMA synchronous = OFF")
            for first in stride(from: 0, to: count, by: eventsPerDay) {
                try execute(
                    """
                    WITH RECURSIVE e (i) AS (SELECT \(first) UNION ALL SELECT i + 1 FROM e WHERE i < \(first + eventsPerDay - 1))
                    INSERT INTO events (project_id, event_id, event, distinct_id, time, received_at, fingerprint, properties)
                    SELECT 1, CAST(printf('%016d', i) AS BLOB), \(Self.name), \(Self.distinctID), \(receivedAt(now)) - 3000, \(receivedAt(now)), i,
                      \(Self.properties) FROM e
                    """)
            }
            try execute(Self.forgetting)
        }
    }

    /// What it would cost if SQLite kept the index of users itself.
    ///
    /// - Parameter path: Of a store that no server has open.
    /// - Returns: Rows a second into the store as it is, and with such an index.
    func rateWithUserIndex(sqlite path: String) throws -> (without: Double, with: Double) {
        let without = try RawSQLite.store(path: path, corpus: Corpus(count: 200_000))
        try withSQLite(path) { try $0("CREATE INDEX events_user ON events (project_id, distinct_id)") }
        return (without, try RawSQLite.store(path: path, corpus: Corpus(count: 200_000)))
    }

    private func withSQLite(_ path: String, _ body: ((String) throws -> Void) throws -> Void) throws {
        var handle: OpaquePointer?
        guard sqlite3_open(path, &handle) == SQLITE_OK else { throw BenchmarkError("SQLite cannot open its file") }
        defer { sqlite3_close(handle) }
        try body { sql in
            guard sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else {
                throw BenchmarkError(String(cString: sqlite3_errmsg(handle)))
            }
        }
    }
}
