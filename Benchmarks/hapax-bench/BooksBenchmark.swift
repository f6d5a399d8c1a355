import Foundation
import HapaxModel
import HapaxServer
import Logging
import TestSupport

/// What the books of a group's installs add to its transaction.
///
/// The same store that the server uses, without network and JSON, on a database that does not wait for the disk, since its waits would hide what is
/// measured.
struct BooksBenchmark {
    private static let rounds = 300
    private static let events = 800

    private struct Case {
        var installs: Int
        var ranges: Int
        var milliseconds: [Double] = []
    }

    func run() async throws {
        let cluster = try await PostgresCluster(settings: ["fsync=off"])
        let uri = try await cluster.makeDatabase()
        var options = PostgresEventStore.Options()
        options.unsafeAllowNonDurableStore = true
        let store = try await PostgresEventStore(
            uri: uri, options: options, logger: Logger(label: "bench", factory: { _ in SwiftLogNoOpLogHandler() }))
        let project = try await store.projectID(named: "bench")
        let connection = try PostgresConnection(uri: uri)
        var generator = UUIDv7Generator()
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        let installs = (0..<16).map { _ in generator.next(unixMilliseconds: now) }
        var cases = [
            Case(installs: 0, ranges: 0), Case(installs: 4, ranges: 1), Case(installs: 16, ranges: 1), Case(installs: 16, ranges: 100),
        ]
        for round in 1...Self.rounds {
            for index in cases.indices {
                let item = cases[index]
                // As many ranges as a book can have, half of them with reasons, or a book of somebody who has lost nothing.
                let gaps = item.ranges > 1
                let stored = gaps ? "(SELECT range_agg(int8range(i * 4, i * 4 + 2)) FROM generate_series(1, 99) AS i)" : "'{[1,500)}'"
                let fates =
                    gaps
                    ? "(SELECT jsonb_agg(jsonb_build_array(i * 4 + 2, i * 4 + 3, 1, 1, 'name_too_long', false)) FROM generate_series(1, 99) AS i)"
                    : "'[]'"
                try connection.execute(
                    "UPDATE installs SET begins = 4, created = 500, acknowledged = 400, stored = \(stored), fates = \(fates)")
                let records = Corpus(count: Self.events).events.map { event in
                    let scanned = EventScanner.scan(event[...])
                    return EventRecord(scanned, id: scanned.id ?? installs[0], projectID: project, envelope: .init())
                }
                let reports = installs.prefix(item.installs).compactMap { install in
                    InstallReport(.init(installID: install, created: 1_000 + Int64(round), acknowledged: 400), projectID: project)
                }
                let group = StoreGroup(
                    records: records.sorted { $0.key < $1.key }, reports: reports.sorted { $0.key < $1.key })
                let start = ContinuousClock.now
                _ = try await store.commit(group, writer: 0)
                // The first ones plan, and make the installs.
                if round > 10 { cases[index].milliseconds.append((ContinuousClock.now - start) / .milliseconds(1)) }
            }
        }
        let without = cases[0].milliseconds.median
        print(
            "\n### Books: a group of \(Self.events) events, PostgreSQL \(cluster.version) without waiting for the disk, medians of \(Self.rounds)\n"
        )
        print("| installs | ranges each | ms | of which books |")
        print("|---|---|---|---|")
        for item in cases {
            let median = item.milliseconds.median
            print("| \(item.installs) | \(item.ranges) | \(median, places: 2) | \(median - without, places: 2) |")
        }
        await store.close()
        try await cluster.stop(mode: .fast)
    }
}
