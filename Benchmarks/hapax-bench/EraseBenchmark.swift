import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// How long it takes to erase a user among much that is stored, and what commits notice of it.
struct EraseBenchmark {
    var history: History
    /// Of the user, evenly over all of that time.
    private static let events = 100_000
    private static let user = "user-to-erase"

    func run() async throws {
        let cluster = try await PostgresCluster()
        let uri = try await cluster.makeDatabase()
        try ServerProcess(store: uri).stop()
        note("writing \(history.count) events")
        try history.write(postgres: uri)
        let connection = try PostgresConnection(uri: uri)
        // Other rows of the same times become the user's: pages and months as they would be.
        let every = max(history.count / Self.events, 1)
        try connection.execute("UPDATE events SET distinct_id = '\(Self.user)' WHERE fingerprint % \(every) = 0")
        try connection.execute("VACUUM (ANALYZE) events; CHECKPOINT")
        let server = try ServerProcess(store: uri)
        defer { server.stop() }
        let today = CalendarDay.first.advanced(by: Int(Date().timeIntervalSince1970) / 86_400)
        try server.waitForClosedDays(from: today.advanced(by: -2).description, to: today.advanced(by: -1).description)
        let alone = try Load.run(server: server, corpus: Corpus(count: 100_000), batchSize: 50)
        let started = ContinuousClock.now
        let port = server.port
        let body = Array(#"{"project":"bench","user":"\#(Self.user)"}"#.utf8)
        _ = try HTTPConnection(port: port).send(
            HTTPConnection.request(path: "/v1/admin/erasures", body: body, key: ServerProcess.adminKey))
        let erased = Locked(0.0)
        let group = DispatchGroup()
        Thread.detachNewThread(in: group) {
            let connection = try? HTTPConnection(port: port)
            let request = HTTPConnection.get("/v1/admin/erasures", port: port, key: ServerProcess.adminKey)
            while let answer = try? connection?.send(request), !String(decoding: answer, as: UTF8.self).contains(#""state":"done""#) {
                Thread.sleep(forTimeInterval: 0.05)
            }
            erased.withLock { $0 = (ContinuousClock.now - started) / .seconds(1) }
        }
        // Until the erasure is done, and ten rounds at most.
        var beside: [Load.Figures] = []
        while erased.withLock({ $0 }) == 0, beside.count < 10 {
            beside.append(try Load.run(server: server, corpus: Corpus(count: 100_000), batchSize: 50))
        }
        group.wait()
        let count = try connection.query("SELECT count(*) FROM events WHERE event = ''").first?[0] ?? ""
        print(
            "\n### Erasing a user of \(count) events among \(history.count), PostgreSQL \(cluster.version), beside sixteen senders of batches of 50\n"
        )
        print("| | |\n|---|---|")
        print("| until it is done | \(erased.withLock { $0 }, places: 1) s |")
        print(
            "| the slowest answer to a sender meanwhile | \(Int(beside.map(\.slowest).max() ?? .nan)) ms; without, \(Int(alone.slowest)) ms |"
        )
        print("| events/s meanwhile | \(Int(beside.map(\.rate).median)), without \(Int(alone.rate)) |")
        try await cluster.stop(mode: .fast)
    }
}
