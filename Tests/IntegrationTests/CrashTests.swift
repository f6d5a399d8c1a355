import Foundation
import HapaxModel
import HapaxServer
import TestSupport
import Testing

@testable import HapaxClient

/// Processes are killed with SIGKILL at random moments, the database is stopped in mid-batch.
@Suite("Crashes", .serialized, .endsWhenItHangs)
struct CrashTests {
    typealias Kind = PipelineStore.Kind

    // MARK: - The client

    @Test(
        "The client is killed at random moments while it tracks durably and uploads through a bad network (I1, I6, I7, R14)",
        arguments: [(Kind.postgres, 25, "process"), (.sqlite, 25, "power")])
    func clientIsKilled(kind: Kind, rounds: Int, level: String) async throws {
        var random = SeededRandom.printed()
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port, plan: FaultPlan { $0.number.isMultiple(of: 3) ? .dropAnswer : .pass })
        let directory = TemporaryDirectory("killed")
        let place = ["--server", "http://127.0.0.1:\(proxy.port)", "--key", ServerUnderTest.key, "--queue", directory.path("queue")]
        var reports: [Audit.Report] = []
        var orders: [Audit.Order] = []
        var killedWithRowsQueued = 0
        for round in 0..<rounds {
            let worker = try ChildProcess(
                "hapax-test-worker", ["track", "--level", level, "--threads", "4", "--durably", "--bulk", "10"] + place)
            var lines: [String] = []
            let enough = Int.random(in: 1...120, using: &random)
            while lines.count < enough, let line = await worker.nextLine() { lines.append(line) }
            worker.kill()
            // What was written before the kill was returned before the kill.
            lines += await worker.remainingLines()
            #expect(await worker.waitUntilExit() == .signaled(SIGKILL), "\(worker.standardErrorTail)")
            let events = lines.compactMap(Self.report)
            #expect(events.count == lines.count)
            reports += events
            // Four callers write their lines in any order, but a later process never gives a lower number than an earlier one.
            if let lowest = events.compactMap(\.sequence).min() { orders.append(Audit.Order("\(round)", [(Self.anyInstall, lowest)])) }
            if try depth(directory.path("queue")) > 0 { killedWithRowsQueued += 1 }
        }
        let drained = try ChildProcess("hapax-test-worker", ["drain", "--within", "60"] + place)
        let line = try #require(await drained.nextLine())
        #expect(await drained.waitUntilExit() == .exited(0), "\(line)")
        let status = try JSONDecoder().decode(DrainStatus.self, from: Data(line.utf8))
        await server.stop()

        var audit = Audit()
        audit.rows = try await store.rows()
        audit.reports = reports.map { Audit.Report(id: $0.id, install: status.install_id, sequence: $0.sequence) }
        // A process that is killed between a commit and its report leaves an event that nobody was told of.
        audit.mayHoldUnreported = true
        audit.orders = [
            Audit.Order("processes", orders.flatMap(\.events)), Audit.Order("first uploads", proxy.tally.firstUploads),
        ]
        audit.books = [
            Audit.Books(
                install: status.install_id, tracked: status.created, stored: status.stored + status.duplicates,
                dead: status.dead_lettered, queued: status.depth)
        ]
        #expect(audit.violations == [])
        #expect(audit.rows.count == status.created)
        #expect(killedWithRowsQueued > 0)
        #expect(proxy.tally.happened(.dropAnswer) > 0)
        #expect(proxy.tally.total(.duplicate) > 0)
    }

    @Test(
        "Three processes share a directory, and any of them is killed at any moment: all is stored once, each install's in order (I1, I2, I7)",
        arguments: Kind.allCases)
    func sharersAreKilled(kind: Kind) async throws {
        var random = SeededRandom.printed()
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port, plan: FaultPlan { $0.number.isMultiple(of: 4) ? .dropAnswer : .pass })
        let directory = TemporaryDirectory("shared")
        let (url, queue) = ("http://127.0.0.1:\(proxy.port)", directory.path("queue"))
        var started = 0
        func start() throws -> ChildProcess {
            started += 1
            return try ChildProcess(
                "hapax-test-worker",
                ["track", "--threads", "2", "--durably", "--bulk", "10", "--label", "r\(started)"]
                    + ["--server", url, "--key", ServerUnderTest.key, "--queue", queue])
        }
        var audit = Audit()
        var installs: Set<EventID> = []
        func end(_ worker: ChildProcess, after count: Int) async {
            var lines: [String] = []
            while lines.count < count, let line = await worker.nextLine() { lines.append(line) }
            worker.kill()
            lines += await worker.remainingLines()
            #expect(await worker.waitUntilExit() == .signaled(SIGKILL), "\(worker.standardErrorTail)")
            let words = lines.map { $0.split(separator: " ").map(String.init) }
            guard let install = words.first(where: { $0[0] == "install" }).flatMap({ EventID(uuidString: $0[1]) }) else { return }
            installs.insert(install)
            audit.reports += words.filter { $0[0] == "durable" }.compactMap { words in
                EventID(uuidString: words[1]).map { Audit.Report(id: $0, install: install, sequence: Int64(words[2])) }
            }
        }
        var workers = try [start(), start(), start()]
        for _ in 0..<25 {
            let slot = Int.random(in: 0..<3, using: &random)
            await end(workers[slot], after: Int.random(in: 0...80, using: &random))
            workers[slot] = try start()
        }
        for worker in workers { await end(worker, after: 1) }
        let left = try QueueContents(queue)
        let environment = ["HAPAX_SERVER": url, "HAPAX_KEY": ServerUnderTest.key, "HAPAX_QUEUE": queue]
        // One attempt that fails ends a flush: it is called again, as cron does.
        var flush: ChildProcess
        var flushes = 0
        repeat {
            flush = try ChildProcess("hapax", ["flush", "--timeout", "60"], environment: environment)
            flushes += 1
        } while await flush.waitUntilExit() == .exited(2) && flushes < 100
        #expect(await flush.waitUntilExit() == .exited(0), "\(flush.standardErrorTail)")
        await server.stop()

        audit.rows = try await store.rows()
        // Also of an install whose process was killed before it had reported anything.
        audit.mayHoldUnreported = true
        audit.orders = [Audit.Order("first uploads", proxy.tally.firstUploads)]
        let files = try QueueContents(queue).files
        audit.books = files.map { file in
            let counters = file.counters
            return Audit.Books(
                install: counters.installID, tracked: Int(counters.created), stored: Int(counters.stored + counters.duplicates),
                dead: Int(counters.deadLettered), queued: Int(counters.waiting))
        }
        #expect(audit.violations == [])
        #expect(audit.rows.count == files.reduce(0) { $0 + Int($1.counters.created) })
        #expect(files.allSatisfy { $0.waiting.isEmpty } && left.waiting > 0)
        // Each holds its own and one that it sends.
        #expect(files.count <= 6 && installs.isSubset(of: files.map(\.counters.installID)), "files are taken over, not begun anew")
        #expect(proxy.tally.happened(.dropAnswer) > 0)
    }

    private static let anyInstall = EventID.derived(name: "any", key: "install")

    private struct DrainStatus: Decodable {
        var install_id: EventID
        var created, stored, duplicates, dead_lettered, depth: Int
    }

    private static func report(_ line: String) -> Audit.Report? {
        let words = line.split(separator: " ")
        guard words.count == 3, words[0] == "durable", let id = EventID(uuidString: String(words[1])) else { return nil }
        return Audit.Report(id: id, sequence: Int64(words[2]))
    }

    private func depth(_ queue: String) throws -> Int64 {
        try QueueContents(queue).waiting
    }

    // MARK: - The server

    @Test("The server is killed at random moments, also after a commit whose answer is still to come (I2, I4)", arguments: Kind.allCases)
    func serverIsKilled(kind: Kind) async throws {
        var random = SeededRandom.printed()
        let store = try await PipelineStore(kind)
        var server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port)
        let client = try await ClientUnderTest(port: proxy.port, batchSize: 20)
        var unstoredKills = 0
        for round in 0..<25 {
            try await client.track(count: 60)
            // Every other kill comes while a committed answer is withheld; the rest somewhere in a request's life.
            let gate = Gate()
            let isWithheld = round.isMultiple(of: 2)
            proxy.follow(FaultPlan { _ in isWithheld ? .delayAnswer(until: gate) : .pass })
            async let flush = client.client.flush()
            if isWithheld {
                await gate.waitForArrivals(1)
            } else {
                let before = proxy.tally.exchanges.count
                let more = Int.random(in: 0...1, using: &random)
                await proxy.wait { $0.exchanges.count >= before + more }
            }
            await server.kill()
            if isWithheld { proxy.follow(FaultPlan { _ in .resetBeforeRequest }) }
            let unanswered = proxy.tally.unanswered
            gate.open()
            _ = await flush
            if proxy.tally.unanswered > unanswered { unstoredKills += 1 }
            server = try await ServerUnderTest.start(store)
            proxy.retarget(to: server.port)
            // The answer that was withheld is lost as well: what it acknowledged must be found again.
            proxy.follow(FaultPlan { $0.number.isMultiple(of: 4) ? .dropAnswer : .pass })
            _ = await client.client.flush()
        }
        proxy.follow(.pass)
        try await client.drain()
        await server.stop()
        let audit = try await client.audit(store, proxy)
        #expect(audit.violations == [])
        #expect(audit.rows.count == 25 * 60)
        #expect(unstoredKills > 0)
        #expect(proxy.tally.happened(.delayAnswer) > 0)
        #expect(proxy.tally.total(.duplicate) > 0)
    }

    @Test("SIGTERM stops the server within 10 s, idle connections open, and what it answered is stored (I17)", arguments: Kind.allCases)
    func serverStopsGracefully(kind: Kind) async throws {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        let idle = try await RawHTTP(port: server.port)
        try await idle.send("POST /v1/events HTTP/1.1\r\n")
        let client = try await ClientUnderTest(port: server.port)
        try await client.track(count: 200)
        try await client.drain()
        // It ends itself with another status when stopping takes longer.
        #expect(await server.stop() == .exited(0))
        #expect(try await store.rows().count == 200)
    }

    // MARK: - The database

    @Test("PostgreSQL is stopped with -m immediate while a group waits inside its transaction (I1, I4, I15)")
    func postgresIsStoppedInMidBatch() async throws {
        let cluster = try await PostgresCluster()
        let store = try await PipelineStore(.postgres, cluster: cluster)
        let server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port)
        let client = try await ClientUnderTest(port: proxy.port)
        var stoppedInTransaction = 0
        for round in 0..<5 {
            try await client.track(count: 100)
            // A lock holds the group inside its transaction, before (look-up) or behind (COPY) its first statement.
            let blocker = try PostgresConnection(uri: store.setting)
            let mode = round.isMultiple(of: 2) ? "ACCESS EXCLUSIVE" : "SHARE"
            try blocker.execute("BEGIN; LOCK TABLE events IN \(mode) MODE")
            async let flush = client.client.flush()
            // Of the server's upkeep one may wait as well.
            if try await transactionsThatWait(store) > 0 { stoppedInTransaction += 1 }
            try await cluster.stop(mode: .immediate)
            let report = await flush
            #expect(report.failure != nil)
            #expect(report.remaining > 0)
            try await cluster.start()
        }
        try await client.drain()
        await server.stop()
        let audit = try await client.audit(store, proxy)
        #expect(audit.violations == [])
        #expect(audit.rows.count == 500)
        #expect(stoppedInTransaction == 5)
        #expect(proxy.tally.exchanges.contains { $0.answers.contains { $0.message.status == 503 } })
    }

    /// How many of the server's transactions wait for a lock, by the database's own word, once there are any.
    private func transactionsThatWait(_ store: PipelineStore) async throws -> Int {
        let deadline = ContinuousClock.now + .seconds(300)
        while ContinuousClock.now < deadline {
            let answer = try await store.query(
                """
                SELECT count(*) FROM pg_stat_activity
                WHERE wait_event_type = 'Lock' AND application_name LIKE 'hapax-server%' AND state = 'active' AND xact_start IS NOT NULL
                """)
            if let count = answer.first?.first.flatMap({ Int($0) }), count > 0 { return count }
        }
        Issue.record("no transaction of the server waits after five minutes")
        return 0
    }
}
