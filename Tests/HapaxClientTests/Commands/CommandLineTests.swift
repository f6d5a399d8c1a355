import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// Runs `hapax` as a shell would.
struct CommandLine {
    struct Output {
        var status: Int32
        var out: String
        var error: String

        /// The last line of standard output, read as JSON.
        var json: [String: Any] { jsonLines.last ?? [:] }

        var jsonLines: [[String: Any]] {
            out.split(separator: "\n").map { (try? JSONSerialization.jsonObject(with: Data($0.utf8))) as? [String: Any] ?? [:] }
        }
    }

    let directory = TemporaryDirectory()
    var server: String

    var queue: String { directory.path + "/queue" }

    /// - Parameters:
    ///   - input: What standard input holds, to its end.
    ///   - openInput: Standard input, if it is to stay open; without `input`.
    ///   - terminal: The same, for a terminal.
    ///   - output: Standard output, if it is not to be a file; ``Output/out`` is empty then.
    func start(
        _ arguments: [String], input: String? = nil, openInput: Pipe? = nil, terminal: FileHandle? = nil, output: FileHandle? = nil
    ) throws -> (process: ChildProcess, finish: @Sendable () async -> Output) {
        let files = ["in", "out", "error"].map { directory.path + "/\($0)-\(UUID().uuidString)" }
        _ = FileManager.default.createFile(atPath: files[0], contents: Data((input ?? "").utf8))
        // A shell redirects and then becomes the program: its number, and so its signals, stay.
        var script = #"exec "$0" "$@""#
        let open = openInput?.fileHandleForReading ?? terminal
        if open == nil { script += " <'\(files[0])'" }
        if output == nil { script += " >'\(files[1])'" }
        script += " 2>'\(files[2])'"
        let process = try ChildProcess(
            "/bin/sh", ["-c", script, try PackageLayout.executable("hapax")] + arguments,
            environment: ["HAPAX_SERVER": server, "HAPAX_KEY": "secret-key", "HAPAX_QUEUE": queue],
            input: open.map { .duplicate($0.fileDescriptor) },
            output: output.map { .duplicate($0.fileDescriptor) })
        return (
            process,
            {
                let status: Int32
                switch await process.waitUntilExit() {
                case .exited(let code): status = code
                case .signaled(let signal): status = signal
                }
                let read = { (path: String) in String(decoding: FileManager.default.contents(atPath: path) ?? Data(), as: UTF8.self) }
                return Output(status: status, out: read(files[1]), error: read(files[2]))
            }
        )
    }

    /// A client of this process on the same queue, for the same server and key.
    func client(configure: (inout EventClient.Configuration) -> Void = { _ in }) throws -> TestClient {
        try TestClient(directory: directory) {
            $0.server = EventClient.Configuration.url(server)
            $0.writeKey = "secret-key"
            configure(&$0)
        }
    }

    func run(_ arguments: String..., input: String? = nil) async throws -> Output {
        try await start(arguments, input: input).finish()
    }
}

@Suite("hapax, the command line", .endsWhenItHangs)
struct CommandLineTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func lines(_ range: Range<Int>) -> [String] {
        range.map {
            #"{"event_id":"\#(EventID.derived(name: "line", key: "\($0)"))", "event":"e","time":\#($0),"distinct_id":"u","x":[1 ]}"#
        }
    }

    private func file(_ lines: [String], name: String = "events.ndjson") throws -> String {
        let path = hapax.directory.path + "/" + name
        try Data((lines.joined(separator: "\n") + "\n").utf8).write(to: URL(fileURLWithPath: path))
        return path
    }

    // MARK: - track

    @Test("track delivers one event with typed properties")
    func trackDelivers() async throws {
        let output = try await hapax.run(
            "track", "sold", "--property", "host=db1", "-p", "n:=12", "-p", #"tags:=["a",null,1.5,true]"#, "--time",
            "2025-11-20T23:06:40Z", "--distinct-id", "u1", "--json")
        #expect(output.status == 0)
        #expect(output.json["delivered"] as? Bool == true)
        let event = try #require(server.batches.first?.scanned.events.first)
        #expect(event.id?.description == output.json["event_id"] as? String)
        #expect(String(decoding: event.properties, as: UTF8.self) == #"{"host":"db1","n":12,"tags":["a",null,1.5,true]}"#)
        #expect(event.time == 1_763_680_000_000)
        #expect(String(decoding: event.distinctID, as: UTF8.self) == "u1")
    }

    @Test(
        "a property is split at its first sign, whatever stands behind it (I3)",
        arguments: [
            ("a=\u{338}b=c", "{\"a\":\"\u{338}b=c\"}"), ("a=\u{301}", "{\"a\":\"\u{301}\"}"), ("x\u{600}=5", "{\"x\u{600}\":\"5\"}"),
            ("e\u{301}:=1", "{\"e\u{301}\":1}"), ("a:=\"\u{301}\"", "{\"a\":\"\u{301}\"}"), ("a==", "{\"a\":\"=\"}"),
        ])
    func propertiesAreSplitAtTheSign(property: String, json: String) async throws {
        #expect(try await hapax.run("track", "x", "-p", property).status == 0)
        let sent = try #require(server.batches.first?.scanned.events.first?.properties)
        #expect(sent.elementsEqual(json.utf8))
    }

    @Test(
        "two names that look the same and are not are refused: one of their values would vanish (I3)",
        arguments: [["-p", "\u{e9}=1", "-p", "e\u{301}=2"], ["-p", "x:={\"\u{e9}\":1,\"e\u{301}\":2}"]])
    func lookalikeNamesAreRefused(properties: [String]) async throws {
        #expect(try await hapax.start(["track", "x"] + properties).finish().status == 64)
        #expect(try await hapax.run("track", "x", "-p", "\u{e9}=1", "-p", "\u{e9}=2").status == 0, "the last of a name wins")
        #expect(server.stored.count == 1)
    }

    @Test("a derived id makes the same event each time (I2)")
    func derivedIDIsTheSameEvent() async throws {
        let first = try await hapax.run("track", "paid", "--derive-id", "4711")
        let second = try await hapax.run("track", "paid", "--derive-id", "4711")
        #expect(first.status == 0 && second.status == 0 && first.out == second.out)
        #expect(server.stored.count == 1 && server.batches.count == 2)
    }

    @Test("track under the id of another event that waits says that it is a conflict, exit 3; the same event again is none (I3)")
    func conflictIsToldByTrack() async throws {
        let id = "019a0000-0000-7000-8000-000000000001"
        for _ in 1...2 { #expect(try await hapax.run("track", "a", "--no-flush", "--id", id).status == 0) }
        let other = try await hapax.run("track", "b", "--no-flush", "--id", id)
        #expect(other.status == 3 && other.error.contains("conflict"))
        #expect(try await hapax.run("flush").status == 0)
        #expect(server.stored.count == 1)
    }

    @Test("what waits for another server or key is left alone, and sent once that one comes again (I9)")
    func otherKeysEventsAreLeft() async throws {
        #expect(try await hapax.run("track", "x", "--no-flush").status == 0)
        let other = try await hapax.run("track", "y", "--key", "other", "--json")
        #expect(other.json["delivered"] as? Bool == true && server.batches.flatMap(\.names) == ["y"])
        #expect(try await hapax.run("flush", "--json").json["stored"] as? Int == 1)
        #expect(server.batches.flatMap(\.names) == ["y", "x"])
        #expect(try await hapax.run("track", "z", "--no-flush").status == 0)
        let replacing = try await hapax.run("flush", "--key", "other", "--replaces", "\(server.url) secret-key", "--json")
        #expect(replacing.status == 0 && replacing.json["stored"] as? Int == 1 && server.stored.count == 3)
        for wrong in ["", "one two three", "not-a-url key"] { #expect(try await hapax.run("flush", "--replaces", wrong).status == 64) }
    }

    @Test("many at once all succeed, also while a process works in the directory; what is left is delivered by the next upload, once")
    func manyTracksAtOnce() async throws {
        let holder = try hapax.client()
        // Half of them while the server is away.
        server.change { $0.failuresLeft = 3 }
        let outputs = try await withThrowingTaskGroup(of: CommandLine.Output.self) { group in
            for index in 0..<6 { group.addTask { try await hapax.run("track", "cron \(index)", "--json") } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outputs.allSatisfy { $0.status == 0 })
        await holder.client.shutdown(within: .zero)
        server.change { $0.failuresLeft = 0 }
        #expect(try await hapax.run("flush").status == 0)
        #expect(Set(server.stored.keys.map(\.description)) == Set(outputs.compactMap { $0.json["event_id"] as? String }))
        #expect(try await hapax.run("status", "--json").json["waiting"] as? Int == 0)
    }

    @Test("while a server rests no track asks it again, whatever the note of that has become; flush does (I16)")
    func tracksLeaveAServerAlone() async throws {
        server.change { ($0.failuresLeft, $0.status) = (1, 401) }
        for name in ["one", "two"] {
            let track = try await hapax.run("track", name)
            #expect(track.status == 0 && track.error.contains("not delivered yet"), "also without an attempt")
        }
        #expect(server.stored.isEmpty && server.change { $0.requests } == 1)
        let pause = URL(filePath: hapax.queue + "/pause")
        let text = try String(contentsOf: pause, encoding: .utf8)
        try Data(text.replacing(#/"failures":\d+/#, with: #""failures":9223372036854775807"#).utf8).write(to: pause)
        server.change { ($0.failuresLeft, $0.status) = (1, 503) }
        #expect(try await hapax.run("flush").status == 2)
        #expect(try await hapax.run("flush").status == 0)
        #expect(server.stored.count == 2)
    }

    @Test("a server that is down costs nothing: stored, exit 0; flush says 2, then delivers")
    func trackSurvivesAnOutage() async throws {
        server.change { $0.failuresLeft = 2 }
        let track = try await hapax.run("track", "kept", "--json")
        #expect(track.status == 0)
        #expect(track.json["delivered"] as? Bool == false)
        #expect(try await hapax.run("flush").status == 2)
        let flush = try await hapax.run("flush", "--json")
        #expect(flush.status == 0)
        #expect(flush.json["stored"] as? Int == 1)
        #expect(server.stored.count == 1)
    }

    @Test("an event that the server refuses: flush exits with 3, delivers its neighbours, and there is nothing left to do (I8)")
    func refusedEventIsTold() async throws {
        server.change { $0.isRefused = { $0.time == 2 } }
        for time in 1...3 { #expect(try await hapax.run("track", "e", "--time", "\(time)", "--no-flush").status == 0) }
        let flush = try await hapax.run("flush", "--json")
        #expect(flush.status == 3 && server.stored.count == 2)
        #expect(flush.json["dead_lettered"] as? Int == 1 && flush.json["remaining"] as? Int == 0)
        #expect(try await hapax.run("flush").status == 0)
    }

    @Test("an event over a limit exits with 3 and is listed with its reason (I12)")
    func overLimitEventIsADeadLetter() async throws {
        let track = try await hapax.run("track", String(repeating: "n", count: 201))
        #expect(track.status == 3)
        let list = try await hapax.run("dead-letters", "list", "--json")
        #expect(list.json["reason"] as? String == "name_too_long")
        let retry = try await hapax.run("dead-letters", "retry", "--all", "--json")
        #expect(retry.status == 3 && retry.json["unfit"] as? Int == 1)
    }

    @Test(
        "wrong usage exits with 64 and says what is missing",
        arguments: [
            ["track"], ["track", "x", "-p", "novalue"], ["track", "x", "-p", "n:=nonsense"], ["track", "x", "--id", "1"],
            ["track", "x", "--server", "ftp://host"], ["dead-letters", "retry"], ["import"], ["flush", "--timeout", "0"],
            ["import", "x", "--give-up-after", "0"],
        ])
    func wrongUsageIsExplained(arguments: [String]) async throws {
        let output = try await hapax.start(arguments).finish()
        #expect(output.status == 64)
        #expect(output.error.contains("Error:"))
        #expect(server.batches.isEmpty)
    }

    @Test("no output holds the key (I14)")
    func keyIsNeverShown() async throws {
        server.change { ($0.failuresLeft, $0.status) = (9, 401) }
        for arguments in [["track", "x"], ["flush"], ["status"], ["track", "x", "--server", "nonsense"]] {
            let output = try await hapax.start(arguments).finish()
            #expect(!(output.out + output.error).contains("secret-key"))
        }
    }

    // MARK: - import

    @Test("an import keeps the bytes, adds nothing, and sends envelopes of 500 and then more; a second one stores nothing")
    func importKeepsTheBytes() async throws {
        let lines = lines(0..<1_201)
        let path = try file(lines)
        let first = try await hapax.run("import", path, "--json")
        #expect(first.status == 0)
        #expect(first.json["stored"] as? Int == 1_201)
        #expect(server.batches.map(\.ids.count) == [500, 701])
        let sent = server.batches.flatMap { $0.scanned.events.map { String(decoding: $0.wire, as: UTF8.self) } }
        #expect(sent == lines.enumerated().map { $1.dropLast() + ",\"sequence\":\($0 + 1)}" }, "completed by the sequence")
        let second = try await hapax.run("import", path, "--json")
        #expect(second.status == 0)
        #expect(second.json["stored"] as? Int == 0)
        #expect(second.json["duplicates"] as? Int == 1_201)
    }

    @Test("standard input is imported, too, with blank lines, CRLF and no end of line")
    func importReadsStandardInput() async throws {
        let lines = lines(0..<3)
        let output = try await hapax.run("import", "-", "--json", input: "\n\(lines[0])\r\n\n  \(lines[1])\n\(lines[2])")
        #expect(output.status == 0)
        #expect(server.stored.count == 3)
    }

    @Test("lines of which no event can be made go to FILE.rejected with number and reason, refused events to the dead letters; exit 3")
    func badLinesBecomeDeadLetters() async throws {
        server.change { $0.isRefused = { $0.time == 2 } }
        var lines = lines(0..<5)
        lines[1] = "not json"
        lines[3] = #"{"event":"no id","time":1,"distinct_id":"u"}"#
        let path = try file(lines)
        for _ in 0..<2 {
            let output = try await hapax.run("import", path, "--json")
            #expect(output.status == 3)
            #expect(output.json["dead_lettered"] as? Int == 1 && output.json["rejected"] as? Int == 2)
            let rejected = try String(contentsOfFile: path + ".rejected", encoding: .utf8).split(separator: "\n").suffix(2)
            let found = try rejected.map { try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]) }
            #expect(found.compactMap { $0["line"] as? Int } == [2, 4])
            #expect(found.compactMap { $0["reason"] as? String } == ["not_an_object", "missing_event_id"])
            #expect(found[0]["text"] as? String == "not json")
        }
        #expect(server.stored.count == 2)
    }

    @Test("an import waits for a server that is away, and goes on")
    func importSurvivesAnOutage() async throws {
        server.change { $0.failuresLeft = 2 }
        let output = try await hapax.run("import", try file(lines(0..<10)), "--json")
        #expect(output.status == 0)
        #expect(server.stored.count == 10)
    }

    @Test("a line that the server wants again is sent again, and no other is lost or repeated for it (I1)")
    func retriedLineIsSentAgain() async throws {
        server.change { $0.retry = (3, 2) }
        let lines = lines(0..<10)
        let output = try await hapax.run("import", try file(lines), "--json")
        #expect(output.status == 0)
        #expect(output.json["stored"] as? Int == 10)
        #expect(server.batches.map(\.ids.count) == [10, 1, 1] && server.stored.count == 10)
    }

    @Test("an import gives up when told to; a server that refuses the key ends it at once", arguments: [503, 401])
    func importGivesUp(status: Int) async throws {
        server.change { ($0.failuresLeft, $0.status) = (1_000, status) }
        let output = try await hapax.run("import", try file(lines(0..<10)), "--give-up-after", "1", "--json")
        #expect(output.status == 2)
        #expect(output.json["complete"] as? Bool == false)
        let impatience = status == 503 ? "nothing was delivered for 1 seconds: " : ""
        #expect(output.json["failure"] as? String == impatience + "status \(status), not an answer of an ingest server")
    }

    @Test("an interrupted import says so and goes on where it was", arguments: [SIGINT, SIGTERM])
    func interruptedImportGoesOn(signal: Int32) async throws {
        server.change { $0.silentAfter = 2 }
        let lines = lines(0..<2_000)
        let path = try file(lines)
        let (process, finish) = try hapax.start(["import", path, "--json"])
        await server.requests(3)
        process.kill(signal)
        let interrupted = await finish()
        #expect(interrupted.status == 128 + signal)
        #expect(interrupted.json["stored"] as? Int == 1_500)
        server.change { $0.silentAfter = nil }
        let resumed = try await hapax.run("import", path, "--json")
        #expect(resumed.status == 0)
        #expect(resumed.json["resumed_after_line"] as? Int ?? 0 >= 1_500)
        #expect(resumed.json["stored"] as? Int == 500, "what was stored in the queue is sent as well")
        #expect(server.stored.count == 2_000)
    }

    @Test("a line beyond every limit is cut and rejected, and the next line is read")
    func endlessLineIsBounded() async throws {
        let good = lines(0..<1)
        let path = try file([String(repeating: "x", count: 3 * 1024 * 1024)] + good)
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == 3)
        #expect(server.stored.count == 1)
        #expect(try String(contentsOfFile: path + ".rejected", encoding: .utf8).contains(#""reason":"event_too_large""#))
    }

    @Test("a file that cannot be read fails with 1")
    func unreadableFileFails() async throws {
        #expect(try await hapax.run("import", hapax.directory.path + "/none").status == 1)
        #expect(try await hapax.run("import", hapax.directory.path).status == 1)
    }
}
