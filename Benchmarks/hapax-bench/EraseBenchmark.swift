import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// How long it takes to erase a user among much that is stored, and to let a month go, and what commits notice of it.
struct EraseBenchmark {
    var history: History
    /// Of each of the two users, evenly over all of that time.
    private static let events = 100_000
    private static let users = ["user-to-erase", "another-user-to-erase"]

    func run() async throws {
        let cluster = try await PostgresCluster()
        let uri = try await cluster.makeDatabase()
        try ServerProcess(store: uri).stop()
        note("writing \(history.count) events")
        try history.write(postgres: uri)
        let connection = try PostgresConnection(uri: uri)
        // Other rows of the same times become the users': pages and months as they would be.
        let every = max(history.count / Self.events, 2)
        for day in 0...history.days {
            let (from, to) = ("now() - interval '\(day + 1) days'", "now() - interval '\(day) days'")
            for (rest, user) in Self.users.enumerated() {
                try connection.execute(
                    """
                    UPDATE events SET distinct_id = '\(user)'
                    WHERE fingerprint % \(every) = \(rest) AND received_at >= \(from) AND received_at < \(to)
                    """)
            }
        }
        for statement in ["VACUUM (ANALYZE) events", "CHECKPOINT"] { try connection.execute(statement) }
        let server = try ServerProcess(store: uri)
        defer { server.stop() }
        let today = CalendarDay.first.advanced(by: Int(Date().timeIntervalSince1970) / 86_400)
        try server.waitForClosedDays(from: today.advanced(by: -2).description, to: today.advanced(by: -1).description)
        let alone = try Load.run(server: server, corpus: Corpus(count: 100_000), batchSize: 50)
        let seconds = try Self.erase(Self.users[0], server.port)
        let erased = try Self.beside(server) { try Self.erase(Self.users[1], $0) }
        let count = try connection.query("SELECT count(*) FROM events WHERE event = ''").first?[0] ?? ""
        let month = try Self.addMonth(connection)
        let emptied = try Self.beside(server) { try Self.empty($0) }
        guard try connection.query("SELECT count(*) FROM \(month)").first?[0] == "0" else { throw BenchmarkError("the month is not empty") }
        print(
            "\n### Erasing two users, \(count) events in all among \(history.count), then a month of \(Self.rowsOfMonth), PostgreSQL \(cluster.version)\n"
        )
        print("| | alone | a user, beside sixteen senders of batches of 50 | the month, beside them |\n|---|---|---|---|")
        print("| until it is done, s | \(seconds, places: 1) | \(erased.seconds, places: 1) | \(emptied.seconds, places: 1) |")
        print(
            "| the slowest answer to a sender, ms | \(Int(alone.slowest)), nothing erased | \(Int(erased.beside.map(\.slowest).max() ?? .nan)) "
                + "| \(Int(emptied.beside.map(\.slowest).max() ?? .nan)) |")
        print(
            "| events/s | \(Int(alone.rate)), nothing erased | \(Int(erased.beside.map(\.rate).median)) "
                + "| \(Int(emptied.beside.map(\.rate).median)) |")
        try await cluster.stop(mode: .fast)
    }

    private static let rowsOfMonth = 2_000_000

    /// What senders notice of it, until it is done, and in thirty rounds at most.
    private static func beside(
        _ server: ServerProcess, _ work: @escaping @Sendable (_ port: Int) throws -> Double
    ) throws -> (seconds: Double, beside: [Load.Figures]) {
        let done = Locked(0.0)
        let (group, port) = (DispatchGroup(), server.port)
        Thread.detachNewThread(in: group) {
            let seconds = (try? work(port)) ?? .nan
            done.withLock { $0 = seconds }
        }
        var beside: [Load.Figures] = []
        while done.withLock({ $0 }) == 0, beside.count < 30 {
            beside.append(try Load.run(server: server, corpus: Corpus(count: 50_000), batchSize: 50))
        }
        group.wait()
        return (done.withLock { $0 }, beside)
    }

    /// A month of five months ago, in a partition of its own, as if servers had been there then.
    private static func addMonth(_ connection: PostgresConnection) throws -> String {
        let day = "date_trunc('month', now() AT TIME ZONE 'UTC')::date - date '1970-01-01'"
        let row =
            try connection.query(
                """
                SELECT 'events_' || to_char(m, 'YYYY_MM'), m - date '1970-01-01', (m + interval '1 month')::date - date '1970-01-01'
                FROM (SELECT (date '1970-01-01' + (\(day)) - interval '5 months')::date) AS months (m)
                """
            ).first?.compactMap(\.self) ?? []
        guard row.count == 3 else { throw BenchmarkError("there is no month") }
        try connection.execute(
            """
            BEGIN;
            ALTER TABLE events DETACH PARTITION events_past;
            ALTER TABLE events ATTACH PARTITION events_past FOR VALUES FROM (0) TO (\(row[1]));
            CREATE TABLE \(row[0]) PARTITION OF events FOR VALUES FROM (\(row[1])) TO (\(row[2]));
            INSERT INTO events SELECT project_id, gen_random_uuid(), \(row[1]) + i % 28, event, distinct_id, time - interval '140 days', sent_at,
              received_at - interval '140 days', install_id, sequence, fingerprint, properties
              FROM (SELECT *, row_number() OVER () AS i FROM events WHERE event <> '' LIMIT \(rowsOfMonth)) AS e;
            COMMIT
            """)
        for statement in ["VACUUM (ANALYZE) \(row[0])", "CHECKPOINT"] { try connection.execute(statement) }
        return row[0]
    }

    /// - Returns: Seconds until it is done.
    private static func empty(_ port: Int) throws -> Double {
        let started = ContinuousClock.now
        let connection = try HTTPConnection(port: port)
        let set = HTTPConnection.request(
            "PATCH", path: "/v1/admin/retention", body: Array(#"{"months":2,"yes":true}"#.utf8), key: ServerProcess.adminKey)
        guard String(decoding: try connection.send(set), as: UTF8.self).contains("removing") else {
            throw BenchmarkError("nothing is removed")
        }
        try wait(connection, HTTPConnection.get("/v1/admin/retention", port: port, key: ServerProcess.adminKey), while: "removing")
        return (ContinuousClock.now - started) / .seconds(1)
    }

    private static func wait(_ connection: HTTPConnection, _ request: [UInt8], while state: String) throws {
        while String(decoding: try connection.send(request), as: UTF8.self).contains(#""state":"\#(state)""#) {
            // Asked without a pause, it would take the time that it measures.
            Thread.sleep(forTimeInterval: 0.05)
        }
    }

    /// - Returns: Seconds until it is done.
    private static func erase(_ user: String, _ port: Int) throws -> Double {
        let started = ContinuousClock.now
        let connection = try HTTPConnection(port: port)
        let body = Array(#"{"project":"bench","user":"\#(user)","yes":true}"#.utf8)
        _ = try connection.send(HTTPConnection.request(path: "/v1/admin/erasures", body: body, key: ServerProcess.adminKey))
        try wait(connection, HTTPConnection.get("/v1/admin/erasures", port: port, key: ServerProcess.adminKey), while: "running")
        return (ContinuousClock.now - started) / .seconds(1)
    }
}
