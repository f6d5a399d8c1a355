import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// The network loses, cuts, repeats and delays; the client is the real one, the server a real process.
@Suite("Faults of the network", .serialized, .endsWhenItHangs)
struct NetworkFaultTests {
    typealias Kind = PipelineStore.Kind

    /// One client, one server, a proxy between them: tracks, drains, and audits what came of it.
    ///
    /// - Returns: What breaks a promise, and what the proxy did.
    private func run(
        _ kind: Kind, events: Int, plan: FaultPlan,
        duringUpload: (PipelineStore, FaultProxy, ClientUnderTest) async throws -> Void = { _, _, _ in }
    ) async throws -> (violations: [Audit.Violation], tally: FaultProxy.Tally) {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port, plan: plan)
        let client = try await ClientUnderTest(port: proxy.port)
        try await client.track(count: events)
        try await duringUpload(store, proxy, client)
        try await client.drain()
        await server.stop()
        let audit = try await client.audit(store, proxy)
        #expect(audit.rows.count == events)
        proxy.stop()
        return (audit.violations, proxy.tally)
    }

    @Test("Every answer is lost once, after the commit: each event is stored once (I1, I2, R40, R41)", arguments: Kind.allCases)
    func answerLostOnEveryBatch(kind: Kind) async throws {
        let plan = FaultPlan { $0.attempt == 0 ? .dropAnswer : .pass }
        let (violations, tally) = try await run(kind, events: 500, plan: plan) { store, proxy, client in
            // The first batch: its answer is lost, its events are in the database, and the client still has all of them.
            let report = await client.client.flush()
            #expect(report.failure != nil)
            #expect(report.remaining == 500)
            let rows = try await store.rows()
            #expect(rows.count == 50)
        }
        #expect(violations == [])
        #expect(tally.happened(.dropAnswer) == 10)
        #expect(tally.storedInLostAnswers == 500)
        #expect(tally.total(.duplicate) == 500)
    }

    @Test("Each request is replayed twice, one after the other and at once: the state equals one delivery (I10)", arguments: Kind.allCases)
    func eachRequestReplayedTwice(kind: Kind) async throws {
        let plan = FaultPlan { .replay(copies: 2, atOnce: $0.number.isMultiple(of: 2), delivering: .last) }
        let (violations, tally) = try await run(kind, events: 500, plan: plan)
        #expect(violations == [])
        #expect(tally.happened(.replay) == 10)
        #expect(tally.total(.stored) == 500)
        #expect(tally.total(.duplicate) == 1_000)
    }

    @Test("Requests and answers are cut at random bytes, connections reset (I5)", arguments: Kind.allCases)
    func requestsAndAnswersAreCut(kind: Kind) async throws {
        let random = Locked(SeededRandom.printed())
        let plan = FaultPlan { request in
            random.withLock { random in
                guard request.attempt < 3 else { return .pass }
                switch Int.random(in: 0..<5, using: &random) {
                case 0: return .cutRequest(after: .random(in: 0..<request.message.bytes.count, using: &random))
                case 1: return .cutAnswer(after: .random(in: 0..<160, using: &random))
                case 2: return .resetBeforeRequest
                case 3: return .resetAfterAnswer
                default: return .dropAnswer
                }
            }
        }
        let (violations, tally) = try await run(kind, events: 1_000, plan: plan)
        #expect(violations == [])
        for kind in [Fault.Kind.cutRequest, .cutAnswer, .resetBeforeRequest, .resetAfterAnswer, .dropAnswer] {
            #expect(tally.happened(kind) > 0, "\(kind) never happened")
        }
        #expect(tally.storedInLostAnswers > 0)
        #expect(tally.total(.duplicate) > 0)
    }

    @Test("An upload that hangs never delays storing: 16 threads track while the answer is withheld (R8, R15, R16, I7)")
    func sixteenThreadsTrackWhileTheAnswerIsWithheld() async throws {
        let store = try await PipelineStore(.postgres)
        let server = try await ServerUnderTest.start(store)
        let gate = Gate()
        let proxy = try FaultProxy(to: server.port, plan: FaultPlan { $0.number == 0 ? .delayAnswer(until: gate) : .pass })
        let client = try await ClientUnderTest(port: proxy.port)
        try await client.track(count: 50)
        async let flush = client.client.flush()
        await gate.waitForArrivals(1)
        // The answer is being withheld. Now 16 threads at once, each of which calls in an order of its own.
        let tracked = await onThreads(16) { thread in
            (0..<50).compactMap { index in
                client.client.track("order_paid", properties: ["thread": thread, "index": index])
            }
        }
        try await client.client.waitUntilStored()
        // All of it is durable, and the answer still has not come.
        #expect(!gate.isOpen)
        #expect(await client.client.status().depth == 850)
        gate.open()
        _ = await flush
        try await client.drain()
        await server.stop()
        var audit = try await client.audit(store, proxy)
        audit.reports += tracked.flatMap { $0 }.map { Audit.Report(id: $0, install: client.installID) }
        // Whatever the threads did to each other, each one's own events are in the order of its calls.
        let sequences = Dictionary(audit.rows.map { ($0.id, $0.sequence ?? 0) }, uniquingKeysWith: { first, _ in first })
        audit.orders += tracked.enumerated().map { thread, ids in
            Audit.Order("thread \(thread)", ids.map { (client.installID, sequences[$0] ?? 0) })
        }
        #expect(tracked.map(\.count) == Array(repeating: 50, count: 16))
        #expect(audit.violations == [])
        #expect(audit.rows.count == 850)
        #expect(proxy.tally.happened(.delayAnswer) == 1)
    }

    @Test("Control: a run whose faults do not happen is told apart from one whose do")
    func runWithoutFaultsIsToldApart() async throws {
        let (violations, tally) = try await run(.sqlite, events: 100, plan: .pass)
        #expect(violations == [])
        #expect(tally.happened(.dropAnswer) == 0)
        #expect(tally.storedInLostAnswers == 0)
        #expect(tally.total(.duplicate) == 0)
    }
}
