import HapaxModel
import Logging
import ServiceLifecycle
import TestSupport
import Testing
import StoreStandIns

@testable import HapaxClient
@testable import HapaxServer

/// The checks themselves are checked: with a bug planted in one place, the same run must fail its audit.
@Suite("Planted bugs are caught", .serialized, .endsWhenItHangs)
struct ControlTests {
    /// The run of all of these: a client tracks, its uploads meet the plan, it drains, all is audited.
    private func run(
        store: any EventStore & AuditedStore, transport: (any EventTransport)? = nil, plan: FaultPlan
    ) async throws -> [Audit.Violation] {
        try await InProcessServer.run(on: store) { port in
            let proxy = try FaultProxy(to: port, plan: plan)
            let client = try await ClientUnderTest(port: proxy.port, transport: transport)
            try await client.track(count: 200)
            try await client.drain()
            var audit = Audit()
            try await client.contribute(to: &audit)
            audit.orders = [Audit.Order("first uploads", proxy.tally.firstUploads)]
            audit.rows = store.auditRows
            proxy.stop()
            return audit.violations
        }
    }

    private static let lostAnswers = FaultPlan { $0.attempt == 0 ? .dropAnswer : .pass }

    @Test("The run passes with nothing planted")
    func nothingPlanted() async throws {
        #expect(try await run(store: PlantedStore(), plan: Self.lostAnswers) == [])
    }

    @Test("Planted: a store that does not deduplicate is caught (I2)")
    func dedupOffIsCaught() async throws {
        let violations = try await run(store: PlantedStore(.storesEverything), plan: Self.lostAnswers)
        #expect(violations.count == 200)
        #expect(violations.allSatisfy { if case .storedTwice = $0 { true } else { false } })
    }

    @Test("Planted: a store that acknowledges before it commits is caught (I4)")
    func acknowledgeBeforeCommitIsCaught() async throws {
        let violations = try await run(store: PlantedStore(.forgetsSomeGroups), plan: .pass)
        #expect(violations.contains { if case .lost = $0 { true } else { false } })
    }

    @Test("Planted: a client that deletes without a receipt is caught (I5)")
    func deleteBeforeReceiptIsCaught() async throws {
        let plan = FaultPlan { $0.number.isMultiple(of: 2) ? .cutRequest(after: 40) : .pass }
        let violations = try await run(store: PlantedStore(), transport: CredulousTransport(), plan: plan)
        #expect(violations.contains { if case .lost = $0 { true } else { false } })
        #expect(violations.contains { if case .gap = $0 { true } else { false } })
    }

    @Test("The honest client passes the plan that the credulous one fails")
    func honestClientPassesTheSamePlan() async throws {
        let plan = FaultPlan { $0.number.isMultiple(of: 2) ? .cutRequest(after: 40) : .pass }
        #expect(try await run(store: PlantedStore(), plan: plan) == [])
    }
}

/// A store whose rows the auditor can see.
protocol AuditedStore {
    var auditRows: [Audit.Row] { get }
}

/// A store in memory, with at most one bug.
private final class PlantedStore: EventStore, AuditedStore {
    enum Bug {
        case storesEverything
        case forgetsSomeGroups
    }

    private struct State {
        var rows: [EventRecord] = []
        var fingerprints: [EventKey: Int64] = [:]
        var groups = 0
    }

    private let bug: Bug?
    private let state = Locked(State())

    init(_ bug: Bug? = nil) { self.bug = bug }

    let reader: any EventReader = NoReader()
    let sql: any SQLStore = NoSQL()
    let writerCount = 1
    let horizon: Int32 = 0
    func projectID(named name: String) async throws(StoreError) -> Int32 { 1 }
    func check() async throws(StoreError) {}
    let crowdedMonths: [CrowdedMonth] = []
    func compare(_ records: [EventRecord], writer: Int) async throws(StoreError) -> [Bool?] { records.map { _ in false } }
    func refresh() async throws(StoreError) {}
    func performUpkeep() async throws(StoreError) {}
    func close() async {}

    func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64] {
        state.withLock { state in
            state.groups += 1
            // What a crash takes of a store that answers first and writes later.
            if bug == .forgetsSomeGroups, state.groups.isMultiple(of: 2) { return [:] }
            var found: [EventKey: Int64] = [:]
            for record in group.records {
                if bug != .storesEverything, let fingerprint = state.fingerprints[record.key] {
                    found[record.key] = fingerprint
                } else {
                    state.fingerprints[record.key] = record.fingerprint
                    state.rows.append(group.record(record))
                }
            }
            return found
        }
    }

    var auditRows: [Audit.Row] {
        state.withLock { $0.rows.map { Audit.Row(id: $0.key.id, install: $0.installID, sequence: $0.sequence) } }
    }
}

/// A transport that makes up a receipt whenever there is none: with it, the client deletes what nobody acknowledged.
private final class CredulousTransport: EventTransport {
    private let honest = CurlTransport()

    func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> {
        let answer = await honest.send(request)
        if case .success(let success) = answer, success.status == 200 { return answer }
        let isCompressed = request.headers.contains { $0.name.lowercased() == "content-encoding" }
        guard let body = isCompressed ? try? Gzip.decompress(request.body, limit: 1 << 24) : request.body,
            let batch = try? ScannedBody(json: body[...])
        else { return answer }
        let receipt = Receipt(batchID: batch.envelope.batchID, received: batch.events.count, stored: batch.events.count, results: [])
        return .success(TransportAnswer(status: 200, headers: ["content-type": "application/json"], body: receipt.encoded()))
    }

    func close() { honest.close() }
}

/// The server's own code in this process, around a store that a test made.
private enum InProcessServer {
    static func run<Value: Sendable>(on store: any EventStore, _ body: @Sendable @escaping (Int) async throws -> Value) async throws
        -> Value
    {
        var options = ServerOptions()
        options.port = 0
        let (ports, continuation) = AsyncStream.makeStream(of: Int.self)
        let logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        let application = IngestApplication(
            store: store, keys: StaticKeys(writers: [ServerUnderTest.key: 1]), options: options, currentTime: { 0 }, logger: logger,
            onListening: { continuation.yield($0) })
        let group = ServiceGroup(configuration: .init(services: [application], logger: logger))
        return try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            var iterator = ports.makeAsyncIterator()
            let port = await iterator.next() ?? 0
            let value: Result<Value, any Error>
            do { value = .success(try await body(port)) } catch { value = .failure(error) }
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
            return try value.get()
        }
    }
}
