import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What a command says and how it exits when something around it is broken.
@Suite("hapax, in bad surroundings", .endsWhenItHangs)
struct CommandFailureTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    @Test(
        "standard output on a full disk: exit 74, and the event is stored all the same",
        arguments: [["track", "x"], ["status"], ["flush"], ["--help"], ["help", "track"], ["--generate-completion-script", "bash"]])
    func fullOutputIsAnError(arguments: [String]) async throws {
        let full = try FileHandle(forWritingTo: URL(fileURLWithPath: "/dev/full"))
        let output = try await hapax.start(arguments, output: full).finish()
        #expect(output.status == 74)
        #expect(output.error.contains("standard output cannot be written"))
        #expect(server.stored.count == (arguments[0] == "track" ? 1 : 0))
    }

    @Test(
        "where nobody reads standard error a command does its work, and exits as it would",
        arguments: [(["flush"], 2), (["track", "x"], 0), (["track", ""], 3), (["track", "x", "--id", "1"], 64)])
    func closedErrorsChangeNothing(arguments: [String], status: Int) async throws {
        #expect(try await hapax.run("track", "waits", "--no-flush").status == 0)
        server.change { $0.failuresLeft = .max }
        let pipe = Pipe()
        try pipe.fileHandleForReading.close()
        let process = try ChildProcess(
            "/bin/sh", ["-c", #"exec "$0" "$@" 2>&1 >/dev/null"#, try PackageLayout.executable("hapax")] + arguments,
            environment: ["HAPAX_SERVER": hapax.server, "HAPAX_KEY": "secret-key", "HAPAX_QUEUE": hapax.queue],
            output: .duplicate(pipe.fileHandleForWriting.fileDescriptor))
        #expect(await process.waitUntilExit() == .exited(Int32(status)))
    }

    @Test("an argument that is not UTF-8 is refused: repaired, two keys would be one, and the second event taken for the first (I1)")
    func argumentsAreUTF8() async throws {
        for key in ["\\376", "\\377"] {
            // Standard error alone, of which the end can be waited for then.
            let script = #"exec "$0" track e --derive-id "$(printf '\#(key)')" 2>&1 >/dev/null"#
            let process = try ChildProcess(
                "/bin/sh", ["-c", script, try PackageLayout.executable("hapax")],
                environment: ["HAPAX_SERVER": hapax.server, "HAPAX_KEY": "secret-key", "HAPAX_QUEUE": hapax.queue])
            let errors = await process.remainingLines()
            #expect(await process.waitUntilExit() == .exited(64))
            #expect(errors.contains { $0.contains("argument 4 is not UTF-8") })
        }
        #expect(server.stored.count == 0)
        #expect(try await hapax.run("track", "e", "--derive-id", "é").status == 0, "control")
        #expect(server.stored.count == 1)
    }

    @Test("standard output that does not block, as a parent in Node opens it, is waited for: nothing is left out, exit 0 (C18)")
    func nonBlockingOutputIsWaitedFor() async throws {
        let arguments = ["--generate-completion-script", "bash"]
        let whole = try await hapax.start(arguments).finish().out
        let pipe = Pipe()
        let writing = pipe.fileHandleForWriting.fileDescriptor
        #expect(fcntl(writing, F_SETFL, fcntl(writing, F_GETFL) | O_NONBLOCK) == 0)
        // Filled but for one page, so that the text does not fit.
        let capacity = 65_536
        let filling = [UInt8](repeating: 0x23, count: capacity - 4_096)
        #expect(whole.utf8.count > 8_192 && write(writing, filling, filling.count) == filling.count)
        let (process, finish) = try hapax.start(arguments, output: pipe.fileHandleForWriting)
        // It has met a full pipe, and must be there still.
        var count: Int32 = 0
        while count < capacity, process.isRunning, ioctl(writing, UInt(FIONREAD), &count) == 0 { await Task.yield() }
        try pipe.fileHandleForWriting.close()
        let read = pipe.fileHandleForReading
        let out = try await blocking { try read.readToEnd() ?? Data() }
        #expect(String(decoding: out.dropFirst(filling.count), as: UTF8.self) == whole)
        #expect(await finish().status == 0)
    }

    @Test("a reader that is gone ends a command quietly")
    func closedOutputEndsQuietly() async throws {
        let pipe = Pipe()
        try pipe.fileHandleForReading.close()
        let output = try await hapax.start(["status"], output: pipe.fileHandleForWriting).finish()
        // By the signal itself, or by the error if the signal is ignored.
        #expect([SIGPIPE, 128 + SIGPIPE].contains(output.status))
        #expect(output.error == "")
        let ignoring = try ChildProcess(
            "/bin/sh", ["-c", #"trap '' PIPE; exec "$0" status"#, try PackageLayout.executable("hapax")],
            environment: ["HAPAX_QUEUE": hapax.queue], output: .duplicate(pipe.fileHandleForWriting.fileDescriptor))
        #expect(await ignoring.waitUntilExit() == .exited(128 + SIGPIPE))
    }

    @Test(
        "a queue that cannot be looked at is not one that does not exist yet",
        arguments: [
            ["status"], ["queue", "list"], ["queue", "purge", "--yes"], ["dead-letters", "list"], ["dead-letters", "export"],
            ["dead-letters", "purge", "--all", "--yes"],
        ])
    func unreachableQueueIsAFailure(arguments: [String]) async throws {
        try Data().write(to: URL(fileURLWithPath: hapax.queue))
        let output = try await hapax.start(arguments).finish()
        #expect(output.status == 1)
        #expect(output.error.contains("Not a directory"))
        #expect(output.out == "")
    }

    @Test("a command that stores says what is in the way of its queue's directory", arguments: ["", "/below"])
    func impossibleDirectoryIsNamed(path: String) async throws {
        try Data().write(to: URL(fileURLWithPath: hapax.queue))
        let output = try await hapax.start(["track", "x", "--no-flush", "--queue", hapax.queue + path]).finish()
        #expect(output.status == 1 && output.error.contains("the queue cannot be used: Not a directory"))
    }

    @Test(
        "an answer that lacks what was asked for is no table without rows: exit 1",
        arguments: ["series", "breakdown plan", "funnel a b", "retention"])
    func foreignAnswerIsNoEmptyTable(report: String) async throws {
        let body = #"{"time_zone":"UTC","basis":"all","as_of":"now","final":true,"late":0,"ahead":0,"warnings":[]}"#
        let server = try LoopbackServer { _ in .answer("HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)") }
        let options = ["--server", "http://127.0.0.1:\(server.port)", "--read-key", "key-to-read"]
        for format in [[], ["--json"]] {
            let output = try await hapax.start(["report"] + report.split(separator: " ").map(String.init) + options + format).finish()
            #expect(output.status == 1 && output.error.contains("no answer of a Hapax server") && output.out.isEmpty, "\(output)")
        }
    }

    @Test("a property whose value is not JSON is named, its value is not repeated (I14)", arguments: [#"card:={"number":4711"#, "4711"])
    func invalidPropertyIsNotEchoed(property: String) async throws {
        let output = try await hapax.run("track", "x", "--property", property)
        #expect(output.status == 64)
        #expect(!output.error.contains("4711"))
        #expect(output.error.contains(property.hasPrefix("card") ? "'card'" : "name=text"))
    }

    @Test(
        "an integer keeps all its digits (I3)",
        arguments: ["9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "12345678901234567890123"])
    func integersAreNotRounded(number: String) async throws {
        #expect(try await hapax.run("track", "x", "--property", "n:=\(number)").status == 0)
        #expect(server.stored.values.map { String(decoding: $0, as: UTF8.self).contains(#""n":\#(number)}"#) } == [true])
    }

    @Test("retrying a dead letter that does not exist says so and fails; the others are retried")
    func unknownLetterIsNamed() async throws {
        #expect(try await hapax.run("dead-letters", "retry", "1-7").status == 1)
        server.change { $0.isRefused = { _ in true } }
        #expect(try await hapax.run("track", "x").status == 3)
        let output = try await hapax.run("dead-letters", "retry", "1-1", "1-7", "--json")
        #expect(output.status == 1)
        #expect(output.json["retried"] as? Int == 1)
        #expect(output.error.contains("is called 1-7"))
        #expect(try await hapax.run("track", "").status == 3)
        let twice = try await hapax.run("dead-letters", "retry", "1-2", "1-2", "--json")
        #expect(twice.json["unfit"] as? Int == 1, "there is one, however often it is named")
    }

    @Test("a dead letter of the same id from before says nothing about an event that is tracked now", arguments: [true, false])
    func oldLetterIsNotThisEvents(isSent: Bool) async throws {
        func track(_ name: String) async throws -> CommandLine.Output {
            let id = "01980000-0000-7000-8000-00000000f001"
            return try await hapax.run("track", name, "--id", id, "--json", isSent ? "--power" : "--no-flush")
        }
        for _ in 0..<2 { #expect(try await track("").status == 3) }
        let output = try await track("good")
        #expect(output.status == 0 && output.json["delivered"] as? Bool == isSent && output.json["dead_letter"] is NSNull)
        #expect(server.stored.count == (isSent ? 1 : 0))
    }

    @Test("an event whose bytes changed on the disk is one dead letter more for the flush that meets it: exit 3")
    func damagedEventIsADeadLetter() async throws {
        #expect(try await hapax.run("track", "e", "--property", "key=AAAAAAAA", "--no-flush").status == 0)
        let path = hapax.queue + "/1.sqlite"
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
        let text = Array("AAAAAAAA".utf8)
        let place = try #require((0..<bytes.count - 8).first { Array(bytes[$0..<$0 + 8]) == text })
        bytes[place] = UInt8(ascii: "B")
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        let flush = try await hapax.run("flush", "--json")
        #expect(flush.status == 3 && flush.json["dead_lettered"] as? Int == 1)
        #expect(server.stored.count == 0)
    }
}
