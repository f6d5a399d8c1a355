import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax queue and hapax dead-letters purge (I12, D14)", .timeLimit(.minutes(20)))
struct QueueCommandTests {
    let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    /// A client that works on the queue until it is closed.
    private func owner() throws -> EventQueue {
        try EventQueue.open(hapax.queue, whenTaken: .refuse, durability: .process, clock: SystemClock())
    }

    private func dropped() async throws -> [String: Int]? {
        try await hapax.run("status", "--json").json["dropped"] as? [String: Int]
    }

    @Test("list: oldest first by number, not as text (D14); page by page; also while a client works on the queue")
    func listIsInOrder() async throws {
        var ids: [String] = []
        for name in 0..<11 {
            ids.append(try #require(try await hapax.run("track", "e\(name)", "--no-flush", "--json").json["event_id"] as? String))
        }
        let owner = try owner()
        let all = try await hapax.run("queue", "list", "--json")
        #expect(all.status == 0 && all.jsonLines.compactMap { $0["event_id"] as? String } == ids)
        #expect(all.jsonLines.compactMap { $0["number"] as? Int } == Array(1...11))
        #expect(all.jsonLines.compactMap { $0["event"] as? String } == (0..<11).map { "e\($0)" })
        let page = try await hapax.run("queue", "list", "--after", "8", "--limit", "2")
        #expect(page.out.split(separator: "\n").count == 2 && page.out.hasPrefix("9  \(ids[8])  ") && page.out.hasSuffix("bytes  e9\n"))
        owner.close()
    }

    @Test("list: an event's name cannot command the terminal; what waits beside the queue is counted")
    func listIsPrintable() async throws {
        let owner = try owner()
        _ = try await hapax.run("track", "beside", "--no-flush")
        let taken = try await hapax.run("queue", "list")
        #expect(taken.out.isEmpty && taken.error.contains("1 more events wait in 1 queues"))
        owner.close()
        _ = try await hapax.run("track", "\u{1B}[2J\na", "--no-flush")
        let list = try await hapax.run("queue", "list")
        #expect(list.out.hasSuffix("\\u{1B}[2J\\u{A}a\n") && list.out.split(separator: "\n").count == 1)
    }

    @Test("show: the bytes that will be sent, wherever they wait; 3 for a dead letter, 1 for what does not wait")
    func showIsWhatWillBeSent() async throws {
        let first = try #require(
            try await hapax.run("track", "one", "-p", "a:=1", "--no-flush", "--json").json["event_id"] as? String)
        let dead = try #require(
            try await hapax.run("track", String(repeating: "n", count: 201), "--no-flush", "--json").json["event_id"] as? String)
        let owner = try owner()
        let beside = try #require(try await hapax.run("track", "two", "--no-flush", "--json").json["event_id"] as? String)
        for (id, name) in [(first, "one"), (beside, "two")] {
            let shown = try await hapax.run("queue", "show", id)
            #expect(shown.status == 0 && shown.json["event_id"] as? String == id && shown.json["event"] as? String == name)
        }
        let shown = try await hapax.run("queue", "show", first)
        #expect(Array(shown.out.utf8.dropLast()) == (try owner.nextBatch(limit: 1, maximumBytes: .max, skipping: 0).events[0].bytes))
        owner.close()
        let letter = try await hapax.run("queue", "show", dead)
        #expect(letter.status == 3 && letter.error.contains("name_too_long"))
        #expect(try await hapax.run("queue", "flush").status == 64)
        #expect(try await hapax.run("flush").status == 0)
        #expect(try await hapax.run("queue", "show", first).status == 1, "delivered")
    }

    @Test("purge: deletes what waits, here and beside, keeps dead letters, and counts it (I12)")
    func purgeDeletesWhatWaits() async throws {
        let owner = try owner()
        for _ in 0..<3 { _ = try await hapax.run("track", "beside", "--no-flush") }
        owner.close()
        // Each takes its own spool; a flush would take them along.
        for name in ["one", "two", String(repeating: "n", count: 201)] { _ = try await hapax.run("track", name, "--no-flush") }
        #expect(try await hapax.run("queue", "purge").status == 64, "nobody to ask")
        #expect(try await hapax.run("status", "--json").json["depth"] as? Int == 2)
        let purge = try await hapax.run("queue", "purge", "--yes", "--json")
        #expect(purge.status == 0)
        #expect(purge.json["purged"] as? Int == 5 && purge.json["purged_dead_letters"] as? Int == 0)
        let status = try await hapax.run("status", "--json").json
        #expect(status["depth"] as? Int == 0 && status["spools"] as? Int == 0 && status["dead_letters"] as? Int == 1)
        #expect(try await dropped() == ["purged": 5])
        let counts = try ["created", "adopted", "dead_lettered", "discarded"].map { try #require(status[$0] as? Int) }
        #expect(counts[0] + counts[1] == counts[2] + counts[3], "the books add up")
        let rest = try await hapax.run("queue", "purge", "--with-dead-letters", "--yes", "--json")
        #expect(rest.json["purged"] as? Int == 0 && rest.json["purged_dead_letters"] as? Int == 1)
        #expect(try await hapax.run("status", "--json").json["dead_letters"] as? Int == 0)
        #expect(try await hapax.run("track", "next", "--json").json["delivered"] as? Bool == true)
        let told = try #require(server.batches.last?.scanned.envelope)
        #expect(
            told.dropped == ["purged": 2] && told.takenOver.values.map { $0["purged"] } == [1, 1, 1], "the server is told, of each install")
        #expect(server.stored.count == 1)
    }

    @Test("purge: a queue that a client works on is left alone, with 75; one in use beside it as well")
    func purgeLeavesTakenQueues() async throws {
        _ = try await hapax.run("track", "one", "--no-flush")
        let main = try owner()
        let spool = try EventQueue.open(hapax.queue, whenTaken: .spool, durability: .process, clock: SystemClock())
        let taken = try await hapax.run("queue", "purge", "--yes")
        #expect(taken.status == 75 && taken.error.contains("another process works on the queue") && main.books.depth == 1)
        #expect(try await hapax.run("dead-letters", "purge", "--all", "--yes").status == 75)
        main.close()
        let partly = try await hapax.run("queue", "purge", "--yes", "--json")
        #expect(partly.status == 75 && partly.json["purged"] as? Int == 1 && partly.json["spools_in_use"] as? Int == 1)
        spool.close()
        #expect(try await hapax.run("queue", "purge", "--yes").status == 0)
    }

    @Test("purge: a queue beside it whose damaged file cannot be read stays; what is gone is told, and the others go (I12, I15)")
    func purgeGoesOnBehindAnUnreadableQueue() async throws {
        let owner = try owner()
        for _ in 0..<2 { _ = try await hapax.run("track", "beside", "--no-flush") }
        let spool = try #require(try owner.directory.spools().first)
        owner.close()
        let aside = spool.databasePath + ".damaged-1"
        try FileManager.default.createDirectory(atPath: aside, withIntermediateDirectories: true)
        _ = try await hapax.run("track", "one", "--no-flush")
        let partly = try await hapax.run("queue", "purge", "--yes", "--json")
        #expect(partly.status == 1 && partly.json["purged"] as? Int == 2 && partly.json["unusable_spools"] as? Int == 1)
        #expect(partly.error.contains(spool.path) && !partly.error.contains("nothing was changed"))
        try FileManager.default.removeItem(atPath: aside)
        let rest = try await hapax.run("queue", "purge", "--yes", "--json")
        #expect(rest.status == 0 && rest.json["purged"] as? Int == 1)
    }

    @Test("purge: on a terminal it asks, and only yes deletes", arguments: [("n", 1, 1), ("", 1, 1), ("yes", 0, 0)])
    func purgeAsks(answer: String, status: Int32, left: Int) async throws {
        _ = try await hapax.run("track", "one", "--no-flush")
        let terminal = try PretendTerminal()
        try terminal.keyboard.write(contentsOf: Data((answer + "\n").utf8))
        let output = try await hapax.start(["queue", "purge"], terminal: terminal.screen).finish()
        #expect(output.status == status && output.error.contains("Delete 1 waiting events for ever? [y/N]"))
        #expect(try await hapax.run("status", "--json").json["depth"] as? Int == left)
    }

    @Test("dead letters are purged by number or all; a number that is none of them fails with 1")
    func deadLettersArePurged() async throws {
        #expect(try await hapax.run("dead-letters", "purge", "--all", "--yes").status == 0, "no queue, nothing to delete")
        for _ in 0..<3 { _ = try await hapax.run("track", String(repeating: "n", count: 201)) }
        #expect(try await hapax.run("dead-letters", "purge", "--yes").status == 64)
        let one = try await hapax.run("dead-letters", "purge", "2", "9", "--yes", "--json")
        #expect(one.status == 1 && one.json["purged_dead_letters"] as? Int == 1 && one.error.contains("number 9"))
        #expect(try await hapax.run("dead-letters", "list", "--json").jsonLines.compactMap { $0["number"] as? Int } == [1, 3])
        #expect(try await hapax.run("dead-letters", "purge", "--all", "--yes", "--json").json["purged_dead_letters"] as? Int == 2)
        #expect(try await hapax.run("status", "--json").json["dead_lettered"] as? Int == 3, "they stay counted")
    }

    @Test("list and show tell an event whose bytes changed on the disk apart from the others (I3, I11)")
    func changedEventIsTold() async throws {
        var ids: [String] = []
        for name in 0..<3 {
            ids.append(try #require(try await hapax.run("track", "e\(name)", "--no-flush", "--json").json["event_id"] as? String))
        }
        let queue = try owner()
        try queue.transaction { db, _ in try db.execute(sql: "UPDATE queue SET payload = CAST('{}' AS BLOB) WHERE row = 2") }
        queue.close()
        let list = try await hapax.run("queue", "list", "--json")
        #expect(list.status == 0 && list.jsonLines.compactMap { $0["event_id"] as? String } == [ids[0], ids[2]])
        #expect(list.error.contains("2: the event's bytes changed on the disk"))
        let show = try await hapax.run("queue", "show", ids[1])
        #expect(show.status == 1 && show.error.contains("the event's bytes changed on the disk"))
    }

    /// - Parameter whole: How many bytes of a queue's file are left: none, or the header by which it is known for a database.
    @Test(
        "a damaged queue: looking says what to do, the next command sets the file aside, and status names it (I11)", arguments: [0, 100])
    func damagedQueueIsExplained(whole: Int) async throws {
        let (file, made) = (hapax.queue + "/queue.sqlite", hapax.directory.path + "/made")
        try EventQueue.open(made, whenTaken: .refuse, durability: .process, clock: SystemClock()).close()
        let header = try #require(FileManager.default.contents(atPath: made + "/queue.sqlite")).prefix(whole)
        try Files.write(Array(header) + [UInt8](repeating: 0x55, count: 8_192 - whole), to: file)
        for arguments in [["status"], ["queue", "list"], ["identity", "show"], ["dead-letters", "list"]] {
            let output = try await hapax.start(arguments).finish()
            #expect(output.status == 1 && output.out.isEmpty && output.error.contains("the next hapax flush or track sets the file aside"))
        }
        #expect(try await hapax.run("flush").status == 0)
        let status = try await hapax.run("status")
        #expect(status.status == 0 && status.out.contains("queue.sqlite.damaged-1"))
        #expect(try await hapax.run("status", "--json").json["damaged_files"] as? Int == 1)
    }

    @Test("a purge finds what is only in a file that was set aside; it does not come back (I11)")
    func purgeReachesDamagedFiles() async throws {
        let id = try #require(EventID(try await hapax.run("track", "a", "--no-flush", "--json").json["event_id"] as? String ?? ""))
        let file = hapax.queue + "/queue.sqlite"
        // As after a crash between the renaming and the new file.
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let purged = try await hapax.run("queue", "purge", "--yes", "--json")
        #expect(purged.status == 0 && purged.json["purged"] as? Int == 1)
        #expect(try await hapax.run("flush").status == 0)
        #expect(server.stored[id] == nil)
    }
}
