import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// What an operator plans by: disk an event by store and properties, and memory and connections of a server under load.
struct SizesBenchmark {
    var events: Int

    private static let kinds: [(name: String, properties: @Sendable (Int) -> Properties)] = [
        ("none", { _ in [:] }),
        ("three", { ["amount": Double($0 % 10_000) / 100, "currency": "EUR", "$app_version": "7.31.2"] }),
        ("sixteen, as an app's", { Corpus.properties($0) }),
    ]

    private struct Figures {
        var disk: Int
        /// What PostgreSQL has written to its log meanwhile: what an archive takes.
        var log: Int?
        var resting: Double
        var peak: Double
        var connections: String?
    }

    func run() async throws {
        let cluster = try await PostgresCluster()
        print("\n### Sizes: \(events) events each, batches of 500, PostgreSQL \(cluster.version)\n")
        print("| store | properties | bytes sent an event | on disk | of what was sent | log | memory MiB, at rest / most | connections |")
        print("|---|---|---|---|---|---|---|---|")
        for (name, properties) in Self.kinds {
            let corpus = Corpus(count: events, properties: properties)
            for (store, figures) in [("SQLite", try sqlite(corpus)), ("PostgreSQL", try await postgres(corpus, cluster))] {
                let (disk, ratio) = (figures.disk / events, Double(figures.disk / events) / Double(corpus.meanBytes))
                print(
                    """
                    | \(store) | \(name) | \(corpus.meanBytes) | \(disk) | \(ratio, places: 2) | \(figures.log.map { "\($0 / events)" } ?? "–") | \
                    \(figures.resting, places: 0) / \(figures.peak, places: 0) | \(figures.connections ?? "–") |
                    """)
            }
        }
        try await cluster.stop(mode: .fast)
    }

    private func sqlite(_ corpus: Corpus) throws -> Figures {
        let directory = TemporaryDirectory()
        let path = directory.path("events.sqlite")
        func size() throws -> Int { try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int ?? 0 }
        try ServerProcess(store: "sqlite:\(path)").stop()
        let empty = try size()
        let server = try ServerProcess(store: "sqlite:\(path)")
        _ = try Load.run(server: server, corpus: corpus, batchSize: 500, duplicates: .max)
        let peak = server.peakMebibytes
        // Its end empties the write-ahead log into the file.
        server.stop()
        return Figures(disk: try size() - empty, resting: server.restingMebibytes, peak: peak)
    }

    private func postgres(_ corpus: Corpus, _ cluster: PostgresCluster) async throws -> Figures {
        let uri = try await cluster.makeDatabase()
        try ServerProcess(store: uri).stop()
        let connection = try PostgresConnection(uri: uri)
        func number(_ query: String) throws -> Int { try connection.query("SELECT (\(query))::bigint")[0][0].flatMap { Int($0) } ?? 0 }
        func log() throws -> Int { try number("pg_current_wal_lsn() - '0/0'") }
        try connection.execute("CHECKPOINT")
        let (empty, before) = (try number("pg_database_size(current_database())"), try log())
        let server = try ServerProcess(store: uri)
        defer { server.stop() }
        _ = try Load.run(server: server, corpus: corpus, batchSize: 500, duplicates: .max)
        let connections = try number("SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()")
        try connection.execute("CHECKPOINT")
        return Figures(
            disk: try number("pg_database_size(current_database())") - empty, log: try log() - before, resting: server.restingMebibytes,
            peak: server.peakMebibytes, connections: "\(connections)")
    }
}
