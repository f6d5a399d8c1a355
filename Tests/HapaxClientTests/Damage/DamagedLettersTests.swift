import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Dead letters whose bytes changed on the disk, or were never text (I3, I11)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct DamagedLettersTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path + "/queue/queue.sqlite" }

    /// A closed queue with one dead letter, an event that the server has refused.
    private func makeLetter() async throws -> EventID {
        let test = try TestClient(
            directory: directory, transport: ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) })
        let id = try await test.client.trackDurably("paid", properties: ["amount": 12_345])
        #expect(await test.client.flush().deadLettered == 1)
        await test.client.shutdown(within: .zero)
        return id
    }

    private func change(_ old: Data, to new: Data) throws {
        var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        let place = try #require(bytes.range(of: old))
        bytes.replaceSubrange(place, with: new)
        try bytes.write(to: URL(fileURLWithPath: path))
    }

    @Test("a letter of which a bit changed is not what the app tracked: it says so, and is never sent (I3)", arguments: [true, false])
    func changedLettersAreNotRetried(isIDChanged: Bool) async throws {
        let id = try await makeLetter()
        if isIDChanged {
            var changed = id.bytes
            changed[15] ^= 1
            try change(Data(id.bytes), to: Data(changed))
        } else {
            try change(Data("12345".utf8), to: Data("92345".utf8))
        }
        let test = try TestClient(directory: directory)
        let letter = try #require(try test.client.deadLetters.list().first)
        #expect(letter.reason == "damaged" && letter.detail == DamagedRows.detail)
        let result = try test.client.deadLetters.retry()
        #expect(result.retried.isEmpty && result.unfit == 1)
        #expect(await test.client.flush().stored == 0)
        #expect(try test.client.deadLetters.count() == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("a letter that changed in a spool stays damaged where it is taken over (I3)")
    func changedLettersStayDamaged() async throws {
        _ = try await makeLetter()
        try change(Data("12345".utf8), to: Data("92345".utf8))
        let spool = QueueDirectory(path: directory.path + "/main").spool(named: "0198")
        try FileManager.default.createDirectory(atPath: directory.path + "/main/spool", withIntermediateDirectories: true)
        try FileManager.default.moveItem(atPath: directory.path + "/queue", toPath: spool.path)
        let test = try TestClient(directory: directory) { $0.queueDirectory = directory.path + "/main" }
        #expect(await test.client.flush().failure == nil)
        #expect(try test.client.deadLetters.list().map(\.reason) == ["damaged"])
        #expect(try test.client.deadLetters.retry().retried.isEmpty)
        await test.client.shutdown(within: .zero)
    }

    @Test("two letters that a changed bit has given one number are both kept, where a file that was set aside is taken over (I1, I12)")
    func lettersOfOneNumberAreKept() async throws {
        let root = try await makeLetters(6)
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
        let page = (root - 1) * 4_096
        let cell = page + (Int(bytes[page + 8 + 6]) << 8 | Int(bytes[page + 9 + 6]))
        #expect(bytes[page] == 0x0D && bytes[cell + 2] == 4, "control: the fourth letter's cell, with its number")
        bytes[cell + 2] = 3
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        try FileManager.default.moveItem(atPath: path, toPath: path + ".damaged-1")
        let test = try TestClient(directory: directory)
        await test.client.queue.salvage()
        #expect(try Set(test.client.deadLetters.list().map(\.eventID)).count == 6)
        let status = await test.client.status()
        #expect(status.isBalanced && status.damage?.salvagedDeadLetters == 6 && status.deadLettered == 6)
        await test.client.shutdown(within: .zero)
    }

    @Test("a letter of another queue is known by its number there and what it holds: numbers can come back (I1, D3)")
    func lettersOfOneOriginAreKept() async throws {
        let test = try TestClient(directory: directory)
        for name in ["first", "second", "first"] {
            var letter = DeadLetter(
                number: 0, eventID: .derived(name: name, key: ""), reason: "rejected", detail: "", time: 1,
                event: Array("{\"event\":\"\(name)\"}".utf8))
            (letter.origin, letter.originNumber) = (.install(.derived(name: "i", key: "spool")), 1)
            for _ in 1...2 { try test.client.queue.adoptDeadLetters([letter]) }
        }
        #expect(try test.client.deadLetters.list().map(\.eventID) == ["first", "second"].map { .derived(name: $0, key: "") })
        #expect(test.client.queue.books.isBalanced && test.client.queue.books.deadLettered == 2)
        await test.client.shutdown(within: .zero)
    }

    private enum Call: CaseIterable {
        case list, count, export, retry, retryAll, purge
    }

    /// - Returns: How many letters it saw.
    private func make(_ call: Call, _ letters: DeadLetters) throws -> Int {
        switch call {
        case .list: try letters.list(limit: 1_000).count
        case .count: try letters.count()
        case .export: try letters.export { _ in }
        case .retry: try letters.retry(Array(1...2_000)).unfit
        case .retryAll: try letters.retry().unfit
        case .purge: try letters.purge(Array(1...2_000))
        }
    }

    /// A closed queue with so many dead letters.
    ///
    /// - Returns: The page of their table's root.
    private func makeLetters(_ count: Int = 200) async throws -> Int {
        let test = try TestClient(directory: directory)
        for _ in 0..<count { test.client.track(String(repeating: "n", count: 201)) }
        try await test.client.writer.barrier()
        let root = try await test.client.queue.database.read {
            try Int.fetchOne($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name = 'dead_letters'")
        }
        await test.client.shutdown(within: .zero)
        return try #require(root)
    }

    @Test("while a damaged file's letters are not taken over, no call says that there are none (I12)", arguments: Call.allCases)
    private func damageIsNotEmptiness(call: Call) async throws {
        let root = try await makeLetters()
        let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
        // One of the pages below the root becomes noise.
        let page = (root - 1) * 4_096
        let cell = page + (Int(bytes[page + 16]) << 8 | Int(bytes[page + 17]))
        let leaf = bytes[cell..<cell + 4].reduce(0) { $0 << 8 | Int($1) }
        let test = try TestClient(directory: directory)
        try replace(Data(repeating: 0xFF, count: 200), at: (leaf - 1) * 4_096, under: test.client.queue)
        #expect {
            try make(call, test.client.deadLetters)
        } throws: {
            // Damage met by a command that reads, or more to come: both say what is so.
            let text = String(describing: $0)
            return text.contains("has not been taken over yet") || text.contains("malformed")
        }
        // Begun by the call; nothing else would.
        while !test.client.queue.damage.withLock({ $0.pending.isEmpty }) { await Task.yield() }
        let found = try make(call, test.client.deadLetters)
        let lost = await test.client.status().dropped["damaged_dead_letter"] ?? 0
        #expect((150..<200).contains(found) && found + Int(lost) == 200)
        await test.client.shutdown(within: .zero)
    }

    /// Also behind the back of a queue that has read it.
    private func replace(_ bytes: Data, at offset: Int, under queue: EventQueue? = nil) throws {
        try queue?.readPagesAnew()
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try file.seek(toOffset: UInt64(offset))
        try file.write(contentsOf: bytes)
        try file.close()
    }

    @Test("while a file that was set aside waits to be salvaged, nobody says that there are no letters; behind it, all do (I12)")
    func pendingLettersAreNotNone() async throws {
        let id = try await makeLetter()
        let test = try TestClient(directory: directory)
        let queue = test.client.queue
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        #expect(throws: UnsalvagedLetters.self) { try queue.retryDeadLetters(nil) }
        #expect(throws: UnsalvagedLetters.self) { try queue.purgeDeadLetters([1]) }
        #expect(throws: UnsalvagedLetters.self) { try queue.deadLetter(of: id) }
        #expect(throws: UnsalvagedLetters.self) { try queue.deadLetterNumbers() }
        #expect(throws: UnsalvagedLetters.self) { try queue.deadLetterCount() }
        // Known to be unreadable for now: then what is here is what there is.
        queue.damage.withLock { $0.failure = SalvageFailure(cause: DatabaseError(resultCode: .SQLITE_CANTOPEN)) }
        #expect(try queue.deadLetterCount() == 0)
        queue.damage.withLock { $0.failure = nil }
        var calls = 0
        let count = try await queue.salvaging { queue in
            calls += 1
            return try queue.deadLetterCount()
        }
        #expect(count == 1 && calls == 1, "salvaged before")
        #expect(try queue.retryDeadLetters(nil).retried == [id])
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "what meets damage on its way is done again with what was salvaged, and once (I12)",
        arguments: [
            UnsalvagedLetters() as any Error, DatabaseError(resultCode: .SQLITE_CORRUPT), DatabaseError(resultCode: .SQLITE_MISUSE),
            DatabaseError(resultCode: .SQLITE_FULL),
        ])
    func damageIsSalvagedOnTheWay(error: any Error) async throws {
        _ = try await makeLetter()
        let test = try TestClient(directory: directory)
        var calls = 0
        let result = try? await test.client.queue.salvaging { _ in
            calls += 1
            if calls == 1 { throw error }
            return calls
        }
        let isFull = (error as? DatabaseError)?.resultCode == .SQLITE_FULL
        #expect(result == (isFull ? nil : 2) && calls == (isFull ? 1 : 2))
        await test.client.shutdown(within: .zero)
    }

    @Test("more letters than are counted at an opening are no damage")
    func manyLettersAreNoDamage() async throws {
        _ = try await makeLetters()
        let test = try TestClient(directory: directory)
        try await test.client.queue.database.read { db in
            for limit in [1, 199, 200, 201] { try EventQueue.checkLetters(db, atMost: limit) }
        }
        await test.client.shutdown(within: .zero)
    }

    @Test("who only looks counts letters by their table: an index that shows none hides none (I12)")
    func indexHidesNoLetter() async throws {
        _ = try await makeLetter()
        let root = try await DatabaseQueue(path: path).read {
            try Int.fetchOne($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_dead_letters_1'")
        }
        // It has no cells.
        try replace(Data([0, 0]), at: (try #require(root) - 1) * 4_096 + 3)
        let reader = try #require(try QueueReader(directory: QueueDirectory(path: directory.path + "/queue")))
        #expect(try reader.summary().deadLetters == 1)
        #expect(try reader.deadLetters(after: 0, limit: 9).count == 1)
    }

    @Test("a letter that is named twice is tried once")
    func repeatedNumbersAreOne() async throws {
        _ = try await makeLetters()
        let test = try TestClient(directory: directory)
        #expect(try test.client.deadLetters.retry([7, 7, 8, 7]).unfit == 2)
        await test.client.shutdown(within: .zero)
    }

    private enum Look: CaseIterable {
        case opening, list, numbers, count
    }

    @Test("letters that the books know and the table does not show are damage, and found again (I11, I12)", arguments: Look.allCases)
    private func hiddenLettersAreDamage(look: Look) async throws {
        let root = try await makeLetters()
        let old = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
        let more = try TestClient(directory: directory)
        for _ in 0..<200 { more.client.track(String(repeating: "n", count: 201)) }
        try await more.client.writer.barrier()
        await more.client.shutdown(within: .zero)
        // The disk has lost the last write of the inner page.
        let place = (root - 1) * 4_096
        let lost = Data(old[place..<place + 4_096])
        if look == .opening { try replace(lost, at: place) }
        let test = try TestClient(directory: directory)
        let queue = test.client.queue
        if look != .opening { try replace(lost, at: place, under: queue) }
        switch look {
        case .opening: break
        case .list: #expect(throws: UnsalvagedLetters.self) { try queue.deadLetters(after: 0, limit: 1_000) }
        case .numbers: #expect(throws: UnsalvagedLetters.self) { try queue.deadLetterNumbers() }
        case .count: #expect(throws: UnsalvagedLetters.self) { try queue.deadLetterCount() }
        }
        await test.client.queue.salvage()
        #expect(try test.client.deadLetters.list(limit: 1_000).count == 400)
        #expect(await test.client.status().damage?.salvagedDeadLetters == 400)
        await test.client.shutdown(within: .zero)
    }

    @Test("events that changed one behind the other are dead letters after one look, and the others are sent (I3)")
    func changedEventsHoldUpNoOther() async throws {
        let test = try TestClient(directory: directory)
        try await test.track(0..<120)
        try await test.client.queue.database.write {
            try $0.execute(sql: "UPDATE queue SET check_sum = 1 - check_sum WHERE row IN (10, 51, 52, 92)")
        }
        let report = await test.client.flush()
        #expect(report.stored == 116 && report.deadLettered == 4 && report.failure == nil)
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("bytes that are not UTF-8 are exported whole: after a purge they are nowhere else (I1)")
    func exportKeepsTheBytes() throws {
        let bytes = Array(#"{"event":"caf"#.utf8) + [0xE9] + Array(#""}"#.utf8)
        let letter = DeadLetter(number: 1, eventID: nil, reason: "invalid_utf8", detail: "", time: 5, event: bytes)
        let line = try #require(try JSONSerialization.jsonObject(with: Data(letter.line)) as? [String: Any])
        #expect(line["text"] as? String == "{\"event\":\"caf\u{FFFD}\"}")
        #expect((line["base64"] as? String).flatMap { Data(base64Encoded: $0) } == Data(bytes))
        let text = DeadLetter(number: 1, eventID: nil, reason: "invalid_json", detail: "", time: 5, event: Array("caf\u{E9}".utf8))
        #expect(String(decoding: text.line, as: UTF8.self).contains(#""text":"café"}"#))
    }
}
