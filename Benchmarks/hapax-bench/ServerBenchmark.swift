import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// The server against what its database can take, in interleaved rounds.
struct ServerBenchmark {
    var events: Int
    var rounds: Int

    private struct Case {
        var name: String
        var batchSize: Int
        var isCompressed = false
        /// Added to the database's URI.
        var parameters = ""
        var figures: [Load.Figures] = []
    }

    func run() async throws {
        let directory = "/tmp"
        let cluster = try await PostgresCluster(settings: ["unix_socket_directories=\(directory)"])
        var cases = [
            Case(name: "batches of 50", batchSize: 50), Case(name: "batches of 500", batchSize: 500),
            Case(name: "batches of 500, gzip", batchSize: 500, isCompressed: true),
            Case(name: "batches of 50, PostgreSQL by a Unix socket", batchSize: 50, parameters: "?host=\(directory)"),
            Case(name: "batches of 500, the same", batchSize: 500, parameters: "?host=\(directory)"),
        ]
        var limits: [Double] = []
        for round in 1...rounds {
            note("round \(round) of \(rounds): COPY")
            limits.append(try await limit(cluster))
            for index in cases.indices {
                note("round \(round) of \(rounds): \(cases[index].name)")
                cases[index].figures.append(try await load(cluster, cases[index]))
            }
        }
        report(cases, limits)
        try await cluster.stop(mode: .fast)
    }

    private func limit(_ cluster: PostgresCluster) async throws -> Double {
        let uri = try await cluster.makeDatabase()
        // The server makes the schema, so that it is the same to the letter.
        let server = try ServerProcess(store: uri)
        server.stop()
        try await settle(cluster, uri)
        return try CopyLimit.run(uri: uri, corpus: Corpus(count: events))
    }

    private func load(_ cluster: PostgresCluster, _ item: Case) async throws -> Load.Figures {
        let uri = try await cluster.makeDatabase()
        let server = try ServerProcess(store: uri + item.parameters)
        defer { server.stop() }
        try await settle(cluster, uri)
        return try Load.run(
            server: server, corpus: Corpus(count: events), batchSize: item.batchSize, isCompressed: item.isCompressed)
    }

    /// Each measurement begins right behind a checkpoint, so that none pays for another's pages.
    private func settle(_ cluster: PostgresCluster, _ uri: String) async throws {
        try PostgresConnection(uri: uri).execute("CHECKPOINT")
    }

    private func report(_ cases: [Case], _ limits: [Double]) {
        let limit = limits.median
        let bytes = Corpus(count: 1_000).meanBytes
        print("\n### Server: until acknowledged, \(Load.connections) connections, \(bytes)-byte events, 1 % duplicates\n")
        print("\(events) events a measurement, medians of \(rounds) interleaved rounds.\n")
        print("| What | events/s | ratio to COPY | server CPU µs/event | answer p50 ms | p99 ms |")
        print("|---|---|---|---|---|---|")
        print("| binary COPY, \(CopyLimit.connections) connections, no server | \(Int(limit)) | 1.00 | – | – | – |")
        for item in cases {
            let rate = item.figures.map(\.rate).median
            let cpu = item.figures.compactMap(\.serverCPUMicroseconds).median
            print(
                "| \(item.name) | \(Int(rate)) | \(rate / limit, places: 2) | \(cpu, places: 1) "
                    + "| \(item.figures.map(\.p50).median, places: 1) | \(item.figures.map(\.p99).median, places: 1) |")
        }
    }
}
