#if canImport(Glibc)
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// The disk below the server's store fills up under load, and has room again later.
@Suite(
    "A full disk below the server", .serialized, .enabled(if: TinyDisk.isPossible, "mounting a file system takes root"),
    .endsWhenItHangs)
struct ServerDiskTests {
    @Test(
        "while the disk is full nothing is acknowledged and nothing lost; afterwards each event is stored once (I1, I2, I4, D12)",
        arguments: PipelineStore.Kind.allCases)
    func fullDiskLosesNothing(kind: PipelineStore.Kind) async throws {
        // Its own: a cluster whose table space is gone with its disk cannot be shared.
        // On a full disk PostgreSQL takes a new connection only as long as nothing has changed in its catalog since an earlier one.
        let cluster = try await PostgresCluster(settings: ["autovacuum=off"])
        let disk = try #require(TinyDisk(bytes: (kind == .postgres ? 64 : 8) * 1024 * 1024))
        let store = try await PipelineStore(kind, on: disk, cluster: cluster)
        let server = try await ServerUnderTest.start(store)
        let client = try await ClientUnderTest(port: server.port, batchSize: 100)
        let fill = PropertyValue.string(String(repeating: "x", count: 1_000))
        func track(_ count: Int) async throws {
            for _ in 0..<count { try await client.track(properties: ["fill": fill]) }
        }
        try await track(100)
        try await client.drain()
        _ = try await store.rows()

        disk.fill()
        try await track(2_000)
        var refused = 0
        for _ in 0..<5 {
            let report = await client.client.flush()
            if case .status(503, _) = report.failure { refused += 1 }
            #expect(report.deadLettered == 0)
        }
        #expect(refused > 0, "the fault happened")
        let status = await client.client.status()
        let acknowledged = Int(status.stored + status.duplicates)
        #expect(status.depth > 0 && acknowledged < 2_100)
        // What was acknowledged is there, although the disk is full.
        let rows = try await store.rows()
        #expect(rows.count >= acknowledged)

        disk.unfill()
        try await client.drain()
        await server.stop()
        let audit = try await client.audit(store)
        #expect(audit.violations == [] && audit.rows.count == 2_100)
        if kind == .postgres { try await cluster.stop(mode: .fast) }
    }
}
#endif
