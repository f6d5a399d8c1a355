import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

@Suite("hapax import of a file that holds no events (I1, I13)", .timeLimit(.minutes(20)), .endsWhenItHangs)
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
        #expect(first.failure?.contains("the queue cannot be used: ") == true)
        try FileManager.default.removeItem(atPath: obstacle)
        let second = try await run()
        #expect(second.isComplete && second.counts.deadLettered == 5)
        let reader = try #require(try QueueReader(directory: QueueDirectory(path: configuration.queueDirectory)))
        #expect(try reader.deadLetters(after: 0, limit: 9).map { String(decoding: $0.event, as: UTF8.self) } == lines)
    }

    @Test("an event in front of bad lines is sent before these can fill the queue (I1)", arguments: [0, 1, 2])
    func eventIsSentBeforeTheFlood(skipped: Int) async throws {
        let burials = Locked<[Int]>([])
        let source = ImportSource(
            descriptor: try descriptor([event(0), event(1)] + (0..<5_000).map { "bad \($0)" } + [event(2)]), start: ImportCheckpoint(),
            after: ImportFingerprint(), letterNames: "file", isStopped: { false }, now: { 1 },
            bury: { letters in burials.withLock { $0.append(letters.count) } }, settled: { _ in }, saveCheckpoint: { _ in },
            failed: { Issue.record("\($0)") })
        let batch = try await source.nextBatch(limit: 500, maximumBytes: .max, skipping: skipped)
        #expect(batch.events.map(\.row) == (skipped < 2 ? Array([1, 2].dropFirst(skipped)) : [5_003]))
        #expect(burials.withLock { $0 } == (skipped < 2 ? [2_000] : [2_000, 2_000, 1_000]))
    }

    @Test(
        "however often the queue is full of bad lines: once they are purged the next run goes on behind them, and all is settled in the end (I1, I13)",
        arguments: [false, true])
    func floodIsGotThrough(isPoisonInFront: Bool) async throws {
        let server = try IngestStandIn()
        if isPoisonInFront { server.change { $0.isPoison = { $0.time == 0 } } }
        var configuration = EventClient.Configuration(
            server: server.url, writeKey: "key", queueDirectory: directory.path + "/queue")
        configuration.quota.maximumEvents = 1_000
        let bad = (0..<7_000).map { "bad \($0)" }
        let lines = [event(0)] + bad + [event(1), event(2)]
        let file = try descriptor(lines)
        defer { close(file) }
        var letters: [String] = []
        var runs = 0
        var result: ImportRun.Result
        repeat {
            runs += 1
            lseek(file, 0, SEEK_SET)
            result = try await ImportRun(
                descriptor: file, path: directory.path + "/events.ndjson", configuration: configuration, restart: false, giveUpAfter: nil
            ).finish()
            let queue = try EventQueue.open(configuration.queueDirectory, whenTaken: .refuse, durability: .process, clock: SystemClock())
            letters += try queue.deadLetters(after: 0, limit: .max).map { String(decoding: $0.event, as: UTF8.self) }
            _ = try queue.purgeDeadLetters(try queue.deadLetterNumbers())
            queue.close()
        } while !result.isComplete && runs < 10
        #expect(result.isComplete && runs == 4)
        #expect(letters.filter { $0.hasPrefix("bad") } == bad, "each once")
        #expect(letters.count == bad.count + (isPoisonInFront ? 1 : 0))
        #expect(server.stored.count == (isPoisonInFront ? 2 : 3))
    }

    @Test("beside a taken queue an import begins one queue, however often it has something to keep")
    func importBeginsOneSpool() async throws {
        let configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "key", queueDirectory: directory.path + "/queue")
        let holder = try EventQueue.open(configuration.queueDirectory, whenTaken: .refuse, durability: .process, clock: SystemClock())
        let file = try descriptor((0..<6_500).map { "bad \($0)" })
        defer { close(file) }
        let result = try await ImportRun(
            descriptor: file, path: directory.path + "/events.ndjson", configuration: configuration, restart: false, giveUpAfter: nil
        ).finish()
        #expect(result.isComplete && result.counts.deadLettered == 6_500)
        let spool = try #require(try holder.directory.spools().first)
        #expect(try holder.directory.spools().count == 1)
        #expect(try QueueReader(directory: spool)?.summary().deadLetters == 6_500)
        // Nobody holds it any more.
        try EventQueue(directory: spool, durability: .process, newInstallID: .derived(name: "", key: "a"), isSpool: true).close()
        holder.close()
    }

    @Test("who is to make room is told of what: events that wait are not purged with the dead letters")
    func fullQueueSaysOfWhat() async throws {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "key", queueDirectory: directory.path + "/queue")
        configuration.quota.maximumEvents = 2
        let test = try TestClient { $0.queueDirectory = configuration.queueDirectory }
        try await test.track(0..<3)
        await test.client.shutdown(within: .zero)
        let letters = ImportLetters(configuration: configuration, endpoint: try configuration.endpoint())
        var letter = DeadLetter(number: 0, eventID: nil, reason: "bad", detail: "", time: 0, event: [])
        letter.origin = .nobody
        func reason() -> String {
            do { try letters.keep([letter, letter, letter]) } catch { return error.description }
            return ""
        }
        #expect(reason().contains("3 events wait and 0 dead letters"))
        let queue = try EventQueue.open(configuration.queueDirectory, whenTaken: .refuse, durability: .process, clock: SystemClock())
        _ = try queue.purge()
        queue.close()
        #expect(reason() == "")
        #expect(reason() == "the queue is full of dead letters; export and purge them")
    }

    private func event(_ number: Int) -> String {
        #"{"event_id":"\#(EventID.derived(name: "g", key: "\(number)"))","event":"e","time":\#(number),"distinct_id":"u"}"#
    }

    #if canImport(Glibc)
    @Test(
        "where an import is can be noted on a disk that has become full",
        .enabled(if: TinyDisk.isPossible, "mounting a file system takes root"))
    func noteTakesNoRoom() throws {
        let disk = try #require(TinyDisk(bytes: 1024 * 1024))
        let path = disk.path + "/import/note"
        try ImportCheckpoint().save(path: path)
        disk.fill()
        let file = try descriptor(["one", "two", "three"])
        defer { close(file) }
        var read = ImportFingerprint()
        _ = read.advance(to: 4, descriptor: file)
        var kept = read
        _ = kept.advance(to: 8, descriptor: file)
        let note = ImportCheckpoint(
            offset: 4, lines: 1, deadLettered: 1, fingerprint: read.text,
            kept: ImportCheckpoint.Place(offset: 8, lines: 2, fingerprint: kept.text))
        try note.save(path: path)
        #expect(ImportCheckpoint.load(path: path, descriptor: file)?.checkpoint == note)
        // Changed behind the first place, in front of the second one.
        try FileHandle(forWritingTo: URL(fileURLWithPath: directory.path + "/events.ndjson")).write(contentsOf: Data("one\nTWO".utf8))
        let found = ImportCheckpoint.load(path: path, descriptor: file)?.checkpoint
        #expect(found?.lines == 1 && found?.kept == ImportCheckpoint.Place())
        try ImportCheckpoint.remove(path: path)
        #expect(ImportCheckpoint.load(path: path, descriptor: file) == nil)
    }

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
        let numbers = try later.client.deadLetters.list(limit: .max).map(\.number)
        #expect(try later.client.deadLetters.purge(numbers) == result.counts.deadLettered)
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
