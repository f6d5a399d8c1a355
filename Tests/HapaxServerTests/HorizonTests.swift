import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

@Suite("A raised horizon, in PostgreSQL (I2, R41)", .serialized, .timeLimit(.minutes(3)), .endsWhenItHangs)
struct HorizonTests {
    private func open(_ uri: String) async throws -> PostgresEventStore {
        try await PostgresEventStore(
            uri: uri, today: { Sample.day }, logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    }

    @Test(
        "what retention has removed does not return: expired, at a server that starts and at one that runs, within seconds",
        arguments: [false, true])
    func removedEventIsExpired(isRunning: Bool) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        var store = try await open(uri)
        let request = try Sample.request([Sample.event(Sample.id(1))])
        #expect(try await submit(request, store) == [.stored])
        _ = try await PostgresCluster.shared.query(
            "UPDATE retention SET horizon = \(Sample.day + 1); DELETE FROM events", database: uri)
        if isRunning {
            try await store.refresh()
        } else {
            await store.close()
            store = try await open(uri)
        }
        #expect(try await submit(request, store) == [.expired])
        #expect(try await PostgresCluster.shared.query("SELECT count(*) FROM events", database: uri) == [["0"]])
        await store.close()
    }

    private func submit(_ request: IngestRequest, _ store: PostgresEventStore) async throws -> [Receipt.Outcome] {
        let writer = GroupCommitWriter(store: store, metrics: ServerMetrics(), logger: Logger(label: "test"))
        async let running: Void = writer.run()
        let outcomes = try await writer.submit(request).outcomes
        writer.stop()
        await running
        return outcomes
    }
}
