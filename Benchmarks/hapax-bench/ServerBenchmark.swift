import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// The server against what its database can take, in interleaved rounds.
struct ServerBenchmark {
    var events: Int
    var rounds: Int
    /// Whether PostgreSQL has the second core for itself, and load and server the first; else the system shares both out.
    var isPinned = false
    var hasPeer = false
    /// Whether the cost of TLS is measured as well.
    var isSecured = false
    /// Whether keys in the store, among many, are compared with one of the settings.
    var hasStoreKeys = false
    /// Whether clients' batches, of which the server keeps books, are compared with those of senders without numbers.
    var hasBooks = false

    private struct Case {
        var name: String
        var batchSize: Int
        var isCompressed = false
        var isPeer = false
        /// Sent with a key of the store.
        var hasStoreKey = false
        /// Of clients with numbers, or of senders without; nil: the usual load.
        var isNumbered: Bool?
        /// Through a relay: over TLS, or plain, for comparison; nil: directly.
        var isSecure: Bool?
        /// Whether all is sent again, then exported and sent once more.
        var isResent = false
        var measurements: [Measurement] = []
    }

    private struct Measurement {
        var figures: Load.Figures
        /// Of PostgreSQL, of each event.
        var databaseCPUMicroseconds: Double
        /// Distinct events in a transaction.
        var groupSize: Double?
        /// At most.
        var mebibytes: Double
        var resent: Double?
        var importedBack: Double?
    }

    func run() async throws {
        // What a process starts inherits its core: all of PostgreSQL's processes, later the servers.
        if isPinned { try Self.pin(core: 1) }
        let cluster = try await PostgresCluster()
        if isPinned { try Self.pin(core: 0) }
        var cases = [
            Case(name: "batches of 50", batchSize: 50), Case(name: "batches of 50, gzip", batchSize: 50, isCompressed: true),
            Case(name: "batches of 500", batchSize: 500, isResent: true),
            Case(name: "batches of 500, gzip", batchSize: 500, isCompressed: true),
        ]
        if hasPeer {
            try PeerProcess.install()
            cases += [
                Case(name: "FastAPI and asyncpg, batches of 50", batchSize: 50, isPeer: true),
                Case(name: "FastAPI and asyncpg, batches of 500", batchSize: 500, isPeer: true),
            ]
        }
        if hasStoreKeys {
            cases += [50, 500].map { Case(name: "batches of \($0), a key of the store", batchSize: $0, hasStoreKey: true) }
        }
        if hasBooks {
            cases += [50, 500].flatMap { size in
                [false, true].map { Case(name: "batches of \(size), \($0 ? "numbered" : "no numbers")", batchSize: size, isNumbered: $0) }
            }
        }
        if isSecured {
            for (name, size, isCompressed) in [
                ("batches of 50", 50, false), ("batches of 50, gzip", 50, true), ("batches of 500", 500, false),
                ("batches of 500, gzip", 500, true),
            ] {
                cases += [false, true].map {
                    Case(name: "\(name), relayed\($0 ? ", TLS" : "")", batchSize: size, isCompressed: isCompressed, isSecure: $0)
                }
            }
        }
        var limits: [(rate: Double, databaseCPU: Double)] = []
        var sqlite: [(rate: Double, raw: Double)] = []
        for round in 1...rounds {
            note("round \(round) of \(rounds): COPY")
            limits.append(try await limit(cluster))
            for index in cases.indices {
                note("round \(round) of \(rounds): \(cases[index].name)")
                cases[index].measurements.append(try await measure(cluster, cases[index]))
            }
            note("round \(round) of \(rounds): SQLite")
            sqlite.append(try self.sqlite())
        }
        report(cases, limits, sqlite, version: cluster.version)
        try await cluster.stop(mode: .fast)
    }

    /// Moves this process to a core (taskset(1)), which fails if a thread ends meanwhile: then again.
    private static func pin(core: Int) throws {
        for _ in 0..<10 {
            let command = Process()
            command.executableURL = URL(fileURLWithPath: "/usr/bin/taskset")
            command.arguments = ["--all-tasks", "--cpu-list", "--pid", "\(core)", "\(getpid())"]
            command.standardOutput = FileHandle.standardError
            try command.run()
            command.waitUntilExit()
            if command.terminationStatus == 0 { return }
        }
        throw BenchmarkError("taskset could not pin this process")
    }

    private func limit(_ cluster: PostgresCluster) async throws -> (rate: Double, databaseCPU: Double) {
        let uri = try await makeDatabase(cluster)
        let before = databaseCPU(cluster)
        let rate = try CopyLimit.run(uri: uri, corpus: Corpus(count: events))
        return (rate, (databaseCPU(cluster) - before) / Double(events) * 1_000_000)
    }

    /// A database with the server's schema, made by the server, so that it is the same to the letter. Each measurement begins right behind a
    /// checkpoint, so that none pays for another's pages.
    private func makeDatabase(_ cluster: PostgresCluster) async throws -> String {
        let uri = try await cluster.makeDatabase()
        try ServerProcess(store: uri).stop()
        try PostgresConnection(uri: uri).execute("CHECKPOINT")
        return uri
    }

    private func databaseCPU(_ cluster: PostgresCluster) -> Double {
        cluster.processIdentifier.map { ProcessTree(root: $0).cpuSeconds } ?? .nan
    }

    private func measure(_ cluster: PostgresCluster, _ item: Case) async throws -> Measurement {
        let uri = try await makeDatabase(cluster)
        func makeLoad(key: String = ServerProcess.key) throws -> Load {
            if let isNumbered = item.isNumbered { return Load(ofClients: isNumbered, events: events, batchSize: item.batchSize) }
            return try Load(Corpus(count: events), batchSize: item.batchSize, isCompressed: item.isCompressed, key: key)
        }
        var load = try makeLoad()
        func measured(_ server: some LoadTarget) throws -> Measurement {
            let before = databaseCPU(cluster)
            let figures = try load.run(server)
            let used = databaseCPU(cluster) - before
            return Measurement(
                figures: figures, databaseCPUMicroseconds: used / Double(figures.events) * 1_000_000,
                mebibytes: item.isPeer ? server.residentMebibytes : server.peakMebibytes)
        }
        if item.isPeer {
            let peer = try PeerProcess(store: uri)
            defer { peer.stop() }
            return try measured(peer)
        }
        let directory = TemporaryDirectory("bench")
        let files = item.isSecure == true ? try await TestCertificate(in: directory) : nil
        let server = try ServerProcess(store: uri, certificate: files)
        defer { server.stop() }
        if item.isSecure != nil {
            let relay = try await Relay(to: server, certificate: files?.certificate)
            let measurement = try measured(relay)
            try await relay.stop()
            return measurement
        }
        if item.hasStoreKey { load = try makeLoad(key: try Self.addKeys(server, uri)) }
        var measurement = try measured(server)
        let groups = try server.groups
        measurement.groupSize = groups.events / max(groups.transactions, 1)
        if item.isResent {
            measurement.resent = try load.run(server, isResent: true).rate
            measurement.importedBack = try Load(lines: Export.lines(of: server, count: events), batchSize: item.batchSize).run(
                server, isResent: true
            ).rate
        }
        return measurement
    }

    /// A thousand keys and two hundred projects in the store.
    ///
    /// - Returns: One of the keys, of the project in which all measure.
    private static func addKeys(_ server: ServerProcess, _ uri: String) throws -> String {
        try PostgresConnection(uri: uri).execute(
            """
            INSERT INTO projects (name) SELECT 'project-' || i FROM generate_series(1, 199) AS i;
            INSERT INTO keys (digest, beginning, kind, project_id, name, created_at)
            SELECT encode(sha256((i || name)::bytea), 'hex'), '', 'write', project_id, '', now()
            FROM generate_series(1, 5) AS i, projects WHERE name LIKE 'project-%'
            """)
        let body = Array(#"{"kind":"write","project":"bench"}"#.utf8)
        let answer = try HTTPConnection(port: server.port).send(
            HTTPConnection.request(path: "/v1/admin/keys", body: body, key: ServerProcess.adminKey))
        guard let key = String(decoding: answer, as: UTF8.self).firstMatch(of: /hapax_w_\w+/) else {
            throw BenchmarkError("no key was made")
        }
        return String(key.0)
    }

    private func sqlite() throws -> (rate: Double, raw: Double) {
        let directory = TemporaryDirectory("bench")
        let store = directory.path("events.sqlite")
        let server = try ServerProcess(store: "sqlite:\(store)")
        let rate: Double
        do {
            defer { server.stop() }
            rate = try Load.run(server: server, corpus: Corpus(count: events), batchSize: 500).rate
        }
        let raw = directory.path("raw.sqlite")
        try ServerProcess(store: "sqlite:\(raw)").stop()
        return (rate, try RawSQLite.store(path: raw, corpus: Corpus(count: events)))
    }

    private func report(
        _ cases: [Case], _ limits: [(rate: Double, databaseCPU: Double)], _ sqlite: [(rate: Double, raw: Double)], version: Int
    ) {
        let limit = limits.map(\.rate).median
        let bytes = Corpus(count: 1_000).meanBytes
        print("\n### Server: until acknowledged, \(Load.connections) connections, \(bytes)-byte events, 1 % duplicates\n")
        print(
            "PostgreSQL \(version), \(isPinned ? "on a core of its own" : "all processes on all cores"); "
                + "\(events) events a measurement, medians of \(rounds) interleaved rounds.\n")
        print("| What | events/s | of COPY | server µs an event | PostgreSQL µs | events a group | p50 ms | p99 ms | memory MiB |")
        print("|---|---|---|---|---|---|---|---|---|")
        print(
            "| binary COPY, \(CopyLimit.connections) connections, no server | \(Int(limit)) | 1.00 | – "
                + "| \(limits.map(\.databaseCPU).median, places: 1) | \(CopyLimit.rowsPerCopy) | – | – | – |")
        for item in cases {
            let figures = item.measurements.map(\.figures)
            let group = item.isPeer ? "\(item.batchSize)" : "\(Int(item.measurements.compactMap(\.groupSize).median))"
            print(
                "| \(item.name) | \(Int(figures.map(\.rate).median)) | \(ratio(figures, limits.map(\.rate)), places: 2) "
                    + "| \(figures.map(\.serverCPUMicroseconds).median, places: 1) "
                    + "| \(item.measurements.map(\.databaseCPUMicroseconds).median, places: 1) | \(group) "
                    + "| \(figures.map(\.p50).median, places: 1) | \(figures.map(\.p99).median, places: 1) "
                    + "| \(Int(item.measurements.map(\.mebibytes).median)) |")
        }
        print("\n| What | events/s | beside | ratio |")
        print("|---|---|---|---|")
        for item in cases where item.isResent {
            let new = item.measurements.map(\.figures.rate)
            for (name, rates) in [
                ("all of it sent again", item.measurements.compactMap(\.resent)),
                ("its export sent back, by lines", item.measurements.compactMap(\.importedBack)),
            ] {
                print(
                    "| \(item.name): \(name) | \(Int(rates.median)) | \(Int(new.median)), new | \(rates.median / new.median, places: 2) |")
            }
        }
        let (rate, raw) = (sqlite.map(\.rate).median, sqlite.map(\.raw).median)
        print("| SQLite store, batches of 500 | \(Int(rate)) | \(Int(raw)), raw SQLite | \(rate / raw, places: 2) |")
        for item in cases where item.hasStoreKey {
            guard let own = cases.first(where: { !$0.hasStoreKey && !$0.isCompressed && $0.batchSize == item.batchSize }) else { continue }
            let (ours, theirs) = (item.measurements.map(\.figures), own.measurements.map(\.figures))
            print(
                "| \(item.name), among 1,000 of 200 projects | \(Int(ours.map(\.rate).median)) | \(Int(theirs.map(\.rate).median)), a key of the "
                    + "settings | \(ratio(ours, theirs.map(\.rate)), places: 3) |")
        }
        for item in cases where item.isNumbered == true {
            guard let own = cases.first(where: { $0.isNumbered == false && $0.batchSize == item.batchSize }) else { continue }
            let (ours, theirs) = (item.measurements.map(\.figures), own.measurements.map(\.figures))
            print(
                "| \(item.name), \(Load.installs) installs with books | \(Int(ours.map(\.rate).median)) | \(Int(theirs.map(\.rate).median)), no "
                    + "numbers | \(ratio(ours, theirs.map(\.rate)), places: 3) |")
        }
        for peer in cases where peer.isPeer {
            guard let own = cases.first(where: { !$0.isPeer && !$0.isCompressed && $0.batchSize == peer.batchSize }) else { continue }
            let (ours, theirs) = (own.measurements.map(\.figures), peer.measurements.map(\.figures))
            let cpu = theirs.map(\.serverCPUMicroseconds).median / ours.map(\.serverCPUMicroseconds).median
            print(
                "| \(own.name) | \(Int(ours.map(\.rate).median)) | \(Int(theirs.map(\.rate).median)), \(peer.name) "
                    + "| \(ratio(ours, theirs.map(\.rate)), places: 2), at 1/\(cpu, places: 1) of its CPU |")
        }
        let load = cases.filter { !$0.isPeer }.map { "\($0.measurements.map(\.figures.loadCPUMicroseconds).median.rounded(toPlaces: 2))" }
        print("\nThe load itself takes \(load.joined(separator: ", ")) µs an event, in the order of the cases.")
    }

    /// The median of each round's own ratio: the machine is not equally fast in all of them.
    private func ratio(_ figures: [Load.Figures], _ limits: [Double]) -> Double {
        zip(figures, limits).map { $0.rate / $1 }.median
    }
}

/// Everything that a server has stored, as it exports it.
enum Export {
    static func lines(of server: ServerProcess, count: Int) throws -> [ArraySlice<UInt8>] {
        let today = Int(Date().timeIntervalSince1970) / 86_400
        let (from, to) = (CalendarDay.first.advanced(by: today - 1), CalendarDay.first.advanced(by: today + 1))
        for _ in 0..<60 {
            var bytes: [UInt8] = []
            let connection = try HTTPConnection(port: server.port)
            _ = try connection.drain(HTTPConnection.get("/v1/export?from=\(from)&to=\(to)", port: server.port), take: { bytes += $0 })
            let found = HTTPConnection.unchunked(bytes).split(separator: 0x0A)
            if found.count == count { return found }
            // What was stored within the last seconds is not exported yet.
            Thread.sleep(forTimeInterval: 1)
        }
        throw BenchmarkError("the export does not hold all \(count) events")
    }
}
