import Foundation
import HapaxModel
import TestSupport
import Testing

/// `hapax` is killed with SIGKILL at random moments; what it said before, and what a file holds, is stored once.
@Suite("hapax, killed", .serialized, .endsWhenItHangs)
struct CommandLineCrashTests {
    private static func environment(port: Int, _ directory: TemporaryDirectory) -> [String: String] {
        ["HAPAX_SERVER": "http://127.0.0.1:\(port)", "HAPAX_KEY": ServerUnderTest.key, "HAPAX_QUEUE": directory.path("queue")]
    }

    private struct Imported: Decodable {
        var complete: Bool
        var resumed_after_line, rejected: Int
    }

    @Test(
        "an import killed at random moments and run again stores each line once and rejects each bad line (I1, I2)",
        arguments: PipelineStore.Kind.allCases)
    func importIsKilled(kind: PipelineStore.Kind) async throws {
        var random = SeededRandom.printed()
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port, plan: FaultPlan { $0.number.isMultiple(of: 4) ? .dropAnswer : .pass })
        let directory = TemporaryDirectory("import")
        let environment = Self.environment(port: proxy.port, directory)
        let ids = (0..<20_000).map { EventID.derived(name: "import", key: "\($0)") }
        var lines = ids.enumerated().map { #"{"event_id":"\#($1)","event":"e","time":\#($0),"distinct_id":"u"}"# }
        for line in [0, 3_000, 15_000] { lines.insert("bad line", at: line) }
        let file = directory.path("events.ndjson")
        try Data((lines.joined(separator: "\n") + "\n").utf8).write(to: URL(filePath: file))

        // Forty batches are to be sent, and the kills leave some of them for the end. On a busy machine a run may have come to its end before
        // it was killed: then there is no note, and there are rounds until there is one.
        let isNoted = { FileManager.default.fileExists(atPath: file + ".hapax-import") }
        var rounds = 0
        while rounds < 8 || (!isNoted() && rounds < 60) {
            rounds += 1
            let before = proxy.tally.exchanges.count
            let more = Int.random(in: 1...4, using: &random)
            let run = try ChildProcess("hapax", ["import", file], environment: environment)
            let hasEnded = Locked(false)
            let end = Task {
                let exit = await run.waitUntilExit()
                hasEnded.withLock { $0 = true }
                proxy.lookAgain()
                return exit
            }
            await proxy.wait { $0.exchanges.count >= before + more || hasEnded.withLock { $0 } }
            run.kill()
            let ends: [ChildProcess.Exit] = [.signaled(SIGKILL), .exited(3)]
            #expect(ends.contains(await end.value), "\(run.standardErrorTail)")
        }
        proxy.follow(.pass)
        let last = try ChildProcess("hapax", ["import", file, "--json"], environment: environment)
        let line = try #require(await last.nextLine())
        #expect(await last.waitUntilExit() == .exited(3), "\(last.standardErrorTail)")
        let imported = try JSONDecoder().decode(Imported.self, from: Data(line.utf8))
        #expect(imported.complete)
        #expect(imported.resumed_after_line > 0, "the kills left a note, and it was used")
        #expect(imported.rejected == 3)
        await server.stop()
        #expect(
            try await store.rows().map(\.id).sorted { $0.description < $1.description } == ids.sorted { $0.description < $1.description })
        let rejected = try String(contentsOfFile: file + ".rejected", encoding: .utf8).split(separator: "\n")
        #expect(rejected.count >= 3 && rejected.suffix(1).allSatisfy { $0.contains(#""line":15001,"#) })
    }

    @Test("several tracks at once, some of them killed: each id that was printed is stored once after a flush (I1, I2)")
    func tracksAreKilled() async throws {
        var random = SeededRandom.printed()
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store)
        let proxy = try FaultProxy(to: server.port)
        let directory = TemporaryDirectory("tracks")
        let environment = Self.environment(port: proxy.port, directory)
        var printed: [EventID] = []
        var killed = 0
        var roundsWithMoreFiles = 0
        // More than eight only if these did not bring about what is to be survived.
        for round in 0..<40 where round < 8 || killed == 0 || roundsWithMoreFiles == 0 {
            // In every other round the server is away, so that files are left with something to send.
            proxy.follow(FaultPlan { _ in round.isMultiple(of: 2) ? .resetBeforeRequest : .pass })
            let runs = try (0..<6).map { try ChildProcess("hapax", ["track", "event \(round) \($0)"], environment: environment) }
            for run in runs.shuffled(using: &random).prefix(3) {
                // Not to wait for anything: this is the random moment.
                try await Task.sleep(for: .milliseconds(Int.random(in: 0...60, using: &random)))
                run.kill()
            }
            for run in runs {
                printed += await run.remainingLines().compactMap { EventID(uuidString: $0) }
                if await run.waitUntilExit() == .signaled(SIGKILL) { killed += 1 }
            }
            if FileManager.default.fileExists(atPath: directory.path("queue/2.sqlite")) { roundsWithMoreFiles += 1 }
        }
        proxy.follow(.pass)
        let flush = try ChildProcess("hapax", ["flush"], environment: environment)
        #expect(await flush.waitUntilExit() == .exited(0), "\(flush.standardErrorTail)")
        await server.stop()
        let stored = try await store.rows().map(\.id)
        #expect(Set(stored).count == stored.count)
        #expect(Set(printed).isSubset(of: stored))
        #expect(printed.count >= 8 * 3)
        #expect(Set(printed).count == printed.count)
        #expect(killed > 0)
        #expect(roundsWithMoreFiles > 0)
    }
}
