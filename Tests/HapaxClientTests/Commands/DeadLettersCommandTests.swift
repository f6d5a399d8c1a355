import Foundation
import HapaxModel
import Testing

@testable import HapaxClient

@Suite("hapax dead-letters", .timeLimit(.minutes(20)))
struct DeadLettersCommandTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    /// Letters numbered from 1, made of lines that are no events.
    private func makeLetters(_ count: Int) async throws {
        let input = (1...count).map { "bad \($0)" }.joined(separator: "\n")
        #expect(try await hapax.run("import", "-", input: input).status == 3)
    }

    private var file: String { hapax.queue + "/queue.sqlite" }

    /// So many bytes of the queue's file become noise.
    private func spoil(_ count: Int, at offset: Int) throws {
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        try handle.seek(toOffset: UInt64(offset))
        try handle.write(contentsOf: Data(repeating: 0xFF, count: count))
        try handle.close()
    }

    @Test("list goes page by page, and export tells all of them, however many they are")
    func pagesAreWhole() async throws {
        try await makeLetters(1_001)
        let page = try await hapax.run("dead-letters", "list", "--after", "8", "--limit", "3", "--json")
        #expect(page.jsonLines.compactMap { $0["number"] as? Int } == [9, 10, 11])
        let export = try await hapax.run("dead-letters", "export")
        #expect(export.jsonLines.compactMap { $0["text"] as? String } == (1...1_001).map { "bad \($0)" })
    }

    @Test(
        "what a damaged file held is retried and purged with the rest: 0 is no answer where 293 come back later (I12)",
        arguments: ["retry", "purge"])
    func damagedLettersAreDealtWith(command: String) async throws {
        try await makeLetters(300)
        // A page of them.
        let text = Array("bad 150".utf8)
        let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        let place = try #require((0..<bytes.count - text.count).first { Array(bytes[$0..<$0 + text.count]) == text })
        try spoil(200, at: place / 4_096 * 4_096)
        let arguments = command == "retry" ? ["retry", "--all"] : ["purge", "--all", "--yes"]
        let output = try await hapax.start(["dead-letters"] + arguments + ["--json"]).finish()
        #expect(output.status == (command == "retry" ? 3 : 0))
        let count = try #require(output.json[command == "retry" ? "unfit" : "purged_dead_letters"] as? Int)
        #expect((200..<300).contains(count))
        #expect(try await hapax.run("flush").status == 0)
        let left = try await hapax.run("status", "--json").json["dead_letters"] as? Int
        #expect(left == (command == "retry" ? count : 0))
    }

    @Test("where a damaged file may hold more, list and export say so and fail, and purge asks about all of them (I12)")
    func hiddenLettersAreAskedFor() async throws {
        try await makeLetters(300)
        try spoil(90, at: 0)
        // Sets the file aside, as a command that ended before it had taken anything over.
        let queue = try EventQueue.open(hapax.queue, whenTaken: .refuse, durability: .process, clock: SystemClock())
        queue.close()
        for command in ["list", "export"] {
            let output = try await hapax.run("dead-letters", command)
            #expect(output.status == 1 && output.error.contains("these are not all"))
        }
        // As after a kill between the two.
        for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: file + suffix) }
        let purge = try await hapax.run("dead-letters", "purge", "--all", "--yes", "--json")
        #expect(purge.status == 0 && purge.json["purged_dead_letters"] as? Int == 300)
        #expect(try await hapax.run("dead-letters", "list").status == 0)
    }

    @Test("track tells of its dead letter also where those of a damaged file are still to come (I12)")
    func letterIsToldBesideDamage() async throws {
        try await makeLetters(300)
        try spoil(90, at: 0)
        let track = try await hapax.run("track", String(repeating: "n", count: 201), "--no-flush", "--json")
        #expect(track.status == 3 && track.json["dead_letter"] as? String == "name_too_long")
    }

    @Test("retry puts back the one that is named, and no other")
    func retryIsOfTheNamed() async throws {
        server.change { $0.isRefused = { _ in true } }
        for _ in 1...2 { #expect(try await hapax.run("track", "e").status == 3) }
        let retried = try await hapax.run("dead-letters", "retry", "2", "--json")
        #expect(retried.status == 0 && retried.json["retried"] as? Int == 1)
        #expect(try await hapax.run("dead-letters", "list", "--json").json["number"] as? Int == 1)
        #expect(try await hapax.run("status", "--json").json["depth"] as? Int == 1)
    }
}
