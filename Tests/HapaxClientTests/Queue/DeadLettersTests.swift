import GRDBSQLite
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("DeadLetters (I1, I12)", .timeLimit(.minutes(20)), .endsWhenItHangs)
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
        let letters = try test.client.deadLetters.list()
        let retried = try test.client.deadLetters.retry([letters[1].number])
        #expect(retried.retried == [letters[1].eventID])
        #expect(try test.client.deadLetters.count() == 2)
        #expect(await test.client.status().isBalanced)
        let books = test.client.queue.books
        #expect(books.bytes == Int64(letters[1].event.count) && books.letterBytes == Int64(letters[0].event.count + letters[2].event.count))
        #expect(test.client.queue.oldestTime == ManualClock.start, "and as old")
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 1)
        #expect(await test.client.status().isBalanced)
        #expect(test.transport.batches[1].sequences == [2], "it is the event it was")
    }

    @Test("taking over a queue's letters again, as after a kill, is nothing, whosever events they are (I12)")
    func lettersAreTakenOverOnce() throws {
        let (spool, test) = (EventID.derived(name: "install", key: "spool"), try TestClient())
        let origins: [DeadLetter.Origin] = [.own, .nobody, .install(.derived(name: "install", key: "other"))]
        let letters = origins.enumerated().map { number, origin in
            var letter = DeadLetter(number: Int64(number) + 1, eventID: nil, reason: "rejected", detail: "", time: 1, event: [0x7B, 0x7D])
            letter.origin = origin
            return letter.belonging(to: spool)
        }
        for _ in 1...2 { try test.client.queue.adoptDeadLetters(letters) }
        #expect(try test.client.deadLetters.count() == 3)
        #expect(test.client.queue.books.adopted == 3 && test.client.queue.books.isBalanced)
    }

    @Test("a letter that breaks a limit stays; retrying cannot help it")
    func unfitLetterStays() async throws {
        let test = try TestClient()
        test.client.track("")
        try await test.client.writer.barrier()
        let result = try test.client.deadLetters.retry()
        #expect(result.retried.isEmpty && result.unfit == 1)
        #expect(try test.client.deadLetters.count() == 1)
    }

    @Test("a letter whose id waits again stays one: the event that waits may be another (R12)")
    func letterOfAWaitingIDStays() async throws {
        let test = try await rejectingClient()
        let letter = try #require(try test.client.deadLetters.list().first)
        test.client.track("again", id: letter.eventID)
        try await test.client.writer.barrier()
        let result = try test.client.deadLetters.retry([letter.number])
        #expect(result.retried.isEmpty && result.unfit == 1)
        let status = await test.client.status()
        #expect(try test.client.deadLetters.count() == 3 && status.depth == 1 && status.isBalanced)
    }

    @Test("letters are retried in the order they came, but for one whose bytes changed on the disk, be it JSON all the same (R8, I3)")
    func retriesKeepTheOrder() async throws {
        let test = try TestClient()
        let ids = try await test.track(0..<4)
        let queue = test.client.queue
        let sent = try queue.nextBatch(limit: 4, maximumBytes: .max, skipping: 0).events
        let reasons = ["rejected", DamagedRows.reason, "rejected", "rejected"]
        try queue.settle(zip(sent, reasons).map { Settlement(event: $0, fate: .deadLetter(reason: $1, detail: "")) }, time: 0)
        let result = try test.client.deadLetters.retry()
        #expect(result.retried == [ids[0], ids[2], ids[3]] && result.unfit == 1)
        #expect(try queue.nextBatch(limit: 4, maximumBytes: .max, skipping: 0).events.map(\.id) == result.retried)
        #expect(await test.client.status().isBalanced)
    }

    @Test("while a retried letter waits its id is known (R12)")
    func retriedIDWaits() async throws {
        let test = try await rejectingClient()
        let id = try #require(try test.client.deadLetters.retry().retried.first)
        let created = await test.client.status().created
        test.client.track("again", id: id)
        #expect(await test.client.status().created == created)
    }

    @Test("a retried letter's id is known before its event can be delivered: one added behind that would stay for ever (I1, R12)")
    func retriedIDIsKnownFirst() async throws {
        let test = try await rejectingClient()
        let letter = try #require(try test.client.deadLetters.list().first)
        let id = try #require(letter.eventID)
        let sent = test.transport.batches.count
        let mayGoOn = Gate()
        let holder = Task { [intake = test.client.writer.intake] in
            try await blocking { intake.withLock { _ in mayGoOn.blockUntilOpen() } }
        }
        await mayGoOn.waitForArrivals(1)
        let retrying = Task { [client = test.client] in
            try await blocking { try client.deadLetters.retry([letter.number]) }
        }
        // It is stored, and its id waits for the lock.
        while test.client.queue.books.depth == 0 { await Task.yield() }
        let uploading = Task { [delivery = test.client.delivery] in await delivery.drain() }
        // Time for a delivery that would not wait.
        for _ in 0..<50_000 { await Task.yield() }
        #expect(test.transport.batches.count == sent)
        mayGoOn.open()
        try await holder.value
        #expect(try await retrying.value.retried == [id])
        #expect(await uploading.value.counts.deadLettered == 1)
        let created = await test.client.status().created
        #expect(test.client.track("corrected", id: id) != nil)
        #expect(await test.client.status().created == created + 1, "and so the next one is taken")
        await test.client.shutdown(within: .zero)
    }

    @Test("a retry that cannot be stored leaves the id free: an event under it is taken (I1, R12)")
    func failedRetryLeavesTheIDFree() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let test = try await rejectingClient(directory)
        let letter = try #require(try test.client.deadLetters.list().first)
        disk.fail(FaultyDisk.Fault(at: 0, count: .max, code: SQLITE_FULL, operations: [.write]))
        #expect(throws: StorageFailure.self) { try test.client.deadLetters.retry([letter.number]) }
        #expect(disk.failures > 0)
        disk.fail(nil)
        let created = await test.client.status().created
        #expect(test.client.track("corrected", id: letter.eventID) == letter.eventID)
        #expect(await test.client.status().created == created + 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("a letter with a text for a number that JSON has not is not what was tracked: it stays (I3)", arguments: [true, false])
    func infiniteNumberStays(isInBase: Bool) async throws {
        let test = try TestClient()
        let number: Properties = ["n": .double(.infinity)]
        if isInBase { test.client.superProperties = number }
        test.client.track("n", properties: isInBase ? [:] : number)
        try await test.client.writer.barrier()
        let result = try test.client.deadLetters.retry()
        #expect(result.retried.isEmpty && result.unfit == 1)
        #expect(try test.client.deadLetters.list().map(\.reason) == ["invalid_number"])
        await test.client.shutdown(within: .zero)
    }

    @Test("exported as one line of JSON each, with the event or its bytes as text")
    func exportIsLinesOfJSON() async throws {
        let test = try await rejectingClient()
        test.client.track("nan", properties: ["x": .double(.nan)])
        test.client.track("")
        try await test.client.writer.barrier()
        var lines: [[UInt8]] = []
        #expect(try test.client.deadLetters.export { lines.append($0) } == 5)
        for line in lines {
            #expect(line.last == 0x0A && line.count { $0 == 0x0A } == 1)
            // A line is an object; as an event it lacks only its own required fields.
            #expect(EventScanner.check(line)?.reason == .missingName || EventScanner.check(line)?.reason == .invalidName)
        }
        let text = lines.map { String(decoding: $0, as: UTF8.self) }
        #expect(text[0].contains(#""event":{"event_id""#))
        #expect(text[4].contains(#""reason":"invalid_event""#) && text[4].contains(#""text":"{"#))
    }

    @Test("a purged letter is gone and stays counted")
    func purgedLetterStaysCounted() async throws {
        let test = try await rejectingClient()
        #expect(try test.client.deadLetters.purge([1, 99]) == 1)
        let left = try test.client.deadLetters.list()
        #expect(left.map(\.number) == [2, 3])
        #expect(test.client.queue.books.letterBytes == Int64(left.reduce(0) { $0 + $1.event.count }))
        #expect(await test.client.status().deadLettered == 3)
    }

    @Test("of an event that became one twice the latest is shown")
    func latestLetterIsShown() async throws {
        let test = try await rejectingClient()
        let id = EventID.derived(name: "order", key: "1")
        for _ in 0..<2 {
            test.client.track("order", id: id)
            #expect(await test.client.flush().deadLettered == 1)
        }
        #expect(try test.client.queue.deadLetter(of: id)?.number == 5)
    }

    @Test("whose a letter is and its number there are known wherever it is taken, so that it is counted once (I1, I12)")
    func originsAreKept() async throws {
        let test = try await rejectingClient()
        let queue = test.client.queue
        var letters = try queue.deadLetters(after: 0, limit: 2)
        let other = EventID.derived(name: "i", key: "other")
        letters[0] = letters[0].belonging(to: other)
        (letters[1].origin, letters[1].originNumber) = (.nobody, 7)
        for _ in 0..<2 { try queue.adoptDeadLetters(letters) }
        let adopted = try queue.deadLetters(after: 3, limit: 10)
        #expect(adopted.map(\.origin) == [.install(other), .nobody] && adopted.map(\.originNumber) == [1, 7])
        #expect(adopted.map(\.time) == letters.map(\.time))
        #expect(adopted.map { $0.belonging(to: queue.installID) } == adopted, "none of them is this queue's own")
        #expect(queue.books.letters == 5 && queue.books.adopted == 2)
    }

    @Test("listed page by page in their order")
    func listIsPaged() async throws {
        let test = try await rejectingClient()
        #expect(try test.client.deadLetters.list(limit: 2).map(\.number) == [1, 2])
        #expect(try test.client.deadLetters.list(limit: -1).isEmpty, "to SQLite that is no limit (I13)")
        #expect(try test.client.deadLetters.list(after: 2, limit: 2).map(\.number) == [3])
    }
}
