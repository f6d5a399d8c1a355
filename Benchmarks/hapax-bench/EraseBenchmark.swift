import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// How long it takes to erase a user among much that is stored, and what commits notice of it.
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
        let erased = Locked(0.0)
        let (group, port) = (DispatchGroup(), server.port)
        Thread.detachNewThread(in: group) {
            let seconds = (try? Self.erase(Self.users[1], port)) ?? .nan
            erased.withLock { $0 = seconds }
        }
        // Until the erasure is done, and thirty rounds at most.
        var beside: [Load.Figures] = []
        while erased.withLock({ $0 }) == 0, beside.count < 30 {
            beside.append(try Load.run(server: server, corpus: Corpus(count: 50_000), batchSize: 50))
        }
        group.wait()
        let count = try connection.query("SELECT count(*) FROM events WHERE event = ''").first?[0] ?? ""
        print("\n### Erasing two users, \(count) events in all among \(history.count), PostgreSQL \(cluster.version)\n")
        print("| | alone | beside sixteen senders of batches of 50 |\n|---|---|---|")
        print("| until it is done, s | \(seconds, places: 1) | \(erased.withLock { $0 }, places: 1) |")
        print(
            "| the slowest answer to a sender, ms | \(Int(alone.slowest)), nothing erased | \(Int(beside.map(\.slowest).max() ?? .nan)) |")
        print("| events/s | \(Int(alone.rate)), nothing erased | \(Int(beside.map(\.rate).median)) |")
        try await cluster.stop(mode: .fast)
    }

    /// - Returns: Seconds until it is done.
    private static func erase(_ user: String, _ port: Int) throws -> Double {
        let started = ContinuousClock.now
        let connection = try HTTPConnection(port: port)
        let body = Array(#"{"project":"bench","user":"\#(user)"}"#.utf8)
        _ = try connection.send(HTTPConnection.request(path: "/v1/admin/erasures", body: body, key: ServerProcess.adminKey))
        let request = HTTPConnection.get("/v1/admin/erasures", port: port, key: ServerProcess.adminKey)
        while String(decoding: try connection.send(request), as: UTF8.self).contains(#""state":"running""#) {
            // Asked without a pause, it would take the time that it measures.
            Thread.sleep(forTimeInterval: 0.05)
        }
        return (ContinuousClock.now - started) / .seconds(1)
    }
}
