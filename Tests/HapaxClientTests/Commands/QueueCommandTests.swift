import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax queue and hapax dead-letters purge (I12, D14)", .endsWhenItHangs)
struct QueueCommandTests {
    let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    @Test("list: oldest first by number, not as text (D14); page by page")
    func listIsInOrder() async throws {
        var ids: [String] = []
        for name in 0..<11 {
            ids.append(try #require(try await hapax.run("track", "e\(name)", "--no-flush", "--json").json["event_id"] as? String))
        }
        let all = try await hapax.run("queue", "list", "--json")
        #expect(all.status == 0 && all.jsonLines.compactMap { $0["event_id"] as? String } == ids)
        #expect(all.jsonLines.compactMap { $0["sequence"] as? Int } == Array(1...11))
        #expect(all.jsonLines.compactMap { $0["event"] as? String } == (0..<11).map { "e\($0)" })
        let page = try await hapax.run("queue", "list", "--after", "1-8", "--limit", "2")
        #expect(page.out.split(separator: "\n").count == 2 && page.out.hasPrefix("1-9  \(ids[8])  ") && page.out.hasSuffix("bytes  e9\n"))
    }

    @Test("show: the bytes that will be sent, wherever they wait; 3 for a dead letter, 1 for what does not wait")
    func showIsWhatWillBeSent() async throws {
        let first = try #require(
            try await hapax.run("track", "one", "-p", "a:=1", "--no-flush", "--json").json["event_id"] as? String)
        let dead = try #require(
            try await hapax.run("track", String(repeating: "n", count: 201), "--no-flush", "--json").json["event_id"] as? String)
        // The first file is somebody's meanwhile, so that this one goes into the second.
        let holder = try FileClaim(1, in: QueueDirectory(path: hapax.queue))
        let beside = try #require(try await hapax.run("track", "two", "--no-flush", "--json").json["event_id"] as? String)
        #expect(try await hapax.run("queue", "show", first).status == 75, "a running process may hold it")
        holder.release()
        for (id, name) in [(first, "one"), (beside, "two")] {
            let shown = try await hapax.run("queue", "show", id)
            #expect(shown.status == 0 && shown.json["event_id"] as? String == id && shown.json["event"] as? String == name)
        }
        let shown = try await hapax.run("queue", "show", first)
        #expect(shown.json["sequence"] as? Int == 1)
        let deadLetter = try await hapax.run("queue", "show", dead)
        #expect(deadLetter.status == 3 && deadLetter.error.contains("name_too_long"))
        #expect(try await hapax.run("queue", "flush").status == 64)
        #expect(try await hapax.run("flush").status == 0)
        #expect(try await hapax.run("queue", "show", first).status == 1, "delivered")
    }

    @Test("purge: on a terminal it asks, and only yes deletes", arguments: [("n", 1, 1), ("", 1, 1), ("yes", 0, 0)])
    func purgeAsks(answer: String, status: Int32, left: Int) async throws {
        _ = try await hapax.run("track", "one", "--no-flush")
        let terminal = try PretendTerminal()
        try terminal.keyboard.write(contentsOf: Data((answer + "\n").utf8))
        let output = try await hapax.start(["queue", "purge"], terminal: terminal.screen).finish()
        #expect(output.status == status && output.error.contains("Delete every waiting event in \(hapax.queue) for ever? [y/N]"))
        #expect(try await hapax.run("status", "--json").json["waiting"] as? Int == left)
    }

    @Test("dead letters are purged by number or all; a number that is none of them fails with 1")
    func deadLettersArePurged() async throws {
        #expect(try await hapax.run("dead-letters", "purge", "--all", "--yes").status == 0, "no queue, nothing to delete")
        for _ in 0..<3 { _ = try await hapax.run("track", String(repeating: "n", count: 201)) }
        #expect(try await hapax.run("dead-letters", "purge", "--yes").status == 64)
        let one = try await hapax.run("dead-letters", "purge", "1-2", "1-9", "--yes", "--json")
        #expect(one.status == 1 && one.json["purged_dead_letters"] as? Int == 1 && one.error.contains("is called 1-9"))
        #expect(try await hapax.run("dead-letters", "list", "--json").jsonLines.compactMap { $0["number"] as? String } == ["1-1", "1-3"])
        #expect(try await hapax.run("dead-letters", "purge", "--all", "--yes", "--json").json["purged_dead_letters"] as? Int == 2)
        #expect(try await hapax.run("status", "--json").json["dead_lettered"] as? Int == 3, "they stay counted")
    }

    @Test("list and show tell an event whose bytes changed on the disk apart from the others (I3, I11)")
    func changedEventIsTold() async throws {
        var ids: [String] = []
        for name in 0..<3 {
            ids.append(try #require(try await hapax.run("track", "e\(name)", "--no-flush", "--json").json["event_id"] as? String))
        }
        let file = try QueueFile(try FileClaim(1, in: QueueDirectory(path: hapax.queue)), durability: .process)
        try file.transaction { db, _ in try db.execute(sql: "UPDATE events SET payload = CAST('{}' AS BLOB) WHERE sequence = 2") }
        file.close()
        let list = try await hapax.run("queue", "list", "--json")
        #expect(list.status == 0 && list.jsonLines.compactMap { $0["event_id"] as? String } == [ids[0], ids[2]])
        #expect(list.error.contains("1-2: the event's bytes changed on the disk"))
        let show = try await hapax.run("queue", "show", ids[1])
        #expect(show.status == 1)
    }

    /// - Parameter whole: How many bytes of a queue's file are left: none, or the header by which it is known for a database.
    @Test("purge: deletes what waits in every file that nobody holds, keeps dead letters, and the server is told (I12)")
    func purgeDeletesWhatWaits() async throws {
        let holder = try hapax.client()
        try await holder.track(0..<2)
        for name in ["one", "two", String(repeating: "n", count: 201)] { _ = try await hapax.run("track", name, "--no-flush") }
        #expect(try await hapax.run("queue", "purge").status == 64, "nobody to ask")
        let purge = try await hapax.run("queue", "purge", "--yes", "--json")
        #expect(purge.status == 75 && purge.json["purged"] as? Int == 2 && purge.json["owned_files"] as? Int == 1)
        await holder.client.shutdown(within: .zero)
        let rest = try await hapax.run("queue", "purge", "--with-dead-letters", "--yes", "--json")
        #expect(rest.status == 0 && rest.json["purged"] as? Int == 2 && rest.json["purged_dead_letters"] as? Int == 1)
        let status = try await hapax.run("status", "--json").json
        #expect(status["waiting"] as? Int == 0 && status["dropped"] as? [String: Int] == ["purged": 4])
        let counts = try ["created", "dead_lettered", "removed"].map { try #require(status[$0] as? Int) }
        #expect(counts[0] == counts[1] + counts[2], "the books add up")
        #expect(try await hapax.run("flush").status == 0)
        let told = server.batches.map(\.scanned.envelope.removed).flatMap { $0.map(\.reason) }
        #expect(told.sorted() == ["name_too_long", "purged", "purged"] && server.stored.isEmpty)
    }

    @Test("a file of a later version is named, left as it is, and in nobody's way; one of an earlier version makes all of it be refused")
    func otherVersionsAreLeft() async throws {
        #expect(try await hapax.run("track", "one", "--no-flush").status == 0)
        let file = hapax.queue + "/1.sqlite"
        try await DatabaseQueue(path: file).write { try $0.execute(sql: "PRAGMA user_version = 99") }
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        for command in [["status"], ["queue", "list"], ["queue", "purge", "--yes"]] {
            let output = try await hapax.start(command).finish()
            #expect(output.status == 1 && (output.out + output.error).contains("newer version"), "\(command)")
        }
        let beside = try await hapax.run("track", "two", "--json")
        #expect(beside.status == 0 && beside.json["delivered"] as? Bool == true)
        let flush = try await hapax.run("flush", "--json")
        #expect(flush.status == 1 && flush.json["unusable_files"] as? Int == 1)
        #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == bytes)
        try Data().write(to: URL(fileURLWithPath: hapax.queue + "/queue.sqlite"))
        let output = try await hapax.run("track", "three", "--no-flush")
        #expect(output.status == 1 && output.error.contains("an earlier version"))
    }
}
