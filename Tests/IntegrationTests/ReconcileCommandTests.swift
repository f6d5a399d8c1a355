import Foundation
import GRDB
import TestSupport
import Testing

/// docs/reading.md: did everything arrive. Each way to lose an event is done to a real queue or store.
@Suite("hapax reconcile (I12)", .endsWhenItHangs)
struct ReconcileCommandTests {
    private static let readKey = "read-key-of-demo"

    @Test("0 while all is accounted for, 1 for events that a restored store or a queue lacks, with their numbers, 3 where nobody can say")
    func lossesAreNamed() async throws {
        let (store, directory) = (try await PipelineStore(.sqlite), TemporaryDirectory("reconcile"))
        let file = String(store.setting.dropFirst("sqlite:".count))
        var server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        let port = server.port
        func hapax(_ arguments: String...) async throws -> (status: ChildProcess.Exit, text: String) {
            let process = try ChildProcess(
                "hapax", arguments,
                environment: [
                    "HAPAX_SERVER": "http://127.0.0.1:\(port)", "HAPAX_KEY": ServerUnderTest.key, "HAPAX_READ_KEY": Self.readKey,
                    "HAPAX_QUEUE": directory.path("queue"),
                ])
            let text = await process.remainingLines().joined(separator: "\n")
            return (await process.waitUntilExit(), text)
        }
        func expectBooks(_ status: Int32, _ parts: String...) async throws {
            let ran = try await hapax("reconcile")
            #expect(ran.status == .exited(status) && parts.allSatisfy(ran.text.contains), "\(ran)")
        }
        try await expectBooks(3, "No install has reported yet")
        #expect(try await hapax("track", "one").status == .exited(0))
        try await expectBooks(
            0, "Every event accounted for, as told; hapax-server check --deep looks for the rows.",
            "1 given a number since each began = 1 stored + 0 duplicates + 0 refused")

        await server.stop()
        try FileManager.default.copyItem(atPath: file, toPath: directory.path("backup"))
        server = try await ServerUnderTest.start(store, readKey: Self.readKey, port: port)
        for name in ["two", "three"] { #expect(try await hapax("track", name).status == .exited(0)) }
        #expect(try await hapax("track", String(repeating: "n", count: 300)).status == .exited(3))
        #expect(try await hapax("track", "five").status == .exited(0))
        try await expectBooks(
            0, "5 given a number since each began = 4 stored + 0 duplicates + 0 refused + 1 discarded on the device + 0 waiting + 0 missing"
        )

        // Back to when one was there: two to five were answered, and are in no store.
        await server.stop()
        for name in try FileManager.default.contentsOfDirectory(atPath: (file as NSString).deletingLastPathComponent)
        where name.hasPrefix("events.sqlite") {
            try FileManager.default.removeItem(atPath: (file as NSString).deletingLastPathComponent + "/" + name)
        }
        try FileManager.default.copyItem(atPath: directory.path("backup"), toPath: file)
        // A row that somebody deletes from a queue before it is sent.
        for name in ["six", "seven"] { #expect(try await hapax("track", name, "--no-flush").status == .exited(0)) }
        try await DatabaseQueue(path: directory.path("queue/1.sqlite")).write {
            try $0.execute(sql: "DELETE FROM events WHERE sequence = 6")
        }
        server = try await ServerUnderTest.start(store, readKey: Self.readKey, port: port)
        _ = try await hapax("flush")
        try await expectBooks(1, "5 events missing.", "numbers 2–6, noticed", "hapax-server accept-losses")
        let answer = try await RawHTTP.get(port: port, path: "/metrics", headers: ["Authorization": "Bearer \(ServerUnderTest.adminKey)"])
        #expect(String(decoding: answer.body, as: UTF8.self).contains("hapax_events_missing"))
        // The queue's rest goes to another project: what was settled before is no loss there, and is not claimed to be stored.
        await server.stop()
        #expect(try await hapax("track", "eight", "--no-flush").status == .exited(0))
        let elsewhere = try await PipelineStore(.sqlite)
        var second = try await ServerUnderTest.start(elsewhere, readKey: Self.readKey)
        let address = "http://127.0.0.1:\(second.port)"
        let old = "http://127.0.0.1:\(port) \(ServerUnderTest.key)"
        // Tried in vain first, which must not say it once more each time.
        await second.stop()
        for _ in 0..<2 { #expect(try await hapax("flush", "--server", address, "--replaces", old, "--timeout", "1").status == .exited(2)) }
        let said = try await DatabaseQueue(path: directory.path("queue/1.sqlite")).read {
            try Int.fetchOne($0, sql: "SELECT count(*) FROM gone WHERE reason = 'delivered_elsewhere'")
        }
        #expect(said == 1)
        second = try await ServerUnderTest.start(elsewhere, readKey: Self.readKey, port: second.port)
        #expect(try await hapax("flush", "--server", address, "--replaces", old).status == .exited(0))
        let moved = try await hapax("reconcile", "--server", address)
        #expect(moved.status == .exited(0) && moved.text.contains("delivered_elsewhere"), "\(moved)")
        await second.stop()
        try await expectBooks(3)
        // A row that somebody deletes from the store.
        try await DatabaseQueue(path: file).write { try $0.execute(sql: "DELETE FROM events WHERE sequence = 7") }
        let check = try ChildProcess("hapax-server", ["check", "--deep"], environment: ["HAPAX_STORE": store.setting])
        let text = await check.remainingLines().joined(separator: "\n")
        #expect(text.contains("5 events of demo are missing") && text.contains("lacks rows that it had, 1 in all: 7"), "\(text)")
        #expect(await check.waitUntilExit() == .exited(2))
    }
}
