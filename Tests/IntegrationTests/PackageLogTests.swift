import Foundation
import HapaxModel
import TestSupport
import Testing

/// The example that turns a package log into events.
@Suite("dpkg-events", .endsWhenItHangs)
struct PackageLogTests {
    private func convert(_ log: String, zone: String = "UTC") async throws -> (lines: [String], exit: ChildProcess.Exit) {
        let directory = TemporaryDirectory("log")
        try Data(log.utf8).write(to: URL(filePath: directory.path("dpkg.log")))
        let run = try ChildProcess("dpkg-events", ["--host", "h", directory.path("dpkg.log")], environment: ["TZ": zone])
        return (await run.remainingLines(), await run.waitUntilExit())
    }

    @Test("a line that dpkg is still writing is left out, and the whole line is one event later (I2)")
    func unfinishedLineIsLeftOut() async throws {
        let first = "2026-11-21 10:15:00 install curl:amd64 <none> 8.5.0-2\n"
        let second = "2026-11-21 10:15:01 status installed curl:amd64 8.5.0-2\n"
        let early = try await convert(first + second.dropLast(3))
        let late = try await convert(first + second)
        #expect(early.exit == .exited(0) && late.exit == .exited(0))
        #expect(early.lines.count == 1 && late.lines.count == 2)
        #expect(early.lines.first == late.lines.first, "the same line is the same event each time")
    }

    @Test("lines that end as on other systems are lines of their own, and the same events (I1, I2)")
    func otherLineEndsAreEnds() async throws {
        let log = "2026-11-21 10:15:00 install curl:amd64 <none> 8.5.0-2\n2026-11-21 10:15:01 status installed curl:amd64 8.5.0-2\n"
        let lines = try await convert(log).lines
        #expect(lines.count == 2)
        #expect(try await convert(log.replacing("\n", with: "\r\n")).lines == lines)
        #expect(try await convert(String(log.replacing("\n", with: "\r\n").dropLast(3))).lines == Array(lines.prefix(1)))
    }

    @Test("a time that a clock change skips is the later reading of the two; what is no time is left out (S18)")
    func skippedHourIsRead() async throws {
        let times = ["2026-03-29 01:59:59", "2026-03-29 02:30:00", "2026-03-29 03:30:00", "2026-03-29 02:60:00"]
        let log = times.map { "\($0) install curl:amd64 <none> 8.5.0-2\n" }.joined()
        let lines = try await convert(log, zone: "Europe/Berlin").lines
        let found = lines.compactMap { EventScanner.scan(Array($0.utf8)[...]).time / 1_000 }
        // 00:59:59, 01:30:00 and 01:30:00 of UTC.
        #expect(found == [1_774_745_999, 1_774_747_800, 1_774_747_800])
    }

    @Test("a log that is one unfinished line holds no event yet")
    func onlyAnUnfinishedLine() async throws {
        #expect(try await convert("2026-11-21 10:15:00 install curl:amd64 <none> 8.5.0-2").lines.isEmpty)
    }
}
