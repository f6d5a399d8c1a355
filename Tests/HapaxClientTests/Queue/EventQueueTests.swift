import Foundation
import GRDB
import HapaxModel
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxClient

@Suite("EventQueue (R7, R10, R12, I5, I12)", .timeLimit(.minutes(20)))
struct EventQueueTests {
    private let directory = TemporaryDirectory()

    private func open(_ name: String = "queue", install: String = "a") throws -> EventQueue {
        try EventQueue(
            directory: QueueDirectory(path: directory.path + "/" + name), durability: .process,
            newInstallID: .derived(name: "i", key: install))
    }

    private func event(_ sequence: Int64, size: Int = 0) -> PreparedEvent {
        let id = EventID.derived(name: "event", key: "\(sequence)")
        let event = Event(
            id: id, name: "e", time: 1_000 + sequence, distinctID: "u", sequence: sequence,
            properties: ["fill": .string(String(repeating: "x", count: size))])
        return PreparedEvent(
            id: id, sequence: sequence, time: event.time, bytes: event.encoded().bytes)
    }

    private func stored(_ batch: SourceBatch) -> [Settlement] { batch.events.map { Settlement(event: $0, fate: .stored) } }

    private func rows(_ batch: SourceBatch) -> [Int64] { batch.events.map(\.row) }

    private func isBalanced(_ books: QueueBooks) -> Bool {
        books.lastSequence + books.adopted == books.depth + books.stored + books.duplicates + books.deadLettered + books.discarded
    }

    @Test("nothing of a transaction is in the log before its commit: a kill in the middle leaves no log that looks damaged (I11)")
    func transactionsAreNotSpilled() throws {
        let queue = try open()
        defer { queue.close() }
        try EventQueue.work(on: queue.database) { try $0.execute(sql: "PRAGMA cache_size = 20") }
        func logSize() throws -> Int { try Data(contentsOf: URL(fileURLWithPath: directory.path + "/queue/queue.sqlite-wal")).count }
        let before = try logSize()
        try queue.transaction { db, _ in
            let insert = try RowInsert(db)
            for number in Int64(1)...500 {
                let event = event(number, size: 1_000)
                _ = try insert.insert(id: event.id, payload: event.bytes, checkSum: event.checkSum, time: event.time)
            }
            let size = try logSize()
            #expect(size == before)
        }
        #expect(try logSize() > before + 500_000, "control: it did not fit the cache")
    }

    @Test("a queue tells which ids begin and cease to wait, in the order of its transactions (R12)")
    func waitingIDsAreTold() throws {
        var quota = QueueQuota()
        (quota.maximumEvents, quota.policy) = (4, .dropOldest)
        let queue = try EventQueue(
            directory: QueueDirectory(path: directory.path + "/queue"), durability: .process, newInstallID: .derived(name: "i", key: "a"),
            quota: quota)
        let changes = Locked<[String]>([])
        queue.observeWaitingIDs { change in
            switch change {
            case .added(let ids) where !ids.isEmpty: changes.withLock { $0 += ids.map { "+\($0)" } }
            case .removed(let ids) where !ids.isEmpty: changes.withLock { $0 += ids.map { "-\($0)" } }
            case .added, .removed: break
            case .forgotten: changes.withLock { $0.append("?") }
            }
        }
        func expect(_ expected: [(Character, Int64)], _ comment: Comment) {
            #expect(changes.withLock { $0 } == expected.map { "\($0.0)\(event($0.1).id)" }, comment)
            changes.withLock { $0 = [] }
        }
        var (unfit, again) = (event(3), event(2))
        unfit.problem = .notFinite
        again.sequence = nil
        try queue.append([event(1), event(2), unfit])
        expect([("-", 3)], "it took the id when it was tracked, and is a dead letter")
        try queue.settle(stored(queue.nextBatch(limit: 2, maximumBytes: .max, skipping: 0)), time: 1)
        expect([("-", 1), ("-", 2)], "delivered")
        var both = event(4)
        both.problem = .notFinite
        var behind = event(4)
        behind.sequence = nil
        try queue.append([again, both, behind])
        expect([("-", 4), ("+", 2), ("+", 4)], "one behind another that is only a dead letter waits, and so does one whose first is gone")
        _ = try queue.purgeDeadLetters(queue.deadLetterNumbers())
        try queue.append((5...8).map { event($0) })
        expect([("-", 2), ("-", 4)], "removed by the quota")
        let batch = try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .deadLetter(reason: "rejected", detail: "")) }, time: 1)
        _ = try queue.retryDeadLetters(nil)
        expect([("-", 5), ("+", 5)], "refused, and retried")
        #expect(try queue.bury(DamagedRows(rows: [queue.books.head]), time: 1).count == 1)
        expect([("-", 6)], "its bytes changed")
        _ = try queue.purge()
        #expect(Set(changes.withLock { $0 }) == Set(([5, 7, 8] as [Int64]).map { "-\(event($0).id)" }), "purged")
        queue.close()
    }

    @Test("rows, books and install survive reopening (R14)")
    func reopeningFindsEverything() throws {
        let first = try open()
        try first.append((1...3).map { event($0) }[...], dropped: ["mailbox_full": 7])
        let books = first.books
        first.close()
        let second = try open(install: "another")
        #expect(second.installID == first.installID)
        #expect(second.books == books)
        #expect(books.drops.byReason == ["mailbox_full": 7])
        #expect(books.depth == 3 && books.lastSequence == 3)
        #expect(try second.waitingIDs() == Set((1...3).map { event($0).id }))
        #expect(try second.nextBatch(limit: 10, maximumBytes: .max, skipping: 0).events.map(\.bytes) == (1...3).map { event($0).bytes })
    }

    @Test("oldest first by number, not as text (D14), limited by count and bytes (R10)")
    func batchIsTheOldestWithinItsLimits() throws {
        let queue = try open()
        try queue.append((1...12).map { event($0) }[...])
        #expect(try rows(queue.nextBatch(limit: 11, maximumBytes: .max, skipping: 0)) == Array(1...11))
        #expect(try rows(queue.nextBatch(limit: 2, maximumBytes: .max, skipping: 9)) == [10, 11])
        let two = event(1).bytes.count + event(2).bytes.count + 1
        #expect(try rows(queue.nextBatch(limit: 10, maximumBytes: two, skipping: 0)) == [1, 2])
        #expect(try rows(queue.nextBatch(limit: 10, maximumBytes: two - 1, skipping: 0)) == [1])
        #expect(try rows(queue.nextBatch(limit: 10, maximumBytes: 1, skipping: 0)) == [1], "one goes, however large")
    }

    @Test("settles the rows that were sent, not the first ones (D3), in one transaction with the books (I12)")
    func settlingRemovesWhatWasSent() throws {
        let queue = try open()
        try queue.append((1...5).map { event($0) }[...])
        let batch = try queue.nextBatch(limit: 5, maximumBytes: .max, skipping: 0)
        try queue.settle(
            [
                Settlement(event: batch.events[1], fate: .stored), Settlement(event: batch.events[2], fate: .duplicate),
                Settlement(event: batch.events[3], fate: .deadLetter(reason: "rejected", detail: "why")),
            ], time: 5)
        #expect(try rows(queue.nextBatch(limit: 5, maximumBytes: .max, skipping: 0)) == [1, 5])
        let letters = try queue.deadLetters(after: 0, limit: 10)
        #expect(letters.map(\.reason) == ["rejected"])
        #expect(letters.first?.event == event(4).bytes)
        #expect(queue.books.depth == 2 && queue.books.stored == 1 && queue.books.duplicates == 1 && queue.books.deadLettered == 1)
        #expect(queue.books.bytes == Int64(event(1).bytes.count + event(5).bytes.count))
        #expect(isBalanced(queue.books))
    }

    @Test("a settling that fails changes nothing (I5)")
    func failedSettlingChangesNothing() throws {
        let queue = try open()
        try queue.append((1...2).map { event($0) }[...])
        let before = queue.books
        let batch = try queue.nextBatch(limit: 2, maximumBytes: .max, skipping: 0)
        // A row that is not there, and one that is another event's.
        var (gone, other) = (batch.events[1], batch.events[1])
        gone.row = 99
        other.id = event(9).id
        for wrong in [gone, other] {
            #expect(throws: (any Error).self) {
                try queue.settle([Settlement(event: batch.events[0], fate: .stored), Settlement(event: wrong, fate: .stored)], time: 0)
            }
        }
        #expect(queue.books == before)
        #expect(try queue.nextBatch(limit: 2, maximumBytes: .max, skipping: 0).events == batch.events)
    }

    @Test("a sum of bytes that changed on the disk is right again once nothing is left: it would fill a quota for ever (I11, I13)")
    func wrongSumsEnd() throws {
        let first = try open()
        try first.append((1...2).map { event($0) }[...])
        let sent = try first.nextBatch(limit: 1, maximumBytes: .max, skipping: 0).events[0]
        try first.settle([Settlement(event: sent, fate: .deadLetter(reason: "rejected", detail: ""))], time: 0)
        try first.database.write { try $0.execute(sql: "UPDATE books SET bytes = bytes + 1000, letter_bytes = letter_bytes + 1000") }
        first.close()
        let queue = try open()
        #expect(queue.books.bytes > 1_000 && queue.books.letterBytes > 1_000)
        try queue.settle(stored(queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)), time: 0)
        #expect(queue.books.bytes == 0)
        #expect(try queue.purgeDeadLetters(queue.deadLetters(after: 0, limit: 1).map(\.number)) == 1)
        #expect(queue.books.letterBytes == 0)
    }

    @Test("closing waits for the transaction under way: until it has ended nobody else gets the queue (I1)")
    func closingWaits() async throws {
        let queue = try open()
        let gate = Gate()
        async let isFree = blocking {
            try queue.transaction { _, _ in
                gate.blockUntilOpen()
                return (try? FileLock(path: queue.directory.lockPath)) != nil
            }
        }
        await gate.waitForArrivals(1)
        async let closing: Void = blocking { queue.close() }
        while (try? queue.database) != nil { await Task.yield() }
        gate.open()
        #expect(try await !isFree)
        try await closing
        #expect(throws: Never.self) { try FileLock(path: queue.directory.lockPath) }
    }

    @Test("control: books that were not kept with the rows are seen")
    func bookCheckSeesFaults() {
        var books = QueueBooks(of: .derived(name: "install", key: "1"))
        books.lastSequence = 3
        books.stored = 2
        #expect(!isBalanced(books))
        books.deadLettered = 1
        #expect(isBalanced(books))
    }

    @Test("a row number never comes back, also after the queue was empty (D3)")
    func rowNumbersAreNotReused() throws {
        let queue = try open()
        try queue.append([event(1)][...])
        try queue.settle(stored(try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)), time: 0)
        try queue.append([event(2)][...])
        #expect(try rows(queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)) == [2])
    }

    @Test("an id that is queued keeps the first (R12)")
    func queuedIDKeepsTheFirst() throws {
        let queue = try open()
        var again = event(2)
        again.id = event(1).id
        try queue.append([event(1), again][...])
        #expect(try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0).events.map(\.bytes) == [event(1).bytes])
        #expect(isBalanced(queue.books))
    }

    /// Under the id of event 1, with a name of its own or not.
    private func again(_ name: String?, id: EventID, sequence: Int64?) -> PreparedEvent {
        let event = Event(id: id, name: name ?? "event", time: 99, distinctID: "u", sequence: sequence, properties: [:])
        return PreparedEvent(id: id, sequence: sequence, time: 99, bytes: event.encoded().bytes)
    }

    @Test(
        "another event under an id that waits is kept aside; the same one told at another time is nothing new (R12, I3, I12)",
        arguments: [Int64?.none, 2])
    func anotherEventOfOneIDIsAConflict(sequence: Int64?) throws {
        let queue = try open()
        let id = try #require(EventID("019a0000-0000-7000-8000-000000000001"))
        try queue.append([again(nil, id: id, sequence: 1)])
        let same = try queue.append([again(nil, id: id, sequence: sequence)])
        #expect(same.events.isEmpty && isBalanced(queue.books))
        let books = queue.books
        #expect(books.duplicates == (sequence == nil ? 0 : 1) && books.adopted == 0 && books.lastSequence == sequence ?? 1)
        let other = try queue.append([again("other", id: id, sequence: sequence.map { $0 + 1 })])
        #expect(other.events.map(\.isConflict) == [true] && isBalanced(queue.books))
        #expect(try queue.deadLetters(after: 0, limit: 9).map(\.reason) == ["conflict"])
        #expect(queue.books.depth == 1 && queue.books.deadLettered == 1 && queue.books.letters == 1)
        #expect(try queue.deadLetters(after: 0, limit: 9).map(\.origin) == [sequence == nil ? .nobody : .own])
        #expect(try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0).events.count == 1)
    }

    @Test("an event whose id was delivered before its commit is stored as one without a sequence: the server knows what it is (I1, I12)")
    func repeatedEventOutlivesTheFirst() throws {
        let queue = try open()
        let id = try #require(EventID("019a0000-0000-7000-8000-000000000001"))
        let appended = try queue.append([event(1), again("other", id: id, sequence: nil)])
        #expect(appended.events.count == 2 && isBalanced(queue.books) && queue.books.adopted == 1 && queue.books.lastSequence == 1)
        try queue.settle(stored(try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)), time: 0)
        let batch = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        #expect(batch.events.map(\.id) == [id] && batch.envelope.installID == nil)
    }

    @Test("two derived ids that are equal are one event, whatever it says (I2)")
    func derivedIDIsNoConflict() throws {
        let queue = try open()
        let id = EventID.derived(name: "order", key: "1")
        try queue.append([again(nil, id: id, sequence: 1)])
        #expect(try queue.append([again("other", id: id, sequence: 2)]).events.isEmpty)
        #expect(queue.books.duplicates == 1 && queue.books.letters == 0)
    }

    @Test("an event over a limit becomes a dead letter with its reason and uses its sequence (I12)")
    func overLimitEventIsADeadLetter() throws {
        let queue = try open()
        var bad = event(1)
        bad.problem = EventProblem(.nameTooLong, detail: "too long")
        try queue.append([bad, event(2)][...])
        #expect(try queue.deadLetters(after: 0, limit: 9).map(\.reason) == ["name_too_long"])
        #expect(queue.books.lastSequence == 2 && queue.books.depth == 1)
        #expect(isBalanced(queue.books))
    }

    @Test("the same queue is opened once at a time; its lock is given back")
    func queueIsTakenOnce() throws {
        let first = try open()
        #expect(throws: QueueOpenError.taken) { try open() }
        first.close()
        _ = try open()
    }

    @Test("a queue is not removed with what a last commit stores behind the look that found it empty (I1, R38)")
    func lateCommitKeepsTheQueue() throws {
        let queue = try open()
        // Where the look has ended, and the removal has not begun.
        let isRemoved = try queue.removeIfEmpty { _ in try queue.append([event(1)][...]) }
        #expect(!isRemoved)
        queue.close()
        #expect(try open().books.depth == 1)
    }

    @Test("only an empty queue is removed")
    func onlyEmptyQueueIsRemoved() throws {
        let queue = try open()
        try queue.append([event(1)][...])
        #expect(!queue.removeIfEmpty())
        try queue.settle(stored(try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)), time: 0)
        var letter = DeadLetter(number: 1, eventID: nil, reason: "r", detail: "", time: 0, event: [])
        letter.origin = .nobody
        try queue.adoptDeadLetters([letter])
        #expect(!queue.removeIfEmpty())
        _ = try queue.purgeDeadLetters([1])
        #expect(queue.removeIfEmpty())
        #expect(!FileManager.default.fileExists(atPath: directory.path + "/queue"))
    }

    @Test("adopting the same dead letters again is nothing")
    func adoptionIsIdempotent() throws {
        let queue = try open()
        let letter = DeadLetter(number: 4, eventID: event(1).id, reason: "r", detail: "d", time: 1, event: event(1).bytes)
        for _ in 0..<2 { try queue.adoptDeadLetters([letter.belonging(to: .derived(name: "i", key: "other"))]) }
        #expect(try queue.deadLetterCount() == 1)
        #expect(isBalanced(queue.books))
    }

    @Test("a retried dead letter of another install travels as that install's")
    func foreignLetterKeepsItsInstall() throws {
        let queue = try open()
        let other = EventID.derived(name: "i", key: "other")
        try queue.append([event(1)][...])
        try queue.adoptDeadLetters(
            [DeadLetter(number: 4, eventID: event(7).id, reason: "r", detail: "d", time: 1, event: event(7).bytes).belonging(to: other)])
        #expect(try queue.retryDeadLetters(nil).retried == [event(7).id])
        let own = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        #expect(own.events.map(\.id) == [event(1).id])
        #expect(own.envelope.installID == queue.installID)
        let foreign = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 1)
        #expect(foreign.events.map(\.id) == [event(7).id])
        #expect(foreign.envelope == EventBatch.Envelope(installID: other))
        #expect(isBalanced(queue.books))
    }
}
