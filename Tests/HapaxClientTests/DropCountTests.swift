import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What was dropped is reported once, whoever reports it (I12)", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct DropCountTests {
    private let directory = TemporaryDirectory()

    /// Refuses what is called "bad".
    private func open() throws -> TestClient {
        try TestClient(directory: directory) {
            $0.whenQueueIsTaken = .spool
            $0.enrichers = [{ $0.name == "bad" ? nil : $0 }]
        }
    }

    private func drop(_ count: Int, _ test: TestClient) async throws {
        for _ in 0..<count { #expect(test.client.track("bad") == nil) }
        try await test.client.waitUntilStored()
    }

    private var spools: [QueueDirectory] { (try? QueueDirectory(path: directory.path + "/queue").spools()) ?? [] }

    /// What the last batch of each install said, added up as the server does.
    private func reported(_ tests: TestClient...) -> Int64 {
        let envelopes = tests.flatMap { $0.transport.batches.map(\.scanned.envelope) }
        return Dictionary(grouping: envelopes) { $0.installID }.values.reduce(0) { sum, envelopes in
            sum + (envelopes.compactMap { $0.dropped["enricher"] }.max() ?? 0)
        }
    }

    @Test(
        "what a spool refused is told by it, or by the one that takes it over, and never by both",
        arguments: [(told: 0, untold: 7), (told: 2, untold: 3), (told: 4, untold: 0)])
    func spoolsHandTheirCountsOver(told: Int, untold: Int) async throws {
        let main = try open()
        let spool = try open()
        try await drop(told, spool)
        spool.client.track("good")
        #expect(await spool.client.flush().stored == 1)
        try await drop(untold, spool)
        await spool.client.shutdown(within: .zero)
        #expect(spools.count == (untold > 0 ? 1 : 0), "it stays as long as it knows what nobody else does")
        main.client.track("good")
        // The spools come behind the queue itself: their counts are in its next batch.
        #expect(await main.client.flush().failure == nil && spools.isEmpty)
        #expect(await main.client.status().dropped == (untold > 0 ? ["enricher": Int64(told + untold)] : [:]))
        main.client.track("good")
        #expect(await main.client.flush().stored == 1)
        #expect(reported(main, spool) == Int64(told + untold))
        #expect(await main.client.status().isBalanced)
        await main.client.shutdown(within: .zero)
    }

    @Test("what the quota of a spool removed is part of the books that take it over")
    func removedEventsStayInTheBooks() async throws {
        let main = try open()
        let spool = try TestClient(directory: directory) {
            $0.whenQueueIsTaken = .spool
            $0.quota.maximumEvents = 2
            $0.quota.policy = .dropOldest
        }
        try await spool.track(0..<5)
        #expect(await spool.client.status().dropped == ["quota_oldest": 3])
        await spool.client.shutdown(within: .zero)
        main.transport.script { batch in .success(TransportAnswer(status: 503, headers: [:], body: [])) }
        #expect(await main.client.flush().stored == 0)
        #expect(await main.client.status().dropped == [:], "not before the spool goes")
        main.transport.script { batch in .success(batch.receipt()) }
        main.clock.advance(by: .seconds(1_000))
        #expect(await main.client.flush().stored == 2 && spools.isEmpty)
        let status = await main.client.status()
        // The batch that emptied the spool has told it.
        #expect(status.isBalanced)
        main.client.track("good")
        #expect(await main.client.flush().stored == 1)
        let reported = main.transport.batches.map(\.scanned.envelope).reduce(into: [EventID: Int64]()) { sums, envelope in
            guard let install = envelope.installID, let count = envelope.dropped["quota_oldest"] else { return }
            sums[install] = max(sums[install] ?? 0, count)
        }
        #expect(reported.values.reduce(0, +) == 3)
        await main.client.shutdown(within: .zero)
    }

    @Test("what a queue refused before its file was damaged is still counted, and told if it was not", arguments: [false, true])
    func countsOutliveDamage(isTold: Bool) async throws {
        let first = try open()
        let ids = try await first.track(1...200)
        try await drop(9, first)
        if isTold {
            #expect(await first.client.flush().remaining == 0)
            try await first.track(1...200)
        }
        let id = isTold ? try #require(first.client.queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0).events.last?.id) : ids[100]
        let path = first.client.queue.directory.databasePath
        await first.client.shutdown(within: .zero)
        try DamagedPage.make(in: path, at: id)
        let second = try open()
        while await second.client.flush().remaining > 0 {}
        let status = await second.client.status()
        #expect(status.dropped["enricher"] == 9 && (status.dropped["damaged"] ?? 0) > 0 && status.isBalanced)
        second.client.track("good")
        #expect(await second.client.flush().stored == 1)
        #expect(reported(first, second) == 9)
        await second.client.shutdown(within: .zero)
    }

    @Test("damage that a running client meets changes nothing of what the server was told")
    func replacingTheFileKeepsWhatWasTold() async throws {
        let test = try open()
        try await drop(4, test)
        let ids = try await test.track(1...200)
        #expect(await test.client.flush().remaining == 0)
        let told = test.client.queue.books.drops["enricher"]
        #expect(told?.isUntold == false)
        let more = try await test.track(1...200)
        try DamagedPage.make(in: test.client.queue, at: more[100])
        while await test.client.flush().remaining > 0 {}
        #expect(try !QueueDirectory(path: directory.path + "/queue").damagedFiles().isEmpty && ids.count == 200)
        #expect(test.client.queue.books.drops["enricher"] == told)
        await test.client.shutdown(within: .zero)
    }

    @Test("only an answer that acknowledges the batch makes a count told")
    func refusedBatchesTellNothing() async throws {
        let test = try open()
        try await drop(1, test)
        test.client.track("good")
        try await test.client.waitUntilStored()
        let queue = test.client.queue
        let batch = try queue.nextBatch(limit: 10, maximumBytes: .max, skipping: 0)
        #expect(batch.envelope.dropped == ["enricher": 1])
        try queue.settle([Settlement(event: batch.events[0], fate: .deadLetter(reason: "too_large", detail: ""))], time: 0)
        #expect(queue.books.drops["enricher"]?.isUntold == true)
        test.client.track("good")
        #expect(await test.client.flush().stored == 1)
        #expect(queue.books.drops["enricher"]?.isUntold == false)
        await test.client.shutdown(within: .zero)
    }
}
