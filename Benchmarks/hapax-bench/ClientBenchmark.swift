import Foundation
import HapaxClient
import HapaxModel
import TestSupport

/// The client: what `track` costs its caller, how fast events become durable, how fast a queue drains.
struct ClientBenchmark {
    var events: Int
    var rounds: Int

    private struct Round {
        /// What the harness itself takes for a call that does nothing.
        var nothing: [Double] = []
        var trackOne: [Double] = []
        var trackFour: [Double] = []
        var trackLiteral: [Double] = []
        var literal: [Double] = []
        var stored: [Durability: [Double]] = [:]
        var raw: [Durability: [Double]] = [:]
        var drained: [Double] = []
        /// Microseconds of this process for each event of it.
        var drainingCPU: [Double] = []
        var rawHTTP: [Double] = []
        var idle: [Footprint.Figures] = []
        var queued: [Footprint.Figures] = []
        var damaged: [(opened: Double, running: Double)] = []
    }

    func run() async throws {
        var figures = Round()
        for round in 1...rounds {
            note("round \(round) of \(rounds): track")
            figures.nothing.append(try await track(threads: 1) { _, _ in })
            figures.trackOne.append(try await track(threads: 1))
            figures.trackFour.append(try await track(threads: 4))
            figures.trackLiteral.append(try await track(threads: 1) { Self.trackLiteral($0, Plain($1)) })
            figures.literal.append(try await track(threads: 1) { Self.makeLiteral(Plain($1)) })
            for level in [Durability.process, .power] {
                note("round \(round) of \(rounds): store, \(level.rawValue)")
                figures.raw[level, default: []].append(try raw(level))
                figures.stored[level, default: []].append(try await store(level))
            }
            note("round \(round) of \(rounds): drain")
            figures.rawHTTP.append(try rawHTTP())
            let (drained, cpu) = try await drain()
            figures.drained.append(drained)
            figures.drainingCPU.append(cpu)
            note("round \(round) of \(rounds): reopen")
            let (idle, queued) = try await reopen()
            figures.idle.append(idle)
            figures.queued.append(queued)
            note("round \(round) of \(rounds): damage")
            figures.damaged.append(try await Damage(events: events).run())
        }
        report(figures)
    }

    /// Few enough for the mailbox: what is measured is the caller's side, not the refusal.
    private static let burst = 8_000

    /// How often a queue is filled before it is opened again.
    private static let queued = 10

    private func configuration(_ directory: TemporaryDirectory, port: Int = 1) -> EventClient.Configuration {
        var configuration = Self.configuration(queue: directory.path("queue"), port: port)
        configuration.queue.mailboxCapacity = events + 1
        configuration.queue.mailboxBytes = .max
        configuration.batchSize = 500
        return configuration
    }

    static func configuration(queue: String, port: Int = 1) -> EventClient.Configuration {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:\(port)", writeKey: ServerProcess.key, queueDirectory: queue)
        configuration.uploads.interval = nil
        // A million events are more than half a gigabyte.
        configuration.queue.quota.maximumBytes = nil
        return configuration
    }

    /// - Returns: The median of nanoseconds a call, over bursts of calls on each thread while the writer works.
    private func track(threads: Int, _ call: (@Sendable (EventClient, Int) -> Void)? = nil) async throws -> Double {
        let directory = TemporaryDirectory("bench")
        let client = try EventClient.start(configuration(directory))
        let properties = Corpus.properties(1)
        let call = call ?? { client, _ in client.track("order_viewed", properties: properties) }
        let samples = Locked<[Double]>([])
        for _ in 0..<5 {
            await withCheckedContinuation { continuation in
                let group = DispatchGroup()
                for _ in 0..<threads {
                    Thread.detachNewThread(in: group) {
                        var durations: [Double] = []
                        durations.reserveCapacity(Self.burst / threads)
                        for index in 0..<Self.burst / threads {
                            let start = ContinuousClock.now
                            call(client, index)
                            durations.append((ContinuousClock.now - start) / .nanoseconds(1))
                        }
                        samples.withLock { $0 += durations }
                    }
                }
                group.notify(queue: .global()) { continuation.resume() }
            }
            _ = try await client.trackDurably("settle")
        }
        await client.shutdown(within: .zero)
        return samples.withLock { $0.median }
    }

    /// Four plain variables of a caller's.
    private struct Plain {
        var order: String
        var amount: Double
        var items: Int
        var isMember: Bool

        init(_ index: Int) {
            (order, amount, items, isMember) = ("A-17", Double(index) / 4, index, index % 2 == 0)
        }
    }

    @inline(never)
    private static func trackLiteral(_ client: EventClient, _ plain: Plain) {
        client.track(
            "order_viewed", properties: ["order": plain.order, "amount": plain.amount, "items": plain.items, "is_member": plain.isMember])
    }

    @inline(never) @discardableResult
    private static func makeLiteral(_ plain: Plain) -> Properties {
        ["order": plain.order, "amount": plain.amount, "items": plain.items, "is_member": plain.isMember]
    }

    /// - Returns: Events per second from the first call of `track` until the last is durable.
    private func store(_ level: Durability) async throws -> Double {
        let directory = TemporaryDirectory("bench")
        var configuration = configuration(directory)
        configuration.queue.durability = level
        // The same bytes as raw SQLite's.
        configuration.automatic.properties = false
        let client = try EventClient.start(configuration)
        let properties = Corpus.properties(1)
        let start = ContinuousClock.now
        for _ in 1..<events { client.track("order_viewed", properties: properties) }
        _ = try await client.trackDurably("order_viewed", properties: properties)
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        let status = await client.status()
        guard status.depth == events else { throw BenchmarkError("\(status.depth) of \(events) events were stored") }
        await client.shutdown(within: .zero)
        return Double(events) / seconds
    }

    private func raw(_ level: Durability) throws -> Double {
        let directory = TemporaryDirectory("bench")
        let synchronous = level == .power ? "FULL" : "NORMAL"
        return try RawSQLite.queue(path: directory.path("raw.sqlite"), synchronous: synchronous, corpus: Corpus(count: events))
    }

    /// - Returns: Events per second until a full queue is acknowledged and empty, one batch of 500 at a time, to the server on SQLite.
    private func drain() async throws -> (rate: Double, cpu: Double) {
        let directory = TemporaryDirectory("bench")
        let server = try ServerProcess(store: "sqlite:\(directory.path("events.sqlite"))")
        defer { server.stop() }
        let client = try EventClient.start(configuration(directory, port: server.port))
        let properties = Corpus.properties(1)
        for _ in 1..<events { client.track("order_viewed", properties: properties) }
        _ = try await client.trackDurably("order_viewed", properties: properties)
        let process = ProcessTree(root: ProcessInfo.processInfo.processIdentifier)
        let (start, cpu) = (ContinuousClock.now, process.rootSeconds)
        let report = await client.flush()
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        let used = process.rootSeconds - cpu
        guard report.stored == events, report.remaining == 0 else { throw BenchmarkError("the queue did not drain: \(report)") }
        await client.shutdown(within: .zero)
        return (Double(events) / seconds, used * 1e6 / Double(events))
    }

    /// - Returns: Events per second that the same server takes of the same batches, encoded and compressed beforehand, on one connection.
    private func rawHTTP() throws -> Double {
        let directory = TemporaryDirectory("bench")
        let server = try ServerProcess(store: "sqlite:\(directory.path("events.sqlite"))")
        defer { server.stop() }
        let figures = try Load.run(
            server: server, corpus: Corpus(count: events), batchSize: 500, duplicates: .max, isCompressed: true, connections: 1)
        return figures.rate
    }

    /// - Returns: What a process finds that opens an empty queue, and one that opens a queue with ten times all events in it.
    private func reopen() async throws -> (idle: Footprint.Figures, queued: Footprint.Figures) {
        let directory = TemporaryDirectory("bench")
        try await EventClient.start(Self.configuration(queue: directory.path("idle"))).shutdown(within: .zero)
        var configuration = Self.configuration(queue: directory.path("queued"))
        configuration.queue.mailboxCapacity = events + 1
        configuration.queue.mailboxBytes = .max
        let client = try EventClient.start(configuration)
        let properties = Corpus.properties(1)
        for _ in 0..<Self.queued {
            for _ in 1..<events { client.track("order_viewed", properties: properties) }
            _ = try await client.trackDurably("order_viewed", properties: properties)
        }
        await client.shutdown(within: .zero)
        return (try await Footprint.measure(directory.path("idle")), try await Footprint.measure(directory.path("queued")))
    }

    private func report(_ figures: Round) {
        print("\n### Client: \(Corpus(count: 1_000).meanBytes)-byte events\n")
        print("\(events) events a measurement, medians of \(rounds) rounds.\n")
        print("| What | figure | limit in the same run | ratio |")
        print("|---|---|---|---|")
        print("| a call that does nothing, timed in the same way | \(Int(figures.nothing.median)) ns | – | – |")
        print("| `track` on the caller, 1 thread, median | \(Int(figures.trackOne.median)) ns | – | – |")
        print("| `track` on the caller, 4 threads, median | \(Int(figures.trackFour.median)) ns | – | – |")
        let (whole, literal) = (figures.trackLiteral.median, figures.literal.median)
        print(
            "| `track` with a literal of four plain variables, made in the call | \(Int(whole)) ns | \(Int(literal)) ns, the literal alone | – |"
        )
        for level in [Durability.process, .power] {
            let stored = (figures.stored[level] ?? []).median
            let raw = (figures.raw[level] ?? []).median
            print(
                "| stored, level `\(level.rawValue)` | \(Int(stored)) events/s | \(Int(raw)) rows/s, raw SQLite | \(stored / raw, places: 2) |"
            )
        }
        let (drained, raw) = (figures.drained.median, figures.rawHTTP.median)
        print(
            "| drained to the server on SQLite, batches of 500 | \(Int(drained)) events/s | \(Int(raw)) events/s, raw HTTP on one connection | \(drained / raw, places: 2) |"
        )
        print("| the client's CPU for a drained event | \(figures.drainingCPU.median, places: 1) µs | – | – |")
        let opened = (figures.queued.map(\.milliseconds).median, figures.idle.map(\.milliseconds).median)
        let queued = events * Self.queued
        print("| a queue of \(queued) events opened | \(opened.0, places: 1) ms | \(opened.1, places: 1) ms, an empty one | – |")
        print(
            "| a damaged queue of \(events) events set aside while opening | \(figures.damaged.map(\.opened).median, places: 1) ms | – | – |"
        )
        print(
            "| slowest `trackDurably` while a running client's damaged file is replaced | \(figures.damaged.map(\.running).median, places: 1) ms | – | – |"
        )
        let held = (figures.queued.map(\.mebibytes).median, figures.idle.map(\.mebibytes).median)
        print(
            "| memory of a client with \(queued) queued events | \(held.0, places: 1) MiB | \(held.1, places: 1) MiB, an idle one | +\(held.0 - held.1, places: 1) MiB |"
        )
    }
}
