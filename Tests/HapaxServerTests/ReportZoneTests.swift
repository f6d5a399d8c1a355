import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

// Ten minutes: it goes through every zone there is, on two cores with other work in two minutes and a half.
@Suite("Local days (R60)", .endsWhenItHangs(after: .seconds(600)))
struct ReportZoneTests {
    @Test("Every zone, in weeks with changes and without, begins and closes its days as Python's zoneinfo has it")
    func boundsAgreeWithZoneinfo() async throws {
        var days = ["2026-01-15", "2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25", "2026-11-01"]
        var random = SeededRandom.printed()
        for _ in 0..<2 { days.append("\(CalendarDay.first.advanced(by: Int.random(in: 7_000...22_000, using: &random)))") }
        // Half hours, across the date line, without midnight or without 04:00, without a day at all.
        let strange = [
            ("Asia/Kolkata", "2026-05-05"), ("Australia/Lord_Howe", "2026-04-05"), ("Australia/Lord_Howe", "2026-10-04"),
            ("Asia/Kathmandu", "2026-05-05"),
            ("Pacific/Apia", "2011-12-29"), ("Pacific/Apia", "2011-12-30"), ("Pacific/Apia", "2011-12-31"),
            ("America/Sao_Paulo", "2018-11-04"),
            ("Africa/Cairo", "2026-04-24"), ("America/Havana", "2026-03-08"), ("America/Havana", "2026-11-01"),
            ("Asia/Beirut", "2026-03-29"),
            ("Africa/Casablanca", "2026-02-15"), ("Antarctica/Troll", "2026-03-29"), ("Asia/Gaza", "2026-03-28"),
            ("America/Scoresbysund", "2024-03-31"),
        ]
        let zones = TimeZone.knownTimeZoneIdentifiers.filter {
            $0.contains("/") && FileManager.default.fileExists(atPath: "/usr/share/zoneinfo/\($0)")
        }
        #expect(zones.count > 300)
        // S12: names without a slash, on days of this year: for earlier ones Debian keeps rules (WET of 1994) that the database has given up.
        let plain = ReportZone.plainNames.subtracting(["UTC"]).sorted().flatMap { zone in days.prefix(6).map { (zone, $0) } }
        let pairs = zones.flatMap { zone in days.map { (zone, $0) } } + plain + strange
        let lines = try pairs.map { name, text in
            let (zone, day) = (try #require(ReportZone(name)), try #require(CalendarDay(text)))
            return "\(name) \(day) \(zone.start(of: day)) \(zone.close(of: day))\n"
        }
        let answer = try await Python.run("day_bounds", input: lines.joined())
        #expect(answer == "checked\n", "\(answer.prefix(2_000))")
    }

    @Test(
        "What is no zone of the time zone database is none",
        arguments: ["", "Mars/Olympus", "GMT+0130", "../etc/passwd", "PST", "IST", "Europe/"])
    func othersAreNone(name: String) {
        #expect(ReportZone(name) == nil)
    }

    @Test("S12: rules that the system has newer ones of are named", arguments: [("2999a", true), ("1999z", false)])
    func newerRulesAreNamed(version: String, isNewer: Bool) throws {
        let directory = TemporaryDirectory()
        try Data("# version \(version)\n# redo\n".utf8).write(to: directory.url.appending(path: "tzdata.zi"))
        let (used, newer) = ReportZone.databaseVersion(system: directory.path("tzdata.zi"))
        #expect(used.hasPrefix("20") && (newer == version) == isNewer)
        #expect(ReportZone.databaseVersion(system: directory.path("none")).newer == nil)
    }

    @Test("A zone that changes holds from two days ahead; days meet without gap or overlap, and those before keep their bounds")
    func changesLeaveNoGap() throws {
        let names = ["UTC", "Europe/Berlin", "Pacific/Pago_Pago", "Pacific/Kiritimati", "Asia/Kolkata", "America/Los_Angeles"]
        let now: Int64 = 1_774_700_000
        for (old, new) in names.flatMap({ old in names.map { (old, $0) } }) {
            let before = ZoneHistory(try #require(ReportZone(old)))
            let zone = try #require(ReportZone(new))
            let first = ZoneHistory.firstDay(of: zone, now: now)
            var history = before
            history.add(zone, from: first)
            #expect(zone.start(of: first) >= now + 2 * 86_400)
            for offset in -5..<5 {
                let day = history.bounds(of: first.advanced(by: offset))
                #expect(day.starts <= day.ends && day.ends <= day.closes && day.ends == history.bounds(of: day.day.advanced(by: 1)).starts)
                if offset < 0 { #expect(day == before.bounds(of: day.day)) }
                if offset > 1 { #expect(day.starts == zone.start(of: day.day) && day.zone == zone) }
                if day.starts < day.ends { #expect(history.day(at: day.starts) == day.day && history.day(at: day.ends - 1) == day.day) }
            }
        }
    }
}

/// A program of another make that checks answers.
enum Python {
    static func run(_ name: String, input: String) async throws -> String {
        let directory = TemporaryDirectory("python")
        try Data(input.utf8).write(to: directory.url.appending(path: "input"))
        let script = PackageLayout.root.appending(path: "Tests/HapaxServerTests/\(name).py").path
        let process = try ChildProcess("/bin/sh", ["-c", #"exec python3 "$0" < "$1""#, script, directory.path("input")])
        let lines = await process.remainingLines()
        guard await process.waitUntilExit() == .exited(0) else { throw Descriptor.Failure("python3: \(process.standardErrorTail)", 0) }
        return lines.map { $0 + "\n" }.joined()
    }
}
