import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("DeadLetters (I1, I12)", .endsWhenItHangs)
struct DeadLettersTests {
    private func rejectingClient(_ directory: TemporaryDirectory = TemporaryDirectory()) async throws -> TestClient {
        let transport = ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) }
        let test = try TestClient(directory: directory, transport: transport)
        try await test.track(0..<3)
        #expect(await test.client.flush().deadLettered == 3)
        return test
    }

    @Test("a retried letter is in the queue and no longer a letter, then stored once (I1)")
    func retriedLetterIsDelivered() async throws {
        let test = try await rejectingClient()
        let deadLetters = try await test.client.deadLetters.list()
        let retried = try await test.client.deadLetters.retry([deadLetters[1].number])
        #expect(retried.retried == [deadLetters[1].eventID])
        #expect(test.client.deadLetters.count == 2)
        #expect(await test.client.status().isBalanced)
        let books = test.client.file.counters
        #expect(
            books.bytes == Int64(deadLetters[1].event.count)
                && books.deadLetterBytes == Int64(deadLetters[0].event.count + deadLetters[2].event.count))
        #expect(test.client.file.oldestTime == TestClock.start, "and as old")
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 1)
        #expect(await test.client.status().isBalanced)
        #expect(test.transport.batches[1].sequences == [2], "it is the event it was")
    }

    @Test("a letter that breaks a limit stays; retrying cannot help it")
    func unfitLetterStays() async throws {
        let test = try TestClient()
        test.client.track("")
        try await test.client.writer.barrier()
        let result = try await test.client.deadLetters.retry()
        #expect(result.retried.isEmpty && result.unfit == 1)
        #expect(test.client.deadLetters.count == 1)
    }

    @Test("a letter whose id waits again stays one: the event that waits may be another (R12)")
    func letterOfAWaitingIDStays() async throws {
        let test = try await rejectingClient()
        let deadLetter = try #require(try await test.client.deadLetters.list().first)
        test.client.track("again", id: try #require(deadLetter.eventID))
        try await test.client.writer.barrier()
        let result = try await test.client.deadLetters.retry([deadLetter.number])
        #expect(result.retried.isEmpty && result.unfit == 1)
        let status = await test.client.status()
        #expect(test.client.deadLetters.count == 3 && status.depth == 1 && status.isBalanced)
    }

    @Test("letters are retried in the order they came, but for one whose bytes changed on the disk, be it JSON all the same (R8, I3)")
    func retriesKeepTheOrder() async throws {
        let test = try TestClient()
        let ids = try await test.track(0..<4)
        let queue = test.client.file
        let sent = try queue.nextBatch(.oldest(limit: 1_000), maximumBytes: .max, now: 0).events
        let reasons = ["rejected", DeadLetter.changed.reason, "rejected", "rejected"]
        let settlements = zip(sent, reasons).map { Settlement(event: $0, fate: .deadLetter(reason: $1, detail: "")) }
        try queue.settle(BatchOutcome(settlements: settlements), now: 0)
        let result = try await test.client.deadLetters.retry()
        #expect(result.retried == [ids[0], ids[2], ids[3]] && result.unfit == 1)
        #expect(try queue.nextBatch(.oldest(limit: 1_000), maximumBytes: .max, now: 0).events.map(\.id) == result.retried)
        #expect(await test.client.status().isBalanced)
    }

    @Test("while a retried letter waits its id is known (R12)")
    func retriedIDWaits() async throws {
        let test = try await rejectingClient()
        let id = try #require(try await test.client.deadLetters.retry().retried.first)
        let created = await test.client.status().created
        test.client.track("event 0", id: id)
        try await test.client.writer.barrier()
        #expect(await test.client.status().created == created)
    }

    @Test("a letter with a text for a number that JSON has not is not what was tracked: it stays (I3)")
    func infiniteNumberStays() async throws {
        let test = try TestClient()
        test.client.track("n", properties: ["n": Double.infinity])
        try await test.client.writer.barrier()
        let result = try await test.client.deadLetters.retry()
        #expect(result.retried.isEmpty && result.unfit == 1)
        #expect(try await test.client.deadLetters.list().map(\.reason) == ["invalid_number"])
        await test.client.shutdown(within: .zero)
    }

    @Test("exported as one line of JSON each, with the event or its bytes as text")
    func exportIsLinesOfJSON() async throws {
        let test = try await rejectingClient()
        test.client.track("nan", properties: ["x": Double.nan])
        test.client.track("")
        try await test.client.writer.barrier()
        var lines: [[UInt8]] = []
        #expect(try await test.client.deadLetters.export { lines.append($0) } == 5)
        for line in lines {
            #expect(line.last == 0x0A && line.count { $0 == 0x0A } == 1)
            // A line is an object; as an event it lacks only its own required fields.
            #expect(EventScanner.check(line)?.reason == .missingName || EventScanner.check(line)?.reason == .invalidName)
        }
        let text = lines.map { String(decoding: $0, as: UTF8.self) }
        #expect(text[0].contains(#""event":{"event_id""#))
        #expect(text[4].contains(#""reason":"invalid_event""#) && text[4].contains(#""text":"{"#))
    }

    @Test("more letters than one transaction takes are retried and purged in chunks, and all of them are (I13)", arguments: [true, false])
    func lettersGoInChunks(isRetry: Bool) throws {
        let directory = TemporaryDirectory()
        let file = try QueueFile.open(directory.path)
        defer { file.close() }
        let count: Int64 = 2_500
        for first in stride(from: Int64(1), through: count, by: 500) {
            try file.append((first..<first + 500).map { PreparedEvent.sample($0, fill: 100) })
        }
        while true {
            let batch = try file.nextBatch(.oldest(limit: 500), maximumBytes: .max, now: 0)
            if batch.events.isEmpty { break }
            let settlements = batch.events.map { Settlement(event: $0, fate: .deadLetter(reason: "rejected", detail: "")) }
            try file.settle(BatchOutcome(settlements: settlements), now: 0)
        }
        let word = file.counters.word
        if isRetry { #expect(try file.retryDeadLetters(nil).retried.count == count) } else { #expect(try file.purgeDeadLetters() == count) }
        #expect(file.counters.word - word >= 3, "each transaction is a word")
        #expect(file.counters.deadLetters == 0 && file.counters.waiting == (isRetry ? count : 0) && file.counters.isBalanced)
    }

    @Test("a purged letter is gone and stays counted")
    func purgedLetterStaysCounted() async throws {
        let test = try await rejectingClient()
        #expect(try await test.client.deadLetters.purge([1, 99]) == 1)
        let left = try await test.client.deadLetters.list()
        #expect(left.map(\.number) == [2, 3])
        #expect(test.client.file.counters.deadLetterBytes == Int64(left.reduce(0) { $0 + $1.event.count }))
        #expect(await test.client.status().deadLettered == 3)
    }

    @Test("at the level `power` a letter that was retried or purged is so after a power cut as well (C19, I6)", arguments: [true, false])
    func changeOfLettersIsFlushed(isRetry: Bool) async throws {
        let test = try TestClient { $0.queue.durability = .power }
        test.client.track("")
        try await test.client.writer.barrier()
        test.transport.script { .success($0.receipt { _ in .rejected }) }
        test.client.track("rejected")
        _ = await test.client.flush()
        #expect(test.client.parts.mayLoseInPowerCut, "control")
        if isRetry { _ = try await test.client.deadLetters.retry() } else { _ = try await test.client.deadLetters.purge([1]) }
        #expect(!test.client.parts.mayLoseInPowerCut)
        await test.client.shutdown(within: .zero)
    }

    @Test("an envelope without events says which events are held, so that none of them passes for lost (C19, I12)")
    func emptyEnvelopeNamesHeldEvents() throws {
        let file = try QueueFile.open(TemporaryDirectory().path)
        defer { file.close() }
        try file.append((1...3).map { PreparedEvent.sample($0, fill: 1) })
        let sent = try file.nextBatch(.oldest(limit: 3), maximumBytes: .max, now: 0).events
        for sequence in [Int64(1), 3] { try file.hold(sequence, of: file.counters.installID) }
        try file.settle(BatchOutcome(settlements: [Settlement(event: sent[1], fate: .stored)]), now: 0)
        #expect(try file.nextBatch(.none, maximumBytes: .max, now: 0).report.envelope.held == [1...1], "what follows has not been heard of")
    }

    @Test("of an event that became one twice the latest is shown")
    func latestLetterIsShown() async throws {
        let test = try await rejectingClient()
        let id = EventID.derived(name: "order", key: "1")
        for _ in 0..<2 {
            test.client.track("order", id: id)
            #expect(await test.client.flush().deadLettered == 1)
        }
        #expect(try test.client.file.deadLetter(of: id)?.number == 5)
    }

    @Test("listed page by page in their order")
    func listIsPaged() async throws {
        let test = try await rejectingClient()
        #expect(try await test.client.deadLetters.list(limit: 2).map(\.number) == [1, 2])
        #expect(try await test.client.deadLetters.list(limit: -1).isEmpty, "to SQLite that is no limit (I13)")
        #expect(try await test.client.deadLetters.list(after: 2, limit: 2).map(\.number) == [3])
    }
}
