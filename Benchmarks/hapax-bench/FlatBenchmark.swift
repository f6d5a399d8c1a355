import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// Whether ingest stays as fast when much is stored, by the kind of ids, and what a report's plan costs with many months.
struct FlatBenchmark {
    var history: History
    var events: Int
    var rounds: Int

    func run() async throws {
        let cluster = try await PostgresCluster()
        let full = try await database(cluster)
        note("writing \(history.count) events")
        try history.write(postgres: full)
        // A server that has never seen these days closes them first.
        let closing = try ServerProcess(store: full)
        let today = CalendarDay.first.advanced(by: Int(Date().timeIntervalSince1970) / 86_400)
        try closing.waitForClosedDays(from: today.advanced(by: -2).description, to: today.advanced(by: -1).description)
        closing.stop()
        var rates: [[Double]] = Array(repeating: [], count: 4)
        let cases: [(isFull: Bool, isRandom: Bool)] = [(false, false), (true, false), (false, true), (true, true)]
        for round in 1...rounds {
            for (index, item) in cases.enumerated() {
                note("round \(round) of \(rounds): \(item.isFull ? "full" : "empty"), version \(item.isRandom ? 4 : 7)")
                let uri = item.isFull ? full : try await database(cluster)
                try PostgresConnection(uri: uri).execute("CHECKPOINT")
                let server = try ServerProcess(store: uri)
                defer { server.stop() }
                rates[index].append(
                    try Load.run(server: server, corpus: Corpus(count: events, hasRandomIDs: item.isRandom), batchSize: 500).rate)
            }
        }
        print("\n### Flat: PostgreSQL \(cluster.version), batches of 500, \(events) events a measurement, medians of \(rounds)\n")
        print("| ids | events/s into an empty store | beside \(history.count) events | ratio |")
        print("|---|---|---|---|")
        for (name, empty, full) in [("version 7", rates[0], rates[1]), ("version 4", rates[2], rates[3])] {
            print("| \(name) | \(Int(empty.median)) | \(Int(full.median)) | \(full.median / empty.median, places: 2) |")
        }
        print("\n| months | planning of a question over a day, ms |")
        print("|---|---|")
        for count in [31, 151] {
            print("| \(count) | \(try await planning(cluster, partitions: count), places: 2) |")
        }
        try await cluster.stop(mode: .fast)
    }

    private func database(_ cluster: PostgresCluster) async throws -> String {
        let uri = try await cluster.makeDatabase()
        try ServerProcess(store: uri).stop()
        return uri
    }

    /// - Returns: Milliseconds, the median of many, in a session that has planned it before.
    private func planning(_ cluster: PostgresCluster, partitions: Int) async throws -> Double {
        let uri = try await database(cluster)
        let connection = try PostgresConnection(uri: uri)
        let known =
            try connection.query("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass")[0][0].flatMap { Int($0) } ?? 0
        // Further months, far from those that the server has made.
        for index in 0..<max(0, partitions - known) {
            let first = 30_000 + index * 30
            try connection.execute("CREATE TABLE more_\(index) PARTITION OF events FOR VALUES FROM (\(first)) TO (\(first + 30))")
        }
        let now = "now() AT TIME ZONE 'UTC'"
        let plans = try (0..<30).map { _ in
            let lines = try connection.query(
                """
                EXPLAIN (SUMMARY) SELECT event, count(*) FROM events
                WHERE project_id = 1 AND received_at >= \(now) - interval '1 day' AND received_at < \(now) GROUP BY event
                """)
            return lines.compactMap { $0[0]?.firstMatch(of: /Planning Time: ([0-9.]+) ms/).flatMap { Double($0.1) } }.first ?? .nan
        }
        return plans.dropFirst(5).map { $0 }.median
    }
}
