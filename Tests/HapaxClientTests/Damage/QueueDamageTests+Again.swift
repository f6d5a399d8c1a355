import Foundation
import GRDB
import GRDBSQLite
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// More than one damaged file.
extension QueueDamageTests {
    @Test("what was salvaged from one file does not come back when the next cannot be read at all")
    func salvagedFilesStayDoneBehindNoise() async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        #expect(try queue.reading { try Int.fetchOne($0, sql: "SELECT COUNT(*) FROM salvaged_rows") } == 0, "none is needed any more")
        _ = try queue.purge()
        queue.close()
        try Data("noise".utf8).write(to: URL(fileURLWithPath: file))
        let again = try open("third")
        #expect(asides().count == 2)
        #expect(try await drain(again).isEmpty)
        again.close()
    }

    @Test("a file whose salvage had no chance to be marked as done is marked at the next opening")
    func markIsMadeUpFor() async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        queue.close()
        let mark = try #require(
            try FileManager.default.contentsOfDirectory(atPath: path).first { $0.hasSuffix(".salvaged") })
        try FileManager.default.removeItem(atPath: path + "/" + mark)
        try open("third").close()
        #expect(queue.directory.isSalvaged("queue.sqlite.damaged-1"))
    }

    @Test("dead letters that are lost with a file that was damaged before it opened are counted and told (I11, I12)")
    func lostLettersAreTold() async throws {
        var bytes = try make(60)
        let text = Array(#"too long"#.utf8)
        let place = try #require((0..<bytes.count - text.count).last { Array(bytes[$0..<$0 + text.count]) == text })
        let page = place / 4_096
        for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.salvaged == 60 && damage.lost == 0 && damage.salvagedDeadLetters == 0 && damage.lostDeadLetters == 1)
        #expect(damage.properties["$lost_dead_letters"] == .integer(1))
        #expect(queue.books.drops.byReason == ["damaged_dead_letter": 1] && queue.books.isBalanced)
        queue.close()
    }

    @Test("what one damaged file had taken over from another is not told as lost when both are salvaged (I12)")
    func rowsInTwoFilesAreNotLost() async throws {
        _ = try make(60)
        let first = try Data(contentsOf: URL(fileURLWithPath: file))
        let queue = try open()
        // As if the rows had been taken over from an older file whose salvage has not ended.
        try first.write(to: URL(fileURLWithPath: file + ".damaged-1"))
        try await queue.database.write { try EventQueue.remember(DamagedFile(name: "queue.sqlite.damaged-1", isOwn: false), $0) }
        queue.damage.withLock { $0.pending.append(DamagedFile(name: "queue.sqlite.damaged-1", isOwn: false)) }
        _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
        #expect(asides().count == 2)
        #expect(try await drain(queue).count == 60)
        #expect(queue.books.drops.byReason == [:] && queue.books.isBalanced && queue.books.discarded == 0)
        queue.close()
    }

    @Test("a file that can never be read keeps no younger one from being salvaged (I15)")
    func unreadableFileHoldsUpNoOther() async throws {
        _ = try make(60)
        try FileManager.default.createDirectory(atPath: file + ".damaged-1", withIntermediateDirectories: true)
        try damageAPage()
        let queue = try open()
        #expect(asides().count == 2)
        await queue.salvage()
        #expect(queue.books.depth > 40 && queue.unsalvagedFiles == 1)
        queue.close()
    }

    @Test("the number of a file that was deleted is not given again, nor its row numbers (D3, R9)")
    func numbersDoNotComeBack() async throws {
        _ = try make(60)
        let queue = try open()
        try spoil(queue)
        _ = try await drain(queue)
        for name in try FileManager.default.contentsOfDirectory(atPath: path) where name.contains("damaged-") {
            try FileManager.default.removeItem(atPath: path + "/" + name)
        }
        try queue.append((62...121).map { Self.event($0) }[...])
        let batch = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        try spoil(queue)
        try queue.append((122...151).map { Self.event($0) }[...])
        #expect(asides() == ["queue.sqlite.damaged-2"])
        #expect(throws: DatabaseError.self) { try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0) }
        #expect(asides() == ["queue.sqlite.damaged-2"], "the new file is whole")
        let delivered = try await drain(queue)
        #expect(delivered.count > 70, "\(queue.books), \(String(describing: queue.latestDamage))")
        #expect(queue.books.isBalanced, "\(queue.books)")
        queue.close()
    }

    @Test("nor is it given again by a client that finds the file deleted when it opens (D3)")
    func numbersOutliveTheirFiles() async throws {
        _ = try make(60)
        for round in 1...2 {
            let queue = try open()
            #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
            #expect(asides() == ["queue.sqlite.damaged-\(round)"])
            #expect(try await drain(queue).count == (round == 1 ? 60 : 0))
            queue.close()
            for name in try FileManager.default.contentsOfDirectory(atPath: path) where name.contains("damaged-") {
                try FileManager.default.removeItem(atPath: path + "/" + name)
            }
        }
    }

    @Test(
        "a file set aside that cannot be opened keeps nobody from starting; nothing counts as drained, and it is taken over once it can be (I11, I15)"
    )
    func unreadableFileKeepsNobodyFromStarting() async throws {
        _ = try make(60)
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let disk = FaultyDisk(path + "/queue.sqlite.damaged-1")
        disk.fail(FaultyDisk.Fault(at: 0, count: .max, code: SQLITE_CANTOPEN, operations: [.open]))
        let queue = try open()
        try queue.append([Self.event(100)][...])
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        let batch = try await source.nextBatch(limit: 20, maximumBytes: .max, skipping: 0)
        #expect(batch.events.map(\.id) == [Self.event(100).id])
        try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
        await #expect(throws: SalvageFailure.self) { try await source.nextBatch(limit: 20, maximumBytes: .max, skipping: 0) }
        try queue.append([Self.event(101)][...])
        disk.fail(nil)
        await queue.salvage()
        #expect(queue.unsalvagedFiles == 0)
        let next = try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0)
        #expect(next.events.first?.id == Self.event(1).id, "the oldest first (R9)")
        #expect(try await drain(queue).count == 61)
        queue.close()
    }

    @Test("what the server is still to be told of a damaged file stays as it was through the next damage (I11)")
    func toldCountsStay() async throws {
        _ = try make(60)
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        var queue = try open()
        await queue.salvage()
        #expect(queue.books.depth == 60)
        queue.close()
        queue = try open("third")
        let told = Locked<[String: Int]>([:])
        var observer = DamageObserver()
        observer.salvaged = { damage, _ in told.withLock { $0[damage.file] = damage.salvaged } }
        queue.observeDamage(observer)
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        await queue.salvage()
        #expect(told.withLock { $0 } == ["queue.sqlite.damaged-1": 60, "queue.sqlite.damaged-2": 60])
        queue.close()
    }

    func pageOfBooks(_ bytes: [UInt8]) throws -> Int {
        try #require(
            (1..<bytes.count / 4_096).first { page in
                let start = page * 4_096
                return bytes[start] == 0x0D && bytes[start + 4] == 1
                    && bytes[start..<start + 4_096].indices.contains { Array(bytes[$0..<min($0 + 16, bytes.count)]) == Self.install.bytes }
            })
    }

    @Test("a running client knows how much its file held when the file's own books are lost with it (I11, I12)")
    func booksInMemoryCount() async throws {
        let books = try pageOfBooks(try make(60))
        let queue = try open()
        try spoil(queue)
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.seek(toOffset: UInt64(books * 4_096))
        try handle.write(contentsOf: Data(repeating: 0xEE, count: 200))
        try handle.close()
        try queue.append([Self.event(62)][...])
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.salvaged > 30 && damage.lost == 60 - damage.salvaged && damage.lostDeadLetters == 0)
        queue.close()
    }

    @Test("a purge in the midst of a salvage: nothing more is taken over, and nothing is told as lost (D16, I12)")
    func purgeEndsASalvage() async throws {
        try makeDamaged()
        let queue = try open()
        let pending = queue.damage.withLock { $0.pending }
        _ = try queue.purge()
        // As if the salvage had begun before.
        queue.damage.withLock { $0.pending = pending }
        await queue.salvage()
        #expect(queue.unsalvagedFiles == 0 && queue.books.depth == 0 && queue.books.letters == 0)
        #expect(queue.books.drops.byReason == ["purged": 60] && queue.books.isBalanced)
        queue.close()
    }

    @Test("dead letters of another install's file that is purged before its salvage stay counted (D14, I12)")
    func purgedLettersStayCounted() throws {
        let first = try open()
        try first.append((1...6).map { Self.event($0) }[...])
        let batch = try first.nextBatch(limit: 3, maximumBytes: .max, skipping: 0)
        try first.settle(batch.events.map { Settlement(event: $0, fate: .deadLetter(reason: "r", detail: "d")) }, time: 0)
        first.close()
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let queue = try open("second")
        _ = try queue.purge()
        let books = queue.books
        #expect(books.adopted == 6 && books.discarded == 3 && books.deadLettered == 3 && books.isBalanced, "\(books)")
        #expect(books.drops.byReason == ["purged": 3] && books.letters == 0)
        queue.close()
    }

    @Test("damage met right behind a purge brings nothing of it back (D14, D16)")
    func purgedFilesStayPurged() async throws {
        try makeDamaged()
        let queue = try open()
        #expect(queue.unsalvagedFiles == 1)
        let isTold = Locked(false)
        queue.observeWaitingIDs { change in
            // Within the purge's own turn.
            guard case .removed = change, queue.unsalvagedFiles == 0 else { return }
            isTold.withLock { $0 = true }
        }
        _ = try queue.purge()
        #expect(isTold.withLock { $0 }, "nobody who meets damage then remembers the file")
        queue.observeWaitingIDs { _ in }
        queue.close()
    }

    @Test("who still has the file that was set aside cannot use it, and learns that another took over, which is whole (I11)")
    func formerConnectionIsClosed() throws {
        _ = try make(60)
        let queue = try open()
        let former = try queue.database
        #expect(queue.oldestTime != nil)
        #expect(try queue.takesOver(from: former, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        #expect(queue.latestDamage?.file == "queue.sqlite.damaged-1" && queue.oldestTime == nil)
        let misuse = DatabaseError(resultCode: .SQLITE_MISUSE)
        #expect(throws: DatabaseError.self) { try EventQueue.work(on: former) { _ in } }
        // A second one who met the damage, or only the closed file.
        for error in [DatabaseError(resultCode: .SQLITE_CORRUPT), misuse] { #expect(try queue.takesOver(from: former, after: error)) }
        #expect(try !queue.takesOver(from: queue.database, after: misuse))
        #expect(asides().count == 1)
        queue.close()
        #expect(try !queue.takesOver(from: former, after: misuse))
    }

    @Test(
        "what a running client knows moves into the file that takes over, and stays there; what only its file knew does as well (I11, I12)",
        arguments: [true, false])
    func stateMovesWithARunningClient(isKnown: Bool) async throws {
        _ = try make(60)
        var queue = try open()
        try queue.append([] as [PreparedEvent], dropped: ["refused": 3])
        let identity = EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna")
        let session = EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5)
        if isKnown {
            var observer = DamageObserver()
            observer.state = { (identity, session) }
            queue.observeDamage(observer)
        } else {
            try queue.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
            try queue.save(session)
        }
        for _ in 1...2 { #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))) }
        #expect(queue.account.withLock { $0.used } == QueueUsage(), "nothing is in the way of the quota")
        queue.close()
        queue = try open("third")
        #expect(try queue.identity() == identity)
        #expect(try queue.openSession() == session)
        #expect(queue.damage.withLock { $0.pending.map(\.isOwn) } == [true, true])
        #expect(try await drain(queue).count == 60)
        #expect(queue.books.drops.byReason.filter { $0.value != 0 } == ["refused": 3] && queue.books.isBalanced)
        queue.close()
    }

    @Test(
        "an event that was tracked under the id of another, which a damaged file held, leaves that one a conflict (I1, I3)",
        arguments: [false, true])
    func salvagedConflictIsKept(isDerived: Bool) async throws {
        let id = try #require(isDerived ? EventID.derived(name: "a", key: "b") : EventID("019a0000-0000-7000-8000-000000000001"))
        func event(_ name: String, _ sequence: Int64) -> PreparedEvent {
            let event = Event(id: id, name: name, time: 1, distinctID: "u", sequence: sequence, properties: [:])
            return PreparedEvent(id: id, sequence: sequence, time: 1, bytes: event.encoded().bytes)
        }
        let queue = try open()
        try queue.append([event("first", 1)])
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        try queue.append([event("second", 2)])
        await queue.salvage()
        let letters = try queue.deadLetters(after: 0, limit: 9)
        #expect(letters.map(\.reason) == (isDerived ? [] : ["conflict"]))
        if let letter = letters.first { #expect(EventScanner.scan(letter.event[...]).name.elementsEqual("first".utf8)) }
        #expect(queue.books.isBalanced && queue.books.depth == 1 && queue.latestDamage?.lost == 0)
        #expect(queue.books.drops.byReason.filter { $0.value > 0 } == [:])
        queue.close()
    }

    @Test("a session that a running client has ended is not taken from its file (I11)")
    func endedSessionStaysEnded() throws {
        let queue = try open()
        try queue.save(EventQueue.OpenSession(start: Self.event(1).id, lastActivity: 5))
        var observer = DamageObserver()
        observer.state = { (EventQueue.SavedIdentity(anonymousID: "a-1"), nil) }
        queue.observeDamage(observer)
        #expect(try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT)))
        #expect(try queue.openSession() == nil)
        queue.close()
    }

    @Test("row numbers never go back, in whatever order files are found (D3)")
    func rowNumbersGrow() async throws {
        let queue = try open()
        try await queue.database.write { db in
            for number in [5, 1] { try EventQueue.remember(DamagedFile(name: "queue.sqlite.damaged-\(number)", isOwn: false), db) }
        }
        try queue.append([Self.event(1)][...])
        #expect(try queue.nextBatch(limit: 1, maximumBytes: .max, skipping: 0).events.map(\.row) == [(5 << 40) + 1])
        queue.close()
    }

    /// A file from which nobody can tell whose it is: the only page of its books is noise. Its first row has changed.
    private func makeFileOfNobody() throws {
        _ = try make(60)
        try DatabaseQueue(path: file).write { try $0.execute(sql: "UPDATE queue SET payload = zeroblob(length(payload)) WHERE row = 1") }
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let books = try pageOfBooks(bytes)
        for index in books * 4_096..<books * 4_096 + 200 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
    }

    @Test(
        "dead letters of two files of nobody knows which install have the same numbers and are both kept, as is a row that changed (I1)",
        arguments: [false, true])
    func lettersOfNobodyDoNotCollide(areOfOneQueue: Bool) async throws {
        for round in 1...2 {
            if !areOfOneQueue { try? FileManager.default.removeItem(atPath: path) }
            try? FileManager.default.removeItem(atPath: file)
            try makeFileOfNobody()
            let queue = try open(areOfOneQueue ? "one" : "round \(round)")
            await queue.salvage()
            #expect(queue.latestDamage?.file == "queue.sqlite.damaged-\(areOfOneQueue ? round : 1)", "control")
            #expect(queue.latestDamage?.salvagedDeadLetters == 1)
            #expect(try queue.deadLetterCount() == 2 && queue.books.isBalanced)
            _ = try await drain(queue)
            queue.close()
            try FileManager.default.copyItem(atPath: file, toPath: directory.path + "/round-\(round).sqlite")
        }
        // The second queue took the first one's place, but nothing of it: both are adopted by a third.
        let main = try EventQueue(
            directory: QueueDirectory(path: directory.path + "/main"), durability: .process, newInstallID: .derived(name: "i", key: "main"))
        for round in 1...2 {
            let place = QueueDirectory(path: directory.path + "/round-\(round)")
            try FileManager.default.createDirectory(atPath: place.path, withIntermediateDirectories: true)
            try FileManager.default.copyItem(atPath: directory.path + "/round-\(round).sqlite", toPath: place.databasePath)
            let spool = try EventQueue(
                directory: place, durability: .process, newInstallID: .derived(name: "i", key: "unused"), isSpool: true)
            let letters = try spool.deadLetters(after: 0, limit: 9).map { $0.belonging(to: spool.installID) }
            #expect(letters.map(\.origin) == [.nobody, .nobody])
            for _ in 1...2 { try main.adoptDeadLetters(letters) }
            spool.close()
        }
        #expect(try main.deadLetterCount() == 4, "each once, however often it is adopted")
        main.close()
    }
}
