import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What was dropped is reported once, whoever reports it (I12)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct DropCountsTests {
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

    private func count(in test: TestClient) -> DropCounts.Count {
        test.client.queue.books.drops[DropCounts.Key(install: test.client.queue.installID, reason: "enricher")]
    }

    private var spools: [QueueDirectory] { (try? QueueDirectory(path: directory.path + "/queue").spools()) ?? [] }

    /// What all batches said, as the server keeps it: of each install the greatest count.
    private func reported(_ reason: String = "enricher", _ tests: TestClient...) -> [EventID: Int64] {
        var greatest: [EventID: Int64] = [:]
        for envelope in tests.flatMap({ $0.transport.batches.map(\.scanned.envelope) }) {
            for (install, counts) in envelope.takenOver { greatest[install] = max(greatest[install] ?? 0, counts[reason] ?? 0) }
            guard let install = envelope.installID else { continue }
            greatest[install] = max(greatest[install] ?? 0, envelope.dropped[reason] ?? 0)
        }
        return greatest.filter { $0.value > 0 }
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
        #expect(reported("enricher", main, spool) == [spool.client.queue.installID: Int64(told + untold)], "under the install it is of")
        #expect(main.transport.batches.last?.scanned.envelope.takenOver.isEmpty == (untold == 0))
        main.client.track("good")
        #expect(await main.client.flush().stored == 1)
        #expect(main.transport.batches.last?.scanned.envelope.takenOver == [:], "once")
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
        #expect(reported("quota_oldest", main) == [spool.client.queue.installID: 3])
        #expect(main.transport.batches.last?.scanned.envelope.takenOver == [:])
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
        #expect(reported("enricher", first, second) == [first.client.queue.installID: 9])
        #expect(reported("damaged", first, second).keys.sorted() == [second.client.queue.installID])
        await second.client.shutdown(within: .zero)
    }

    @Test("damage that a running client meets changes nothing of what the server was told")
    func replacingTheFileKeepsWhatWasTold() async throws {
        let test = try open()
        try await drop(4, test)
        let ids = try await test.track(1...200)
        #expect(await test.client.flush().remaining == 0)
        let told = count(in: test)
        #expect(told == DropCounts.Count(count: 4, told: 4))
        let more = try await test.track(1...200)
        try DamagedPage.make(in: test.client.queue, at: more[100])
        while await test.client.flush().remaining > 0 {}
        #expect(try !QueueDirectory(path: directory.path + "/queue").damagedFiles().isEmpty && ids.count == 200)
        #expect(count(in: test) == told)
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
        #expect(count(in: test).isUntold)
        test.client.track("good")
        #expect(await test.client.flush().stored == 1)
        #expect(!count(in: test).isUntold)
        await test.client.shutdown(within: .zero)
    }

    @Test("an answer that was lost before the file was damaged, or the spool purged, makes nothing count twice", arguments: [false, true])
    func lostAnswersCountOnce(isSpool: Bool) async throws {
        let main = isSpool ? try open() : nil
        let first = try open()
        try await drop(3, first)
        let ids = try await first.track(1...200)
        first.transport.script { _ in .failure(.cut) }
        #expect(await first.client.flush().stored == 0)
        let install = first.client.queue.installID
        #expect(reported("enricher", first) == [install: 3])
        let path = first.client.queue.directory.databasePath
        await first.client.shutdown(within: .zero)
        if !isSpool { try DamagedPage.make(in: path, at: ids[100]) }
        let second = try main ?? open()
        while await second.client.flush().remaining > 0 {}
        second.client.track("good")
        #expect(await second.client.flush().stored == 1 && second.client.queue.installID != install)
        #expect(await second.client.status().dropped["enricher"] == 3)
        #expect(reported("enricher", first, second) == [install: 3])
        await second.client.shutdown(within: .zero)
    }

    @Test("counts that are taken over again, as after a kill before the spool was removed, are the same as once")
    func takingOverTwiceIsOnce() throws {
        let (spool, main) = (try queue("spool"), try queue("main"))
        try spool.append([PreparedEvent.sample(1, fill: 10), .sample(2, fill: 10)], dropped: ["enricher": 5])
        _ = try spool.purge()
        try main.append([PreparedEvent](), dropped: ["enricher": 1])
        try main.adopt(spool.books.drops)
        let once = main.books
        #expect(once.drops.byReason == ["enricher": 6, "purged": 2] && once.adopted == 2 && once.discarded == 2 && once.isBalanced)
        try main.adopt(spool.books.drops)
        #expect(main.books == once)
        try spool.append([PreparedEvent](), dropped: ["enricher": 2])
        try main.adopt(spool.books.drops)
        #expect(main.books.drops.byReason == ["enricher": 8, "purged": 2])
        main.close()
        #expect(try queue("main").books.drops.byReason == ["enricher": 8, "purged": 2], "durable")
    }

    @Test("a file that is damaged before the one set aside ahead of it was salvaged: each count and each loss once")
    func twoDamagedFilesCountOnce() async throws {
        var queue = try queue("main")
        let first = queue.installID
        try queue.append((1...200).map { PreparedEvent.sample($0, fill: 300) }, dropped: ["enricher": 9])
        _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        // Its salvage has not begun when the process ends, and the next file is damaged as well.
        try queue.append((201...400).map { PreparedEvent.sample($0, fill: 300) }, dropped: ["enricher": 2])
        queue.close()
        for number in [100, 300] as [Int64] {
            let file = queue.directory.databasePath + (number == 100 ? ".damaged-1" : "")
            try DamagedPage.make(in: file, at: PreparedEvent.sample(number, fill: 300).id)
        }
        queue = try self.queue("main")
        #expect(queue.installID != first && queue.books.drops.byReason == ["enricher": 11])
        await queue.salvage()
        let drops = queue.books.drops
        let lost = 400 - queue.books.depth
        #expect(lost > 0 && drops.byReason == ["enricher": 11, "damaged": lost] && queue.books.isBalanced)
        #expect(drops.of(first) == ["enricher": 11] && drops.of(queue.installID) == ["damaged": lost])
        queue.close()
    }

    @Test("events of a damaged file that somebody deleted before it was salvaged are lost, and told", arguments: [false, true])
    func deletedFilesAreLost(isRunning: Bool) async throws {
        var queue = try queue("main")
        try queue.append((1...60).map { PreparedEvent.sample($0, fill: 300) })
        if isRunning { _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)) }
        queue.close()
        if !isRunning {
            try DamagedPage.make(in: queue.directory.databasePath, at: PreparedEvent.sample(30, fill: 300).id)
            try self.queue("main").close()
        }
        let file = queue.directory.path + "/queue.sqlite.damaged-1"
        try FileManager.default.removeItem(atPath: file)
        queue = try self.queue("main")
        await queue.salvage()
        #expect(queue.latestDamage?.lost == 60 && queue.latestDamage?.isSalvaged == true)
        #expect(queue.books.drops.byReason == ["damaged": 60] && queue.books.isBalanced && queue.unsalvagedFiles == 0)
        #expect(!FileManager.default.fileExists(atPath: file + ".salvaged"))
        queue.close()
    }

    @Test("counts of a file that was damaged before it opened are part of the books at once, and durable (I12)")
    func countsArePartOfTheBooks() throws {
        var queue = try queue("main")
        try queue.append([PreparedEvent.sample(1, fill: 300)])
        _ = try queue.purge()
        try queue.append([PreparedEvent.sample(2, fill: 300)])
        queue.close()
        try DamagedPage.make(in: queue.directory.databasePath, at: PreparedEvent.sample(2, fill: 300).id)
        for _ in 1...2 {
            queue = try self.queue("main")
            #expect(queue.books.drops.byReason == ["purged": 1] && queue.books.adopted == 1 && queue.books.discarded == 1)
            queue.close()
        }
    }

    @Test("counts that could not be read when the queue opened, as on a disk that failed, are read with the events")
    func countsAreReadLater() async throws {
        let other = try queue("other")
        try other.append([PreparedEvent.sample(1, fill: 10)], dropped: ["enricher": 3])
        other.close()
        let queue = try queue("main")
        let file = DamagedFile(name: "queue.sqlite.damaged-1", isOwn: false)
        try FileManager.default.copyItem(atPath: other.directory.databasePath, toPath: queue.directory.path + "/" + file.name)
        try await queue.database.write { try EventQueue.remember(file, $0) }
        queue.damage.withLock { $0.pending.append(file) }
        await queue.salvage()
        #expect(queue.books.drops.of(other.installID) == ["enricher": 3] && queue.books.depth == 1)
        queue.close()
    }

    @Test("a purge counts nothing twice of a file that has been salvaged and is still to be told of")
    func purgeCountsNoLossAgain() async throws {
        var queue = try queue("main")
        try queue.append((1...60).map { PreparedEvent.sample($0, fill: 300) })
        queue.close()
        try DamagedPage.make(in: queue.directory.databasePath, at: PreparedEvent.sample(30, fill: 300).id)
        queue = try self.queue("main")
        await queue.salvage()
        queue.close()
        queue = try self.queue("main")
        let (lost, found) = (60 - queue.books.depth, queue.books.depth)
        #expect(lost > 0 && queue.damage.withLock { $0.pending.map(\.isSalvaged) } == [true])
        _ = try queue.purge()
        #expect(queue.books.drops.byReason == ["damaged": lost, "purged": found])
        queue.close()
    }

    @Test("a purge counts what a damaged file still holds, and keeps that file's own counts", arguments: [false, true])
    func purgeCountsWhatIsSetAside(isRunning: Bool) throws {
        var queue = try queue("main")
        try queue.append((1...60).map { PreparedEvent.sample($0, fill: 300) }, dropped: ["enricher": 9])
        if isRunning {
            _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        } else {
            queue.close()
            try DamagedPage.make(in: queue.directory.databasePath, at: PreparedEvent.sample(30, fill: 300).id)
            queue = try self.queue("main")
        }
        try queue.append([PreparedEvent.sample(queue.books.lastSequence + 1, fill: 300)])
        #expect(try queue.purge().waiting == 1)
        #expect(queue.books.drops.byReason == ["enricher": 9, "purged": 61] && queue.books.isBalanced)
        queue.close()
    }

    @Test("an envelope takes the counts of sixteen installs that are gone; the next one goes on")
    func manyInstallsAreToldInTurns() throws {
        let queue = try queue("main")
        var gone = DropCounts()
        for number in 1...20 {
            gone[DropCounts.Key(install: .derived(name: "gone", key: "\(number)"), reason: "enricher")].count = Int64(number)
        }
        try queue.adopt(gone)
        var told: [EventID: [String: Int64]] = [:]
        for (round, expected) in [16, 4, 0].enumerated() {
            try queue.append([PreparedEvent.sample(Int64(round) + 1, fill: 10)])
            let batch = try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)
            #expect(batch.envelope.takenOver.count == expected)
            told.merge(batch.envelope.takenOver) { _, _ in [:] }
            try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        }
        #expect(told.values.compactMap { $0["enricher"] }.sorted() == Array(1...20))
        queue.close()
    }

    @Test("a batch of events that belong to another install tells what was taken over, and nothing of this queue's own")
    func adoptedEventsTellCounts() async throws {
        var queue = try queue("main")
        let first = queue.installID
        try queue.append((1...200).map { PreparedEvent.sample($0, fill: 300) }, dropped: ["enricher": 9])
        queue.close()
        try DamagedPage.make(in: queue.directory.databasePath, at: PreparedEvent.sample(100, fill: 300).id)
        queue = try self.queue("main")
        await queue.salvage()
        let envelope = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0).envelope
        #expect(envelope.installID == first && envelope.dropped == [:] && envelope.takenOver == [first: ["enricher": 9]])
        queue.close()
    }

    private func queue(_ name: String) throws -> EventQueue {
        var ids = UUIDv7Generator()
        return try EventQueue(
            directory: QueueDirectory(path: directory.path + "/" + name), durability: .process, newInstallID: ids.next(unixMilliseconds: 1))
    }
}

extension EventQueue {
    /// As of a queue that was never damaged.
    func adopt(_ drops: DropCounts) throws {
        try adopt(QueueRemains(drops: drops, damaged: []))
    }
}
