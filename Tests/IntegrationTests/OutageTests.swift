import Foundation
import HapaxModel
import TestSupport
import Testing

/// The database goes away in each of the ways it does, under load, and comes back. No restart of ours.
@Suite("Outages of the database (I4, I15, I16)", .serialized, .endsWhenItHangs)
struct OutageTests {
    /// How long the database stays away; the longer the more its reconnections show: `HAPAX_OUTAGE_SECONDS=60`.
    private static let seconds = ProcessInfo.processInfo.environment["HAPAX_OUTAGE_SECONDS"].flatMap { Int($0) } ?? 3

    private struct Fixture {
        let cluster: PostgresCluster
        let store: PipelineStore
        let server: ServerUnderTest

        init() async throws {
            cluster = try await PostgresCluster()
            store = try await PipelineStore(.postgres, cluster: cluster)
            server = try await ServerUnderTest.start(store)
        }

        func isReady() async throws -> Bool {
            try await RawHTTP.get(port: server.port, path: "/health/ready").status == 200
        }

        /// Runs SQL as the owner of the cluster, in its own database.
        func query(_ sql: String) async throws {
            _ = try await cluster.query(sql, database: store.setting)
        }

        func allowConnections(_ isAllowed: Bool) async throws {
            let name = store.setting.split(separator: "/").last ?? ""
            _ = try await cluster.query("ALTER DATABASE \(name) ALLOW_CONNECTIONS \(isAllowed)", database: cluster.maintenance)
        }

        func reload() async throws { try await query("SELECT pg_reload_conf()") }
    }

    /// Load before, during and behind an outage.
    ///
    /// - Parameters:
    ///   - begin: Takes the database away.
    ///   - end: Brings it back; it works on return.
    private static func survive(
        _ fixture: Fixture, begin: () async throws -> Void, during: () async throws -> Void = {}, end: () async throws -> Void
    ) async throws {
        let port = fixture.server.port
        let load = SteadyLoad(ports: { [port] })
        async let running: Void = load.run()
        await load.wait(for: 50)
        #expect(try await fixture.isReady())
        try await begin()
        while try await fixture.isReady() {}
        // The fault has happened once a sender has met it.
        await load.wait { $0.statuses[503] != nil }
        try await during()
        try await end()
        let back = ContinuousClock.now
        await load.wait(for: 1)
        let first = load.books.latest ?? back
        // Two seconds on a quiet machine; here no more than what tells a pause from a stop.
        #expect(first - back < .seconds(20))
        while try await !fixture.isReady() {}
        await load.wait(for: 50)
        load.stop()
        await running
        let books = load.books
        #expect(Set(books.statuses.keys).isSubset(of: [200, 503]), "\(books.statuses)")
        #expect(books.unanswered == 0)
        // Nothing was acknowledged that is not there, and nothing is there twice.
        let rows = try await fixture.store.rows().map(\.id)
        #expect(Set(rows).count == rows.count && Set(rows) == Set(books.acknowledged) && books.acknowledged.count == rows.count)
        #expect(await fixture.server.stop() == .exited(0))
        try await fixture.cluster.stop(mode: .fast)
    }

    @Test("Stopped for a while: 503 at once, at most ten connection attempts a second, good answers when it is back")
    func stoppedDatabaseIsSurvived() async throws {
        let fixture = try await Fixture()
        let attempts = Locked(0)
        try await Self.survive(
            fixture, begin: { try await fixture.cluster.stop(mode: .fast) },
            during: {
                // Somebody else at the database's address sees how often the server knocks.
                let door = try LoopbackSocket.listening(port: fixture.cluster.port)
                let listening = Task { try await blocking { while true { _ = try door.accepted(); attempts.withLock { $0 += 1 } } } }
                try await Task.sleep(for: .seconds(Self.seconds))
                door.shutDown()
                _ = try? await listening.value
            }, end: { try await fixture.cluster.start() })
        #expect(attempts.withLock { $0 } > 0 && attempts.withLock { $0 } <= Self.seconds * 10 + 10)
    }

    @Test("The log has one line for the database that was lost and one for its return, and none of work that nobody asked for (A15)")
    func outageIsTwoLines() async throws {
        let cluster = try await PostgresCluster()
        let store = try await PipelineStore(.postgres, cluster: cluster)
        let server = try ChildProcess(
            "hapax-server",
            environment: [
                "HAPAX_PORT": "0", "HAPAX_STORE": store.setting, "HAPAX_WRITE_KEYS": "demo=\(ServerUnderTest.key)",
                "HAPAX_ADMIN_KEY": ServerUnderTest.adminKey,
            ])
        let port = try #require(Int(try await server.line(after: "listening on http://127.0.0.1:")))
        func waits(for line: String) async throws {
            var text = ""
            while !text.contains(line) {
                let answer = try await RawHTTP.get(
                    port: port, path: "/metrics", headers: ["Authorization": "Bearer \(ServerUnderTest.adminKey)"])
                text = String(decoding: answer.body, as: UTF8.self)
                await Task.yield()
            }
        }
        try await waits(for: "\nhapax_store_ready 1\n")
        try await cluster.stop(mode: .fast)
        try await waits(for: "\nhapax_store_ready 0\n")
        try await cluster.start()
        try await waits(for: "\nhapax_store_ready 1\n")
        server.terminate()
        _ = await server.waitUntilExit()
        let lines = await server.remainingErrors().split(separator: "\n")
        #expect(
            lines.count { $0.contains("The store does not answer") } == 1 && lines.count { $0.contains("The store answers again") } == 1,
            "\(lines)")
        #expect(!lines.contains { $0.contains("rasure") || $0.contains("kept") || $0.contains("Reports") }, "\(lines)")
        try await cluster.stop(mode: .fast)
    }

    @Test("Crashed and restarted at once")
    func crashedDatabaseIsSurvived() async throws {
        let fixture = try await Fixture()
        try await Self.survive(
            fixture, begin: { try await fixture.cluster.stop(mode: .immediate) }, end: { try await fixture.cluster.start() })
    }

    @Test("Read-only, as behind a failover: nothing is acknowledged until it can be written to")
    func readOnlyDatabaseIsSurvived() async throws {
        let fixture = try await Fixture()
        try await Self.survive(
            fixture,
            begin: {
                try await fixture.query("ALTER SYSTEM SET default_transaction_read_only = on")
                try await fixture.reload()
            },
            end: {
                try await fixture.query("ALTER SYSTEM RESET default_transaction_read_only")
                try await fixture.reload()
            })
    }

    @Test("Out of connections, with all of ours cut")
    func refusedConnectionsAreSurvived() async throws {
        let fixture = try await Fixture()
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'hapax-server%'"
        try await Self.survive(
            fixture,
            begin: {
                try await fixture.allowConnections(false)
                _ = try await fixture.cluster.query(cut, database: fixture.cluster.maintenance)
            }, end: { try await fixture.allowConnections(true) })
    }

    /// A user's events come the whole time; what had come when the erasure was asked for goes, whoever is killed meanwhile.
    @Test(
        "Three servers on one database under load, killed in turn: nothing lost, nothing twice, a user erased once, counters that add up (I1, I2, I10, I12)"
    )
    func serversAreKilledInTurn() async throws {
        let store = try await PipelineStore(.postgres)
        var started: [ServerUnderTest] = []
        for _ in 0..<3 { started.append(try await ServerUnderTest.start(store)) }
        let servers = Locked(started)
        func erasures(_ server: ServerUnderTest, asking body: String? = nil) async throws -> String {
            let headers = ["Authorization": "Bearer \(ServerUnderTest.adminKey)", "Content-Type": "application/json"]
            let path = "/v1/admin/erasures"
            guard let body else {
                return String(decoding: try await RawHTTP.get(port: server.port, path: path, headers: headers).body, as: UTF8.self)
            }
            return String(
                decoding: try await RawHTTP.post(port: server.port, path: path, headers: headers, body: Array(body.utf8)).body,
                as: UTF8.self)
        }
        let load = SteadyLoad(ports: { servers.withLock { $0.map(\.port) } })
        async let running: Void = load.run(senders: 6)
        for round in 0..<12 {
            await load.wait(for: 40)
            let server = servers.withLock { $0[round % 3] }
            if round == 3 { #expect(try await erasures(server, asking: #"{"project":"demo","user":"c0","yes":true}"#).contains("running")) }
            await server.kill()
            let next = try await ServerUnderTest.start(store)
            servers.withLock { $0[round % 3] = next }
        }
        await load.wait(for: 40)
        while try await !erasures(servers.withLock { $0[0] }).contains(#""state":"done""#) { await load.wait(for: 40) }
        load.stop()
        await running
        let books = load.books
        let rows = try await store.rows().map(\.id)
        #expect(rows.count == Set(rows).count && Set(rows) == Set(books.acknowledged))
        let before = "distinct_id = 'c0' AND received_at <= (SELECT asked_at FROM erasures)"
        #expect(try await store.query("SELECT count(*) FROM events WHERE \(before)") == [["0"]])
        let erased = try await store.query("SELECT count(*) FROM events WHERE event = ''")
        #expect(try await store.query("SELECT rows FROM erasures") == erased && erased != [["0"]])
        #expect(books.unanswered > 0, "the fault happened")
        #expect(Set(books.statuses.keys).isSubset(of: [200, 503]))
        for server in servers.withLock({ $0 }) {
            let counters = try await server.counters()
            let outcomes = counters.filter { $0.key.hasPrefix("hapax_events_total") }.values.reduce(0, +)
            #expect(outcomes == counters["hapax_events_received_total"] && outcomes > 0)
            #expect(await server.stop() == .exited(0))
        }
    }
}
