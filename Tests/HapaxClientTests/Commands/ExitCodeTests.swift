import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// An exit code is a promise: each is held against a count of what the server has (docs/client-script.md has the table).
@Suite("hapax, what 0 promises (I1, I12)", .endsWhenItHangs)
struct ExitCodeTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func lines(_ range: Range<Int>, fill: Int = 0) -> String {
        let properties = #"{"fill":"\#(String(repeating: "x", count: fill))"}"#
        return range.map {
            #"{"event_id":"\#(EventID.derived(name: "line", key: "\($0)"))","event":"e","time":\#($0),"distinct_id":"u","properties":\#(properties)}"#
                + "\n"
        }.joined()
    }

    private func file(_ text: String, beside hapax: CommandLine) throws -> String {
        let path = hapax.directory.path("events.ndjson")
        try text.write(toFile: path, atomically: false, encoding: .utf8)
        return path
    }

    /// Stores part of a file's lines in the queue, and sends less of them.
    private func interruptedImport(of count: Int, _ hapax: CommandLine, _ server: IngestStandIn) async throws -> String {
        let path = try file(lines(0..<count), beside: hapax)
        server.change { $0.silentAfter = 1 }
        let (process, finish) = try hapax.start(["import", path])
        await server.requests(2)
        process.kill(SIGKILL)
        _ = await finish()
        server.change { $0.silentAfter = nil }
        #expect(server.stored.count < count && FileManager.default.fileExists(atPath: path + ".hapax-import"))
        return path
    }

    /// Runs through the shell, which can close descriptors.
    private func shell(_ script: String, home: String? = nil) async throws -> (status: ChildProcess.Exit, errors: [String]) {
        var environment = ["HAPAX_SERVER": hapax.server, "HAPAX_KEY": "secret-key"]
        if let home { environment["HOME"] = home } else { environment["HAPAX_QUEUE"] = hapax.queue }
        let process = try ChildProcess(
            "/bin/sh", ["-c", script, try PackageLayout.executable("hapax")], environment: environment)
        let errors = await process.remainingLines()
        return (await process.waitUntilExit(), errors)
    }

    @Test("flush: 0 for nothing, 2 for what is left, 3 for dead letters")
    func flushCounts() async throws {
        #expect(try await hapax.run("flush").status == 0)
        #expect(try await hapax.run("track", "e", "--no-flush").status == 0)
        server.change { $0.failuresLeft = 1 }
        let left = try await hapax.run("flush", "--json")
        #expect(left.status == 2 && left.json["remaining"] as? Int == 1)
        #expect(try await hapax.run("flush").status == 0 && server.stored.count == 1)
        server.change { $0.isRefused = { _ in true } }
        #expect(try await hapax.run("track", "e", "--no-flush").status == 0)
        #expect(try await hapax.run("flush").status == 3)
    }

    @Test("flush: what a damaged file has lost is no 0, and is counted for whoever asks later")
    func damageIsNoSuccess() async throws {
        let test = try hapax.client()
        try await test.track(0..<1_500)
        await test.client.shutdown(within: .zero)
        let path = hapax.queue + "/1.sqlite"
        let pages = try #require(DamagedPage.pages(of: path))
        for page in pages / 3..<2 * pages / 3 { try DamagedPage.make(in: path, page: page) }
        let flush = try await hapax.run("flush", "--json")
        let lost = try #require(flush.json["lost"] as? Int)
        #expect(flush.status == 2 && lost > 0 && flush.error.contains("\(lost) of its events are lost"))
        // The event that tells of the damage is one more.
        #expect(server.stored.count == 1_500 - lost + 1 && flush.json["remaining"] as? Int == 0)
        let status = try await hapax.run("status", "--json")
        #expect((status.json["dropped"] as? [String: Int]) == ["damaged": lost])
        #expect(flush.json["damaged_files"] as? Int == 1 && status.json["set_aside_files"] is Int)
        #expect(try await hapax.run("flush").status == 0, "it has been told")
    }

    @Test(
        "flush: a running process says what waits in its file, whether or not it has a timer; if it says nothing, nobody knows"
    )
    func ownersAreAsked() async throws {
        let holder = try hapax.client { $0.uploads.interval = nil }
        try await holder.track(0..<3)
        let waits = try await hapax.run("flush", "--json")
        #expect(waits.status == 2 && waits.json["remaining"] as? Int == 3)
        #expect(await holder.client.flush().stored == 3)
        let done = try await hapax.run("flush", "--json")
        #expect(done.status == 0 && done.json["remaining"] as? Int == 0 && done.error == "", "nothing waits there")
        let path = hapax.queue + "/1.status"
        try FileManager.default.removeItem(atPath: path)
        let silent = try await hapax.run("flush", "--json")
        #expect(silent.status == 2 && silent.json["remaining"] is NSNull)
        #expect(try await hapax.run("status").status == 2)
        await holder.client.shutdown(within: .zero)
    }

    @Test("flush: what waits for another server or key is counted and named, and sent once this one replaces it; an empty file is silence")
    func otherKeysAreCounted() async throws {
        for key in ["old", "hapax_w_AhyY-the-first", "hapax_w_AhyY-the-second"] {
            #expect(try await hapax.run("track", "e", "--key", key, "--no-flush").status == 0)
        }
        let flush = try await hapax.run("flush", "--json")
        #expect(flush.status == 2 && flush.json["remaining_for_others"] as? Int == 3 && flush.error.contains("hapax flush --replaces ID"))
        #expect(try await hapax.run("flush", "--replaces", "\(server.url) old").status == 2 && server.stored.count == 1)
        for (name, sentence) in [("hapax_w_Ahy", "no file of the queue is for"), ("hapax_w_AhyY…", "more than one destination is called")] {
            let unclear = try await hapax.run("flush", "--replaces", name)
            #expect(unclear.status == 2 && unclear.error.contains("\(sentence) \(name). There are: "), "\(unclear.error)")
        }
        // Two that begin alike are told apart by their ids.
        let status = try await hapax.run("status")
        let ids = status.out.matches(of: /^destination .*AhyY…\), id (\S+)/.anchorsMatchLineEndings()).map { String($0.1) }
        try #require(ids.count == 2, "\(status.out)")
        #expect(try await hapax.run("flush", "--replaces", ids[0]).status == 2 && server.stored.count == 2)
        // The line that is printed is the one that works.
        let hint = try await hapax.run("flush").error.firstMatch(of: /hapax flush --replaces (\S+);/)
        #expect(hint.map { String($0.1) } == ids[1])
        #expect(try await hapax.run("flush", "--replaces", ids[1]).status == 0 && server.stored.count == 3)
        // The right key begins like the mistyped one, and is not meant.
        #expect(try await hapax.run("track", "e", "--key", "hapax_w_AhyY-the-first", "--no-flush").status == 0)
        let right = try await hapax.run("flush", "--key", "hapax_w_AhyY-the-second", "--replaces", "hapax_w_AhyY")
        #expect(right.status == 0 && server.stored.count == 4, "\(right.error)")
        let after = try await hapax.run("flush")
        #expect(after.status == 0 && after.error == "")
    }

    @Test("flush: a file of another key that is damaged, unusable or held by a silent process is no 0 either")
    func otherKeysHideNothing() async throws {
        for trouble in ["damage", "unusable", "silent"] {
            let hapax = CommandLine(server: server.url)
            var holder: TestClient?
            if trouble == "silent" {
                holder = try hapax.client { $0.writeKey = "old" }
                try await holder?.track(0..<3)
                try FileManager.default.removeItem(atPath: hapax.queue + "/1.status")
            } else {
                #expect(try await hapax.run("track", "e", "--key", "old", "--no-flush").status == 0)
                let path = hapax.queue + "/1.sqlite"
                try FileManager.default.removeItem(atPath: path)
                if trouble == "damage" {
                    try Data(repeating: 0xA5, count: 8_192).write(to: URL(fileURLWithPath: path))
                } else {
                    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
                }
            }
            #expect(try await hapax.run("flush").status == (trouble == "unusable" ? 1 : 2), "\(trouble)")
            await holder?.client.shutdown(within: .zero)
        }
    }

    @Test("a status that cannot be written is taken away, and one that no owner wrote is not gone on with")
    func statusIsTheOwners() async throws {
        #expect(try await hapax.run("track", "e", "--no-flush").status == 0)
        let path = hapax.queue + "/1.status"
        try Data(repeating: 0x20, count: 1_000_000).write(to: URL(fileURLWithPath: path))
        #expect(try await hapax.run("track", "e", "--no-flush").status == 0)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)).count < 2_000)
        #expect(FileStatus.read(1, in: QueueDirectory(path: hapax.queue))?.waiting == 2)
    }

    @Test("import: 0 only if each line is delivered; goes on only with the queue that was given the lines, as it was")
    func importsAreWhole() async throws {
        for change in ["none", "another queue", "purge", "damage", "another process"] {
            let server = try IngestStandIn()
            let hapax = CommandLine(server: server.url)
            let path = try await interruptedImport(of: 3_000, hapax, server)
            var arguments = ["import", path, "--json"]
            var holder: TestClient?
            switch change {
            case "another queue": arguments += ["--queue", hapax.directory.path("another")]
            case "purge": #expect(try await hapax.run("queue", "purge", "--yes").status == 0)
            case "damage":
                for name in ["1.sqlite", "1.sqlite-wal"] {
                    try Data(repeating: 0xA5, count: 8_192).write(to: URL(fileURLWithPath: hapax.queue + "/" + name))
                }
            case "another process": holder = try hapax.client()
            default: break
            }
            let output = try await hapax.start(arguments).finish()
            #expect(output.status == 0 && output.json["complete"] as? Bool == true, "\(change)")
            #expect((output.json["resumed_after_line"] as? Int == 0) == (change != "none"), "\(change)")
            #expect(output.error.contains("begins at the first line all the same: a queue file") == (change != "none"), "\(change)")
            let ids = Set((0..<3_000).map { EventID.derived(name: "line", key: "\($0)") })
            #expect(ids.isSubset(of: server.stored.keys), "\(change)")
            await holder?.client.shutdown(within: .zero)
        }
    }

    @Test("import: a queue file that is damaged on the way is no 0; run again, it begins at the first line")
    func damageOnTheWayIsSeen() async throws {
        // More than SQLite keeps in memory, so that it reads what has been overwritten.
        let path = try file(lines(0..<5_000, fill: 1_000), beside: hapax)
        let isDamaged = Locked(false)
        server.change { [queue = hapax.queue] in
            $0.isRefused = { event in
                if event.time >= 2_000, isDamaged.withLock({ ($0, $0 = true).0 }) == false {
                    for name in ["1.sqlite", "1.sqlite-wal"] {
                        let path = queue + "/" + name
                        for page in 1..<max(DamagedPage.pages(of: path) ?? 1, 1) { try? DamagedPage.make(in: path, page: page) }
                    }
                }
                return false
            }
        }
        let output = try await hapax.run("import", path, "--json")
        #expect(isDamaged.withLock { $0 })
        #expect(output.status == 2 && output.json["complete"] as? Bool == false, "\(output)")
        #expect((output.json["failure"] as? String)?.contains("begins at the first line") == true)
        let again = try await hapax.run("import", path, "--json")
        #expect(again.status == 0 && again.json["resumed_after_line"] as? Int == 0)
        #expect(Set((0..<5_000).map { EventID.derived(name: "line", key: "\($0)") }).isSubset(of: server.stored.keys))
    }

    @Test("import: the first reasons of rejected lines are told with their numbers, and where all of them are; --version is known")
    func rejectionsAreExplained() async throws {
        let path = try file(lines(0..<1) + String(repeating: "{}\n", count: 5) + "nothing\n", beside: hapax)
        let output = try await hapax.run("import", path)
        #expect(output.status == 3 && output.error.contains("line 2: missing_event_id") && output.error.contains("line 4:"))
        #expect(!output.error.contains("line 5:") && output.error.contains(path + ".rejected"))
        #expect(try await hapax.run("--version").out == "\(HapaxVersion.current)\n")
    }

    @Test("import: a time in RFC 3339 arrives as Unix milliseconds, in the event that it is; one that is none is named with its line (C22)")
    func datedLinesAreTaken() async throws {
        let dated: KeyValuePairs<String, Int64?> = [
            "2026-11-25T09:00:00Z": 1_795_597_200_000, "2026-11-25T10:00:00.1239+01:00": 1_795_597_200_123,
            "2026-11-25t03:30:00.5-05:30": 1_795_597_200_500, "2026-11-25\\u005409:00:00Z": 1_795_597_200_000, "2026-11-25": nil,
            "2026-02-30T09:00:00Z": nil, "1969-12-31T23:59:59Z": nil,
        ]
        func line(_ number: Int, _ time: String) -> String {
            let id = EventID.derived(name: "t", key: "\(number)")
            return #"{"event_id":"\#(id)","time":\#(time),"event":"e","distinct_id":"u"}"# + "\n"
        }
        let text = dated.enumerated().map { line($0, "\"\($1.key)\"") }.joined()
        let output = try await hapax.run("import", try file(text + line(7, "true"), beside: hapax))
        #expect(output.status == 3 && output.error.contains("line 5: invalid_time: time must be Unix milliseconds or RFC 3339"))
        #expect(output.error.contains("line 6: invalid_time") && output.error.contains("line 7: invalid_time"))
        let sent = server.batches.flatMap { $0.scanned.events.map { String(decoding: $0.wire, as: UTF8.self) } }
        let expected = dated.enumerated().compactMap { index, pair in pair.value.map { line(index, "\($0)").dropLast(2) } }
        #expect(sent == expected.enumerated().map { "\($1),\"sequence\":\($0 + 1)}" })
    }

    @Test("import: what waited before is delivered and counted as well, and that is said")
    func countsOfOthersAreTold() async throws {
        for _ in 0..<2 { #expect(try await hapax.run("track", "e", "--no-flush").status == 0) }
        let output = try await hapax.run("import", try file(lines(0..<3), beside: hapax))
        #expect(output.out.hasPrefix("5 stored") && output.error.contains("of these counts, 2 are of events that waited"))
    }

    @Test("flush: what a time-out of its own ends is told as that")
    func ownTimeoutIsNamed() async throws {
        server.change { $0.silentAfter = 0 }
        #expect(try await hapax.run("track", "e", "--no-flush").status == 0)
        let output = try await hapax.run("flush", "--timeout", "1", "--json")
        #expect(output.status == 2 && output.json["failure"] as? String == "it was not done within the 1 seconds of --timeout")
    }

    @Test("blanks behind the last line are its end; closed descriptors and a home that is not there are told")
    func surroundingsAreTold() async throws {
        let path = try file(lines(0..<2) + "  \t ", beside: hapax)
        #expect(try await hapax.run("import", path).status == 0 && server.stored.count == 2)
        let closed = try await shell(#"exec "$0" import - <&- 2>&1"#)
        #expect(closed.status == .exited(1) && closed.errors.contains { $0.contains("cannot be read") })
        #expect(try await shell(#"exec "$0" status >&- 2>/dev/null"#).status == .exited(74))
        let home = hapax.directory.path("nobody")
        let homeless = try await shell(#"exec "$0" track x 2>&1"#, home: home)
        #expect(homeless.status == .exited(64) && homeless.errors.contains { $0.contains("does not exist") })
        #expect(!FileManager.default.fileExists(atPath: home))
    }
}
