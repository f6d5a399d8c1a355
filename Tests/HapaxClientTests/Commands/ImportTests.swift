import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What interrupts an import, and what it finds when it goes on.
@Suite("hapax import, interrupted and resumed", .timeLimit(.minutes(20)))
struct ImportTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func lines(_ range: Range<Int>, text: String = "x") -> [String] {
        range.map {
            #"{"event_id":"\#(EventID.derived(name: text, key: "\($0)"))","event":"\#(text)","time":\#($0),"distinct_id":"u"}"#
        }
    }

    private func letters() async throws -> [String] {
        try await hapax.run("dead-letters", "list", "--json").out.split(separator: "\n").map(String.init)
    }

    @Test("a signal in the middle of a line buries no part of it (I1, I2)", arguments: [SIGINT, SIGTERM])
    func signalInsideALine(signal: Int32) async throws {
        let pipe = Pipe()
        let lines = lines(0..<501)
        let text = lines[..<500].joined(separator: "\n") + "\n" + lines[500].prefix(60)
        try pipe.fileHandleForWriting.write(contentsOf: Data(text.utf8))
        let (process, finish) = try hapax.start(["import", "-", "--json"], openInput: pipe)
        await server.requests(1)
        // All of it has been read once the pipe is empty.
        let deadline = ContinuousClock.now + .seconds(300)
        var left: Int32 = 1
        while left > 0, ContinuousClock.now < deadline {
            #expect(ioctl(pipe.fileHandleForWriting.fileDescriptor, UInt(FIONREAD), &left) == 0)
            await Task.yield()
        }
        #expect(left == 0)
        process.kill(signal)
        let output = await finish()
        #expect(output.status == 128 + signal)
        #expect(output.json["dead_lettered"] as? Int == 0)
        #expect(try await letters() == [])
        try pipe.fileHandleForWriting.close()
    }

    private func write(_ text: String, in place: String? = nil) throws -> String {
        let path = place ?? hapax.directory.path + "/events.ndjson"
        if place == nil { _ = FileManager.default.createFile(atPath: path, contents: nil) }
        try Self.overwrite(path, text)
        return path
    }

    /// In place: it stays the same file.
    private static func overwrite(_ path: String, _ text: String) throws {
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.write(contentsOf: Data(text.utf8))
        try handle.truncate(atOffset: UInt64(text.utf8.count))
        try handle.close()
    }

    /// A file that holds `before` until its first batch is under way, and `after` from then on.
    ///
    /// - Parameter isNew: Whether it is another file that gets the name then, as editors do it.
    private func changing(_ before: [String], to after: [String], isNew: Bool = false) throws -> String {
        let path = try write(before.joined(separator: "\n") + "\n")
        let later = Locked<String?>(after.joined(separator: "\n") + "\n")
        server.change { state in
            state.isRefused = { _ in
                let text = later.withLock { text in
                    defer { text = nil }
                    return text
                }
                guard let text else { return false }
                #expect(throws: Never.self) {
                    guard isNew else { return try Self.overwrite(path, text) }
                    try Data(text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
                }
                return false
            }
        }
        return path
    }

    @Test(
        "a file that is written anew during its import is not complete; the next run delivers all of it (I1)",
        arguments: [600, 1_000, 1_400], [false, true])
    func changedFileIsNotComplete(later: Int, isNew: Bool) async throws {
        let path = try changing(lines(0..<1_000), to: lines(0..<later, text: "y"), isNew: isNew)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 2 && output.json["complete"] as? Bool == false)
        #expect((output.json["failure"] as? String)?.contains("changed") == true)
        #expect(try await hapax.run("import", path, "--json").status == 0)
        #expect((0..<later).allSatisfy { server.stored[EventID.derived(name: "y", key: "\($0)")] != nil })
    }

    @Test("an interrupted import of a file that was written anew meanwhile begins at its first line (I1)")
    func checkpointIsOfWhatWasRead() async throws {
        let path = try changing(lines(0..<1_000), to: lines(0..<1_000, text: "y"))
        try await interrupt(path, batches: 1)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 0 && output.json["resumed_after_line"] as? Int == 0)
        #expect((0..<1_000).allSatisfy { server.stored[EventID.derived(name: "y", key: "\($0)")] != nil })
    }

    @Test("lines that are added during an import change nothing of what it has read")
    func longerFileIsComplete() async throws {
        let path = try changing(lines(0..<1_000), to: lines(0..<1_400))
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 0 && output.json["stored"] as? Int ?? 0 >= 1_000)
    }

    /// Interrupts an import once so many batches have been answered and the next one is on its way.
    private func interrupt(_ path: String, batches: Int) async throws {
        server.change { $0.silentAfter = batches }
        let (process, finish) = try hapax.start(["import", path])
        await server.requests(batches + 1)
        process.kill(SIGINT)
        #expect(await finish().status == 128 + SIGINT)
        server.change { $0.silentAfter = nil }
    }

    @Test("an import goes on only to the server and with the key that it began with (I1)")
    func checkpointBelongsToServerAndKey() async throws {
        let path = try write(lines(0..<1_000).joined(separator: "\n") + "\n")
        try await interrupt(path, batches: 1)
        let other = try IngestStandIn()
        let elsewhere = try await hapax.run("import", path, "--server", other.url, "--json")
        #expect(elsewhere.status == 0)
        #expect(other.stored.count == 1_000)
        let otherKey = try await hapax.run("import", path, "--key", "another-key", "--json")
        #expect(otherKey.json["resumed_after_line"] as? Int == 0)
        #expect(try await hapax.run("import", path, "--json").json["resumed_after_line"] as? Int == 500)
        #expect(server.stored.count == 1_000)
    }

    @Test("one event changed in place, far before the checkpoint, is not skipped (I1)")
    func changedBeginningBeginsAgain() async throws {
        var lines = lines(0..<1_000)
        let path = try write(lines.joined(separator: "\n") + "\n")
        try await interrupt(path, batches: 1)
        lines[0] = self.lines(0..<1, text: "y")[0]
        _ = try write(lines.joined(separator: "\n") + "\n", in: path)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.json["resumed_after_line"] as? Int == 0)
        #expect(server.stored[EventID.derived(name: "y", key: "0")] != nil)
    }

    @Test("a bad line written in place of another one is another dead letter; the same one is not (I1)")
    func rewrittenBadLineIsAnotherLetter() async throws {
        let path = try write("bad line 1\n")
        #expect(try await hapax.run("import", path).status == 3)
        _ = try write("bad line 2\n", in: path)
        #expect(try await hapax.run("import", path).status == 3)
        #expect(try await hapax.run("import", path).status == 3)
        #expect(try await letters().count == 2)
        let export = try await hapax.run("dead-letters", "export").out
        #expect(export.contains("bad line 1") && export.contains("bad line 2"))
    }

    @Test("an import that goes on exits with 3 if its earlier part made dead letters", arguments: ["", "bad too\n"])
    func resumedImportRemembersItsDeadLetters(end: String) async throws {
        let count = end.isEmpty ? 0 : 1
        let path = try write("bad\n" + lines(0..<1_000).joined(separator: "\n") + "\n" + end)
        try await interrupt(path, batches: 1)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 3)
        #expect(output.json["resumed_after_line"] as? Int == 501)
        #expect(output.json["dead_lettered_before"] as? Int == 1)
        #expect(output.json["dead_lettered"] as? Int == count)
        #expect(try await letters().count == 1 + count)
    }

    @Test("an interrupted import goes on at the first line that is not settled, whatever is settled behind it (I1)")
    func unsettledLineIsNotPassed() async throws {
        server.change { ($0.retry, $0.silentAfter) = ((3, 1), 1) }
        var lines = lines(0..<10)
        lines[7] = "bad"
        let path = try write(lines.joined(separator: "\n") + "\n")
        let (process, finish) = try hapax.start(["import", path])
        await server.requests(2)
        process.kill(SIGINT)
        #expect(await finish().status == 128 + SIGINT)
        #expect(server.stored.count == 8)
        server.change { $0.silentAfter = nil }
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 3 && server.stored.count == 9)
        #expect(output.json["resumed_after_line"] as? Int == 3)
        #expect(output.json["dead_lettered_before"] as? Int == 0 && output.json["dead_lettered"] as? Int == 1)
        #expect(try await letters().count == 1)
    }

    @Test("--restart begins at the first line whatever an earlier run has left, as after the server's data was lost")
    func restartBeginsAgain() async throws {
        let path = try write(lines(0..<1_000).joined(separator: "\n") + "\n")
        try await interrupt(path, batches: 1)
        server.change { $0.stored = [:] }
        let output = try await hapax.run("import", path, "--restart", "--json")
        #expect(output.status == 0 && output.json["resumed_after_line"] as? Int == 0)
        #expect(output.json["stored"] as? Int == 1_000 && server.stored.count == 1_000)
    }

    @Test("a run with --restart that settles nothing is no reason to go on where the one before it stopped (I1)")
    func restartIsNotForgotten() async throws {
        let path = try write(lines(0..<1_000).joined(separator: "\n") + "\n")
        try await interrupt(path, batches: 1)
        server.change { ($0.stored, $0.silentAfter) = ([:], 0) }
        #expect(try await hapax.run("import", path, "--restart", "--give-up-after", "1").status == 2)
        server.change { $0.silentAfter = nil }
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 0 && output.json["resumed_after_line"] as? Int == 0)
        #expect(server.stored.count == 1_000)
    }

    @Test("--restart does nothing where it cannot undo what an earlier run has noted")
    func restartThatCannotIsTold() async throws {
        let path = try write(lines(0..<1_000).joined(separator: "\n") + "\n")
        try await interrupt(path, batches: 1)
        let notes = hapax.queue + "/import/"
        let note = notes + (try #require(try FileManager.default.contentsOfDirectory(atPath: notes).first))
        // Nobody unlinks a directory.
        try FileManager.default.removeItem(atPath: note)
        try FileManager.default.createDirectory(atPath: note, withIntermediateDirectories: false)
        let batches = server.batches.count
        let output = try await hapax.run("import", path, "--restart")
        #expect(output.status == 1 && output.error.contains("cannot be removed"))
        #expect(server.batches.count == batches)
    }

    @Test("the unfinished last line of a file is left for the next run, which delivers it (I1)")
    func unfinishedLineIsLeft() async throws {
        let text = lines(0..<3).joined(separator: "\n")
        let path = try write(String(text.dropLast(20)))
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 2)
        #expect((output.json["failure"] as? String)?.contains("unfinished") == true)
        #expect(server.stored.count == 2)
        #expect(try await letters() == [])
        _ = try write(text, in: path)
        let finished = try await hapax.run("import", path, "--json")
        #expect(finished.status == 0, "a whole object needs no end of line")
        #expect(finished.json["resumed_after_line"] as? Int == 2)
        #expect(server.stored.count == 3)
        _ = try write("{}", in: path)
        #expect(try await hapax.run("import", path).status == 3, "a whole object that is no event is a dead letter")
    }

    @Test("a byte order mark before the first line is skipped")
    func byteOrderMarkIsSkipped() async throws {
        let path = try write("\u{FEFF}" + lines(0..<2).joined(separator: "\n") + "\n")
        #expect(try await hapax.run("import", path).status == 0)
        #expect(server.stored.count == 2)
    }
}
