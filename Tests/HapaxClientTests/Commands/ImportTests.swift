import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

/// What interrupts an import, and what it finds when it goes on.
@Suite("hapax import, interrupted and resumed", .endsWhenItHangs)
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
        #expect(output.json["rejected"] as? Int == 0)
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

    /// Interrupts an import once so many batches have been answered and the next one is on its way.
    private func interrupt(_ path: String, batches: Int) async throws {
        let (known, requests) = (server.batches.count, server.change { $0.requests })
        server.change { $0.silentAfter = known + batches }
        let (process, finish) = try hapax.start(["import", path])
        await server.requests(requests + batches + 1)
        process.kill(SIGINT)
        let output = await finish()
        #expect(output.status == 128 + SIGINT, "\(output)")
        server.change { $0.silentAfter = nil }
    }

    @Test("an import goes on only to the server and with the key that it began with, and only if what it has read is as it was (I1)")
    func noteIsOfItsOwnImport() async throws {
        let path = try write(lines(0..<1_000).joined(separator: "\n") + "\n")
        try await interrupt(path, batches: 1)
        let note = try Data(contentsOf: URL(fileURLWithPath: path + ".hapax-import"))
        let otherKey = try await hapax.run("import", path, "--key", "another-key", "--json")
        #expect(otherKey.json["resumed_after_line"] as? Int == 0 && otherKey.error.contains("with another key"))
        #expect(!FileManager.default.fileExists(atPath: path + ".hapax-import"), "there is none once it is done")
        try note.write(to: URL(fileURLWithPath: path + ".hapax-import"))
        #expect(try await hapax.run("import", path, "--json").json["resumed_after_line"] as? Int ?? 0 > 0, "control")
        try note.write(to: URL(fileURLWithPath: path + ".hapax-import"))
        _ = try write(lines(0..<1_000, text: "y").joined(separator: "\n") + "\n", in: path)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.json["resumed_after_line"] as? Int == 0)
        #expect((output.json["started_over"] as? String)?.contains("the file has changed") == true)
        #expect((0..<1_000).allSatisfy { server.stored[EventID.derived(name: "y", key: "\($0)")] != nil })
    }

    @Test("lines are rejected once, though a run was killed between writing them and noting it; a run that goes on remembers them (I1)")
    func rejectedLinesAreWrittenOnce() async throws {
        let path = try write("bad\n" + lines(0..<1_000).joined(separator: "\n") + "\nbad too\n")
        try await interrupt(path, batches: 1)
        let file = FileHandle(forWritingAtPath: path + ".rejected")
        try file?.seekToEnd()
        try file?.write(contentsOf: Data("{\"line\": half of".utf8))
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 3 && output.json["rejected"] as? Int == 2)
        let rejected = try String(contentsOfFile: path + ".rejected", encoding: .utf8).split(separator: "\n")
        #expect(rejected.count == 2 && rejected[0].contains(#""line":1,"#) && rejected[1].contains(#""line":1002,"#))
    }

    @Test(
        "what became a dead letter before an import was interrupted counts in the run that goes on: 3 and never 0 (C6)",
        arguments: [true, false])
    func deadLettersAreRemembered(isDeliveredByFlush: Bool) async throws {
        let path = try write(lines(0..<6_000).joined(separator: "\n") + "\n")
        server.change { $0.isRefused = { $0.time < 50 } }
        try await interrupt(path, batches: isDeliveredByFlush ? 0 : 2)
        if isDeliveredByFlush { #expect(try await hapax.run("flush").status == 3) }
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 3 && output.json["dead_lettered"] as? Int == 50, "\(output)")
        #expect(output.json["resumed_after_line"] as? Int ?? 0 > 0 && output.json["complete"] as? Bool == true)
        #expect(server.stored.count == 5_950)
        // Put back and delivered, they are no dead letters any more.
        #expect(try await hapax.run("dead-letters", "purge", "--all", "--yes").status == 0)
        try await interrupt(path, batches: 2)
        server.change { $0.isRefused = { _ in false } }
        #expect(try await hapax.run("dead-letters", "retry", "--all").status == 0)
        let cleared = try await hapax.run("import", path, "--json")
        #expect(cleared.status == 0 && cleared.json["dead_lettered"] as? Int == 0 && server.stored.count == 6_000, "\(cleared)")
    }

    @Test("what an import waits for without end, as for a disk that hangs, a second signal ends (C19)", arguments: [SIGINT, SIGTERM])
    func secondSignalEndsAHang(signal: Int32) async throws {
        try FileManager.default.createDirectory(atPath: hapax.queue, withIntermediateDirectories: false)
        // Nobody reads it: to open it for writing waits for ever.
        #expect(mkfifo(hapax.queue + "/import.rejected", 0o600) == 0)
        let pipe = Pipe()
        try pipe.fileHandleForWriting.write(contentsOf: Data((lines(0..<1)[0] + "\n").utf8))
        let (process, finish) = try hapax.start(["import", "-"], openInput: pipe)
        await server.requests(1)
        try pipe.fileHandleForWriting.write(contentsOf: Data("rejected\n".utf8))
        var left: Int32 = 1
        while left > 0, ioctl(pipe.fileHandleForWriting.fileDescriptor, UInt(FIONREAD), &left) == 0 { await Task.yield() }
        while process.isRunning {
            process.kill(signal)
            await Task.yield()
        }
        #expect(await finish().status == 128 + signal)
        try pipe.fileHandleForWriting.close()
    }

    @Test("a note that cannot be read is not one that is not there: the import begins at the first line, and says why (C6)")
    func unreadableNoteIsNamed() async throws {
        let path = try write(lines(0..<3).joined(separator: "\n") + "\n")
        try FileManager.default.createDirectory(atPath: path + ".hapax-import", withIntermediateDirectories: false)
        let output = try await hapax.run("import", path, "--json")
        #expect((output.json["started_over"] as? String)?.contains("cannot be read") == true && server.stored.count == 3, "\(output)")
        // All is delivered, but the next import of the file would begin anywhere.
        #expect(output.status == 1 && (output.json["failure"] as? String)?.contains("cannot be removed") == true, "\(output)")
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
        #expect(output.status == 0 && server.stored.count == 1_000, "what the one before has read is in the queue")
    }

    @Test("the unfinished last line of a file is left for the next run, which delivers it (I1)")
    func unfinishedLineIsLeft() async throws {
        let text = lines(0..<3).joined(separator: "\n")
        // Once within a text, once behind the properties' brace.
        let path = try write(String(text.dropLast(1)) + #","properties":{}"#)
        #expect(try await hapax.run("import", path).status == 2)
        _ = try write(String(text.dropLast(20)), in: path)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 2)
        #expect((output.json["failure"] as? String)?.contains("unfinished") == true)
        #expect(server.stored.count == 2)
        #expect(!FileManager.default.fileExists(atPath: path + ".rejected"))
        _ = try write(text, in: path)
        let finished = try await hapax.run("import", path, "--json")
        #expect(finished.status == 0, "a whole object needs no end of line")
        #expect(finished.json["resumed_after_line"] as? Int == 2)
        #expect(server.stored.count == 3)
        _ = try write("{}", in: path)
        #expect(try await hapax.run("import", path).status == 3, "a whole object that is no event is rejected")
    }

    @Test("where nothing goes on, as on an idle pipe, no line of progress says the same once more")
    func idleProgressIsSilent() {
        let progress = ImportProgress(size: nil, isTerminal: false)
        #expect(progress.nextText() == nil)
        progress.update(ImportCounts(lines: 1, stored: 1))
        #expect(progress.nextText() != nil && progress.nextText() == nil)
    }

    @Test("a byte order mark before the first line is skipped")
    func byteOrderMarkIsSkipped() async throws {
        let path = try write("\u{FEFF}" + lines(0..<2).joined(separator: "\n") + "\n")
        #expect(try await hapax.run("import", path).status == 0)
        #expect(server.stored.count == 2)
    }
}
