import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// What attackers and a crowd cost everybody else: each figure beside that of the same server without them, in the same run.
struct EdgeBenchmark {
    var events: Int
    var rounds: Int
    /// How long the overload lasts.
    var seconds = 60

    static let slowConnections = 4_000
    static let idleConnections = 10_000

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        Descriptors.raise(to: 65_536)
        let cluster = try await PostgresCluster()
        print("\n### Edge: PostgreSQL, 602-byte events\n")
        print("| What | figure | beside | ratio | aim |")
        print("|---|---|---|---|---|")
        try await slow(cluster)
        try await idle()
        try await overload(cluster)
        try await attacks(cluster)
        try await cluster.stop(mode: .fast)
    }

    private func slow(_ cluster: PostgresCluster) async throws {
        var (alone, beside): ([Double], [Double]) = ([], [])
        var (rate, rateBeside): ([Double], [Double]) = ([], [])
        for round in 1...rounds {
            note("round \(round) of \(rounds): good traffic, then the same beside \(Self.slowConnections) slow connections")
            let server = try ServerProcess(store: try await cluster.makeDatabase())
            defer { server.stop() }
            let first = try Load.run(server: server, corpus: Corpus(count: events), batchSize: 50)
            let slow = SlowSenders(port: server.port, count: Self.slowConnections)
            defer { slow.stop() }
            slow.waitUntilOpen()
            let second = try Load.run(server: server, corpus: Corpus(count: events), batchSize: 50)
            alone.append(first.p99)
            beside.append(second.p99)
            rate.append(first.rate)
            rateBeside.append(second.rate)
        }
        let name = "\(Self.slowConnections) slow connections of four kinds"
        print(
            "| p99 beside \(name) | \(beside.median, places: 1) ms | \(alone.median, places: 1) ms without | "
                + "\(beside.median / alone.median, places: 2) | ≤ 2 |")
        print(
            "| events/s beside them | \(Int(rateBeside.median)) | \(Int(rate.median)) without | \(rateBeside.median / rate.median, places: 2) | – |"
        )
    }

    private func idle() async throws {
        note("\(Self.idleConnections) idle connections")
        let directory = TemporaryDirectory()
        let server = try ServerProcess(store: "sqlite:\(directory.path)/events.sqlite")
        defer { server.stop() }
        let before = server.residentMebibytes
        var kept: [HTTPConnection] = []
        for _ in 0..<Self.idleConnections {
            let connection = try HTTPConnection(port: server.port)
            _ = try connection.send(Array("GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n".utf8))
            kept.append(connection)
        }
        let after = server.residentMebibytes
        withExtendedLifetime(kept) {}
        let each = (after - before) * 1_024 / Double(Self.idleConnections)
        print(
            "| memory with \(Self.idleConnections) idle connections | \(after, places: 0) MiB | \(before, places: 0) MiB without | "
                + "\(each, places: 1) KiB each | – |")
    }

    private func overload(_ cluster: PostgresCluster) async throws {
        note("the best rate, then \(seconds) s at twice that")
        let server = try ServerProcess(store: try await cluster.makeDatabase())
        defer { server.stop() }
        // As many as keep the store busy, without pause; the same senders in both, since they share the machine.
        let best = try Crowd.run(server: server, connections: 16, offered: 1e9, seconds: seconds / 3).rate
        let crowd = try Crowd.run(server: server, connections: 256, offered: best * 2, seconds: seconds)
        print(
            "| stored events/s at twice that, \(seconds) s | \(Int(crowd.rate)) | \(Int(best)) at best | \(crowd.rate / best, places: 2) | ≥ 0.95 |"
        )
        let statuses = crowd.statuses.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }.joined(separator: ", ")
        print("| answers meanwhile | \(statuses) | – | – | 200, 429, 503 |")
        print(
            "| memory at its end | \(crowd.memoryAtEnd, places: 0) MiB | \(crowd.memoryAtThird, places: 0) MiB after a third | "
                + "\(crowd.memoryAtEnd / crowd.memoryAtThird, places: 2) | flat |")
    }
}
