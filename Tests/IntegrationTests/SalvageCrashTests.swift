import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

/// A client is killed with SIGKILL again and again while it takes over what a damaged file held, between any two of its steps, renames included.
@Suite("A salvage, killed", .serialized, .timeLimit(.minutes(20)))
struct SalvageCrashTests {
    private let directory = TemporaryDirectory("salvage")
    private var queue: String { directory.path("queue") }
    private var file: String { queue + "/queue.sqlite" }

    private func place(port: Int) -> [String] {
        ["--server", "http://127.0.0.1:\(port)", "--key", ServerUnderTest.key, "--queue", queue]
    }

    /// A page of rows becomes noise, as after a kill: then the file's pages are looked at when it opens.
    ///
    /// - Returns: The ids of the rows that SQLite can read all the same, one by one.
    private func damage() throws -> Set<EventID> {
        var bytes = [UInt8](try Data(contentsOf: URL(filePath: file)))
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 }
        let page = try #require(leaves.dropFirst(leaves.count / 2).first)
        for index in page * 4_096 + 1..<page * 4_096 + 200 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(filePath: file))
        try Data().write(to: URL(filePath: file + "-wal"))

        let copy = directory.path("copy.sqlite")
        try? FileManager.default.removeItem(atPath: copy)
        try Data(bytes).write(to: URL(filePath: copy))
        var configuration = GRDB.Configuration()
        configuration.readonly = true
        let database = try DatabaseQueue(path: copy, configuration: configuration)
        return database.unsafeRead { db in
            let last = (try? Int64.fetchOne(db, sql: "SELECT seq FROM sqlite_sequence WHERE name = 'queue'")) ?? 0
            return Set(
                (1...max(last, 1)).compactMap { row in
                    (try? Data.fetchOne(db, sql: "SELECT event_id FROM queue WHERE row = ? AND length(payload) > 0", arguments: [row]))
                        .flatMap { EventID(bytes: $0) }
                })
        }
    }

    @Test("each event that can be read is stored once in the end, and no other file was set aside (I1, I2, I11)")
    func salvageIsKilled() async throws {
        var random = SeededRandom.printed()
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store)
        let away = ["track", "--level", "process", "--count", "1500", "--threads", "2"] + place(port: 1)
        #expect(await (try ChildProcess("hapax-test-worker", away)).waitUntilExit() == .exited(0))
        let readable = try damage()
        #expect(readable.count > 1_000)
        var killed = 0
        for round in 1...20 {
            let run = try ChildProcess("hapax-test-worker", ["drain", "--within", "60"] + place(port: server.port))
            // Not to wait for anything: this is the random moment, later and later, the first at once, so that on any machine some come in the middle.
            if round > 1 { try await Task.sleep(for: .milliseconds(Int.random(in: 0...40 * round, using: &random))) }
            run.kill()
            if await run.waitUntilExit() == .signaled(SIGKILL) { killed += 1 }
        }
        let last = try ChildProcess("hapax-test-worker", ["drain", "--within", "60"] + place(port: server.port))
        let line = try #require(await last.nextLine())
        #expect(await last.waitUntilExit() == .exited(0), "\(line)")
        await server.stop()
        let stored = try await store.rows().map(\.id)
        #expect(Set(stored).count == stored.count)
        #expect(readable.isSubset(of: stored), "\(readable.subtracting(stored).count) lost")
        #expect(killed > 0)
        let asides = try FileManager.default.contentsOfDirectory(atPath: queue).filter { $0.hasPrefix("queue.sqlite.damaged-") }
        #expect(asides.contains("queue.sqlite.damaged-1") && asides.contains("queue.sqlite.damaged-1.salvaged"))
        #expect(!asides.contains { $0.hasPrefix("queue.sqlite.damaged-2") || $0.contains("copy") })
    }
}
