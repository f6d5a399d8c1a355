import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

private let pgbouncer = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].first { FileManager.default.isExecutableFile(atPath: $0) }

/// A real PgBouncer, where there is one.
@Suite(
    "Poolers in front of PostgreSQL (S11)", .serialized, .enabled(if: pgbouncer != nil, "needs PgBouncer"),
    .endsWhenItHangs)
struct PoolerTests {
    @Test(
        "A pool that gives each transaction another session is refused at the start, with the reason; one that keeps sessions serves",
        arguments: ["transaction", "statement", "session"])
    func sharedSessionsAreRefused(mode: String) async throws {
        let uri = try #require(URLComponents(string: try await PostgresCluster.shared.makeDatabase()))
        let (port, name) = (try LoopbackPort.unused(), String(uri.path.dropFirst()))
        let directory = TemporaryDirectory("pooler")
        let settings = """
            [databases]
            \(name) = host=127.0.0.1 port=\(uri.port ?? 0) user=hapax password=\(uri.password ?? "")
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = \(port)
            unix_socket_dir =
            auth_type = any
            pool_mode = \(mode)
            """
        let file = directory.path("pgbouncer.ini")
        try Data(settings.utf8).write(to: URL(fileURLWithPath: file))
        for path in [directory.path, file] { try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path) }
        let program = try #require(pgbouncer)
        // It does not run as root either.
        let pooler =
            try geteuid() == 0
            ? ChildProcess("/usr/sbin/runuser", ["-u", "postgres", "--", program, file]) : ChildProcess(program, [file])
        defer { pooler.terminate() }
        let pooled = "postgres://hapax@127.0.0.1:\(port)/\(name)"
        while pooler.isRunning, (try? PostgresConnection(uri: pooled)) == nil {}
        do throws(StoreError) {
            let store = try await PostgresEventStore(uri: pooled, logger: RecordedLog().logger)
            #expect(mode == "session")
            _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
            await store.close()
        } catch {
            #expect(mode != "session" && "\(error)".contains("pool_mode = session"), "\(error)")
        }
    }
}
