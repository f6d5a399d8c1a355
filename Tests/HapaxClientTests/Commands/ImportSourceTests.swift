import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

@Suite("hapax import of a file that holds no events (I1, I13)", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct ImportSourceTests {
    private let directory = TemporaryDirectory()

    private func descriptor(_ lines: some Sequence<String>) throws -> Int32 {
        let path = directory.path + "/events.ndjson"
        try Data(lines.map { $0 + "\n" }.joined().utf8).write(to: URL(fileURLWithPath: path))
        return try #require(FileHandle(forReadingAtPath: path).flatMap { dup($0.fileDescriptor) })
    }

    @Test(
        "its lines are buried as they are read, not held in memory until it ends",
        arguments: [(5_001, 10, [2_000, 2_000, 1_001]), (25, 100_000, [11, 11, 3])])
    func linesAreBuriedInGroups(count: Int, length: Int, groups: [Int]) async throws {
        let buried = Locked<[[DeadLetter]]>([])
        let source = ImportSource(
            descriptor: try descriptor((1...count).map { "\($0)" + String(repeating: "x", count: length) }), start: ImportCheckpoint(),
            after: ImportFingerprint(), letterNames: "file", isStopped: { false }, now: { 1 },
            bury: { letters in buried.withLock { $0.append(letters) } }, settled: { _ in }, saveCheckpoint: { _ in },
            failed: { Issue.record("\($0)") })
        let batch = try await source.nextBatch(limit: 500, maximumBytes: .max, skipping: 0)
        #expect(batch.events.isEmpty)
        #expect(buried.withLock { $0.map(\.count) } == groups)
        let lines = buried.withLock { $0.joined().map { String(decoding: $0.event, as: UTF8.self).prefix { $0 != "x" } } }
        #expect(lines == (1...count).map { "\($0)" })
        let counts = await source.counts
        #expect(counts.deadLettered == count && counts.lines == count)
    }

    @Test("a file of which nothing comes for a while stops no other task")
    func waitingStopsNobodyElse() async throws {
        // One more than the language has threads.
        let pipes = (0...ProcessInfo.processInfo.activeProcessorCount).map { _ in Pipe() }
        defer { withExtendedLifetime(pipes) {} }
        let batches = pipes.map { pipe in
            let source = ImportSource(
                descriptor: pipe.fileHandleForReading.fileDescriptor, start: ImportCheckpoint(), after: ImportFingerprint(),
                letterNames: nil, isStopped: { false }, now: { 1 }, bury: { _ in }, settled: { _ in }, saveCheckpoint: { _ in },
                failed: { Issue.record("\($0)") })
            return Task { try await source.nextBatch(limit: 1, maximumBytes: .max, skipping: 0).events.count }
        }
        for _ in 0..<1_000 { await Task.detached {}.value }
        // Closing them would not do: a process that another test has started meanwhile may hold their other end.
        let line = #"{"event_id":"\#(EventID.derived(name: "p", key: "1"))","event":"e","time":1,"distinct_id":"u"}"# + "\n"
        for pipe in pipes { try pipe.fileHandleForWriting.write(contentsOf: Data(line.utf8)) }
        for batch in batches { #expect(try await batch.value == 1) }
    }

    @Test(
        "lines that cannot be kept are not taken for settled, however often the import asks again: no place behind them is noted (I1)",
        arguments: [0, 3])
    func unkeptLinesAreNotSettled(good: Int) async throws {
        struct NoRoom: Error {}
        let places = Locked<[Int64]>([])
        let whole = (0..<good).map {
            #"{"event_id":"\#(EventID.derived(name: "g", key: "\($0)"))","event":"e","time":1,"distinct_id":"u"}"#
        }
        let source = ImportSource(
            descriptor: try descriptor(whole + ["bad 1", "bad 2"]), start: ImportCheckpoint(), after: ImportFingerprint(),
            letterNames: "file", isStopped: { false }, now: { 1 }, bury: { _ in throw NoRoom() }, settled: { _ in },
            saveCheckpoint: { checkpoint in places.withLock { $0.append(checkpoint.lines) } }, failed: { _ in })
        for _ in 1...3 {
            await #expect(throws: NoRoom.self) { try await source.nextBatch(limit: 500, maximumBytes: .max, skipping: 0) }
        }
        #expect(places.withLock { $0 } == [])
    }

    @Test("lines that were kept are settled, though later ones cannot be: once those are purged, they do not come again (I13)")
    func keptLinesAreSettled() async throws {
        struct NoRoom: Error {}
        let places = Locked<[Int64]>([])
        let burials = Locked(0)
        let source = ImportSource(
            descriptor: try descriptor((1...2_001).map { "bad \($0)" }), start: ImportCheckpoint(), after: ImportFingerprint(),
            letterNames: "file", isStopped: { false }, now: { 1 },
            bury: { _ in
                try burials.withLock { burials in
                    burials += 1
                    if burials > 1 { throw NoRoom() }
                }
            }, settled: { _ in }, saveCheckpoint: { checkpoint in places.withLock { $0.append(checkpoint.lines) } }, failed: { _ in })
        for _ in 1...2 {
            await #expect(throws: NoRoom.self) { try await source.nextBatch(limit: 500, maximumBytes: .max, skipping: 0) }
        }
        #expect(places.withLock { $0 } == [2_000])
    }

    @Test("an import that the queue cannot keep its bad lines of begins with them again: none is nowhere (I1)")
    func unkeptLinesComeAgain() async throws {
        let configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "key", queueDirectory: directory.path + "/queue")
        let lines = (1...5).map { "bad \($0)" }
        func run() async throws -> ImportRun.Result {
            let descriptor = try descriptor(lines)
            defer { close(descriptor) }
            return try await ImportRun(
                descriptor: descriptor, path: directory.path + "/events.ndjson", configuration: configuration, restart: false,
                giveUpAfter: nil
            ).finish()
        }
        let obstacle = configuration.queueDirectory + "/queue.sqlite"
        try FileManager.default.createDirectory(atPath: obstacle, withIntermediateDirectories: true)
        let first = try await run()
        #expect(first.isDamaged && first.counts.deadLettered == 0)
        try FileManager.default.removeItem(atPath: obstacle)
        let second = try await run()
        #expect(second.isComplete && second.counts.deadLettered == 5)
        let reader = try #require(try QueueReader(directory: QueueDirectory(path: configuration.queueDirectory)))
        #expect(try reader.deadLetters(after: 0, limit: 9).map { String(decoding: $0.event, as: UTF8.self) } == lines)
    }

    #if canImport(Glibc)
    @Test(
        "an import that fills the disk with bad lines leaves the ballast: what waited is delivered, and its letters can be purged (I13)",
        .enabled(if: TinyDisk.isPossible, "mounting a file system takes root"))
    func importLeavesTheBallast() async throws {
        let disk = try #require(TinyDisk(bytes: 6 * 1024 * 1024))
        let path = disk.path + "/queue"
        let test = try TestClient { $0.queueDirectory = path }
        try await test.track(0..<3)
        await test.client.shutdown(within: .zero)
        let configuration = EventClient.Configuration(server: "http://127.0.0.1:1", writeKey: "key", queueDirectory: path)
        let descriptor = try descriptor((1...12_000).map { "bad \($0)" + String(repeating: "z", count: 1_000) })
        defer { close(descriptor) }
        let run = try ImportRun(
            descriptor: descriptor, path: directory.path + "/events.ndjson", configuration: configuration, restart: false, giveUpAfter: nil)
        let result = await run.finish()
        #expect(result.isDamaged && result.counts.deadLettered > 0 && result.counts.deadLettered < 12_000)
        #expect(FileManager.default.fileExists(atPath: path + "/queue.ballast"))
        let later = try TestClient { $0.queueDirectory = path }
        #expect(await later.client.flush().stored == 3)
        #expect(try await later.client.purge() == result.counts.deadLettered)
        await later.client.shutdown(within: .zero)
    }
    #endif

    @Test("once the queue holds no more, the import ends with the reason; the file has the rest, and the next run goes on with it")
    func fullQueueEndsTheImport() async throws {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "key", queueDirectory: directory.path + "/queue")
        configuration.quota.maximumEvents = 1_000
        let lines = (1...4_500).map { "line \($0)" }
        func run() async throws -> ImportRun.Result {
            let descriptor = try descriptor(lines)
            defer { close(descriptor) }
            let path = directory.path + "/events.ndjson"
            let run = try ImportRun(
                descriptor: descriptor, path: path, configuration: configuration, restart: false, giveUpAfter: nil)
            return await run.finish()
        }
        let first = try await run()
        #expect(first.isDamaged && !first.isComplete && first.counts.deadLettered == 2_000)
        #expect(first.failure?.contains("full of dead letters") == true)
        configuration.quota.maximumEvents = nil
        let second = try await run()
        #expect(second.isComplete && !second.isDamaged)
        let letters = try #require(try QueueReader(directory: QueueDirectory(path: configuration.queueDirectory)))
        #expect(try letters.deadLetters(after: 0, limit: 9_999).map { String(decoding: $0.event, as: UTF8.self) } == lines)
    }
}
