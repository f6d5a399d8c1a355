import Foundation
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

/// docs/reading.md: time and the daily report (R60, R61, R62): one suite over both stores.
@Suite("The daily report", .serialized, .endsWhenItHangs)
struct DailyReportTests {
    @Test(
        "A day that closes, or gets an event, between two statements of a question: it is never told as closed and empty, nor with less than its names",
        arguments: StoreUnderTest.Kind.allCases, 1...10)
    func questionsAreInterrupted(kind: StoreUnderTest.Kind, statement: Int) async throws {
        for closes in [true, false] {
            let books = try await ClockedProject(kind, zone: "UTC", start: "2026-01-12T10:00:00Z")
            try await books.receive("a", at: "2026-01-13T09:00:00Z")
            try await books.close()
            books.move(to: closes ? "2026-01-14T05:00:00Z" : "2026-01-13T20:00:00Z")
            let count = Locked(0)
            let database = SteppedStore(
                base: books.store.sql,
                before: { (purpose) throws(StoreError) in
                    guard case .question = purpose else { return }
                    let number = count.withLock { count in
                        count += 1
                        return count
                    }
                    guard number == statement else { return }
                    do {
                        if closes { try await books.close() } else { try await books.receive("b", at: "2026-01-13T19:00:00Z") }
                    } catch { throw .unavailable("\(error)") }
                })
            let reader = DailyReportReader(database: database, zones: [1: .utc])
            let day = try #require(CalendarDay("2026-01-13"))
            let report = try await reader.report(
                1, (day, day.advanced(by: 1)), .closed, now: books.now, in: QuestionTurn(within: .seconds(600))
            ) { query throws(StoreError) in
                try await query.figures(database, in: QuestionTurn(within: .seconds(600)))
            }
            let figures = try #require(report.days.first).figures
            #expect(
                closes ? figures.events == 1 && figures.byName.count == 1 : (1...2).contains(figures.events) && figures.other >= 0,
                "\(figures)")
            await books.store.close()
        }
    }

    // MARK: - R60, R61

    @Test(
        "An event of 23:59 has four hours to arrive, one of 00:00 has 28; later it is late, and the closed day does not change (R60, R61)",
        arguments: StoreUnderTest.Kind.allCases)
    func bothExamples(kind: StoreUnderTest.Kind) async throws {
        let books = try await ClockedProject(kind, start: "2026-01-12T12:00:00+01:00")
        try await books.receive("a", at: "2026-01-12T11:00:00+01:00")
        books.move(to: "2026-01-14T03:59:59+01:00")
        try await books.receive("a", at: "2026-01-13T00:00:00+01:00", user: "midnight")
        try await books.receive("a", at: "2026-01-13T23:59:00+01:00", user: "evening")
        try await books.close()
        #expect(try await books.day("2026-01-13").state == .open)
        books.move(to: "2026-01-14T04:00:00+01:00")
        try await books.close()
        let closed = try await books.day("2026-01-13")
        #expect(closed.state == .closed && closed.figures.events == 2 && closed.figures.users == 2 && closed.late == 0)
        try await books.receive("a", at: "2026-01-13T23:59:00+01:00", user: "late")
        books.move(to: "2026-01-14T05:00:00+01:00")
        try await books.close()
        let later = try await books.day("2026-01-13")
        #expect(later.figures == closed.figures && later.late == 1)
        // Each event says it as well, and so does the view for other tools.
        let late = try await books.store.reader.events(
            EventQuery(projectID: 1, received: 0..<Int64.max, limit: 9), in: QuestionTurn(within: .seconds(60)))
        #expect(Set(late.events.filter(\.isLate).map(\.distinctID)) == [Array("late".utf8)])
        let day = kind == .postgres ? "day::text" : "day"
        #expect(
            try await books.fixture.rows("SELECT project, \(day), distinct_id FROM events_with_late WHERE late ORDER BY 1")
                == [["shop", "2026-01-13", "late"]])
        #expect(
            try await books.fixture.rows(
                "SELECT project, users, events, late, ahead FROM daily_report WHERE project = 'shop' AND \(day) = '2026-01-13'")
                == [["shop", "2", "2", "1", "0"]])
        #expect(try await books.day("2026-01-13", .all).figures.events == 3)
        await books.store.close()
    }

    @Test(
        "Both changes of daylight saving: days of 23 and 25 hours, which close at 04:00 as the clock then shows it (R61)",
        arguments: StoreUnderTest.Kind.allCases)
    func daylightSaving(kind: StoreUnderTest.Kind) async throws {
        for (day, hours, closes) in [
            ("2026-03-29", 23, "2026-03-30T02:00:00Z"), ("2026-10-25", 25, "2026-10-26T03:00:00Z"),
            ("2026-03-28", 24, "2026-03-29T02:00:00Z"),
        ] {
            let books = try await ClockedProject(kind, start: "\(day)T00:00:00Z")
            try await books.receive("a", at: "\(day)T00:00:00Z")
            let closing = ClockedProject.seconds(closes)
            books.move(to: closing - 1)
            try await books.receive("a", at: "\(day)T20:00:00Z", user: "in time")
            try await books.close()
            #expect(try await books.day(day).state == .open)
            books.move(to: closing)
            try await books.receive("a", at: "\(day)T20:00:00Z", user: "late")
            try await books.close()
            books.move(to: closing + 1)
            try await books.close()
            let report = try await books.day(day)
            #expect(report.state == .closed && report.figures.users == 2 && report.late == 1, "\(day)")
            #expect(report.bounds.ends - report.bounds.starts == Int64(hours) * 3_600 && report.bounds.closes == closing)
            await books.store.close()
        }
    }

    @Test(
        "A server that was down over several cut-offs closes them in order, each as if it had been there",
        arguments: StoreUnderTest.Kind.allCases)
    func longSleepIsCaughtUp(kind: StoreUnderTest.Kind) async throws {
        let books = try await ClockedProject(kind, start: "2026-01-10T10:00:00Z")
        try await books.receive("$AppStart", at: "2026-01-10T09:00:00Z", user: "old")
        // Another server stores meanwhile; nobody closes.
        for day in 11...14 {
            books.move(to: "2026-01-\(day)T10:00:00Z")
            try await books.receive("$AppStart", at: "2026-01-\(day)T09:00:00Z", user: "old")
            try await books.receive("$AppStart", at: "2026-01-\(day)T09:00:00Z", user: "new of \(day)")
            try await books.receive("$AppStart", at: "2026-01-\(day - 1)T09:00:00Z", user: "late of \(day)")
        }
        books.move(to: "2026-01-15T10:00:00Z")
        try await books.close()
        let report = try await books.report("2026-01-10", "2026-01-15")
        #expect(report.days.map(\.figures.newUsers) == [1, 1, 1, 1, 1] && report.days.map(\.figures.activeUsers) == [1, 2, 2, 2, 2])
        #expect(report.days.map(\.late) == [1, 1, 1, 1, 0])
        try await books.expectPythonAgrees(report)
        await books.store.close()
    }

    @Test("Two servers close at once: each day is closed once, as one server would have")
    func twoServersCloseOnce() async throws {
        let books = try await ClockedProject(.postgres, start: "2026-01-10T10:00:00Z")
        for day in 10...20 {
            books.move(to: "2026-01-\(day)T12:00:00Z")
            try await books.receive((0..<50).map { ("$AppStart", (books.now - 3_600) * 1_000, "u\($0 * day % 70)", [:]) })
        }
        books.move(to: "2026-01-21T12:00:00Z")
        let others = [try await StoreUnderTest.postgres(books.fixture.place), try await StoreUnderTest.postgres(books.fixture.place)]
        let (now, zones) = (books.now, books.zones.withLock { $0 })
        try await withThrowingTaskGroup(of: Void.self) { group in
            for store in others {
                group.addTask {
                    for _ in 0..<5 {
                        let outcome = try await DayClosing(database: SteppedStore(base: store.sql, now: now), zones: zones).perform()
                        #expect(outcome?.failures.isEmpty != false)
                    }
                }
            }
            try await group.waitForAll()
        }
        try await books.close()
        let report = try await books.report("2026-01-10", "2026-01-21")
        #expect(report.days.allSatisfy { $0.state == .closed })
        try await books.expectPythonAgrees(report)
        for store in others { await store.close() }
        await books.store.close()
    }

    @Test("The first days of a project are looked for in what has come since it was made, not in the whole store (S17)")
    func firstDaysBeginWithTheProject() async throws {
        let books = try await ClockedProject(.postgres, zone: "UTC", start: "2026-01-10T10:00:00Z")
        // Nothing comes before its project. Whoever looks there has looked everywhere.
        try await books.receive("paid", at: "2026-01-10T09:00:00Z")
        try await books.fixture.execute("UPDATE projects SET created_at = '2026-01-14T00:00:00Z'")
        books.move(to: "2026-01-15T12:00:00Z")
        try await books.close()
        let first = try await books.fixture.rows("SELECT coalesce(min(day)::text, 'none') FROM report_days WHERE project_id = 1")[0][0]
        #expect(first > "2026-01-12", "\(first)")
        await books.store.close()
    }

    @Test("A transaction that is open while its day closes is waited for: its events are of the day, not late")
    func openTransactionIsWaitedFor() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.open()
        // Sessions of anybody else hold up nobody; this one keeps the server's own from its end.
        let other = try PostgresConnection(uri: fixture.place)
        try other.execute("BEGIN; LOCK TABLE events IN EXCLUSIVE MODE")
        async let committing = store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        // Open for longer than every transaction is waited for.
        let open = """
            SELECT (extract(epoch FROM xact_start) * 1000)::int8 FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND datname = current_database() AND clock_timestamp() - xact_start > interval '3 seconds'
            """
        var began: Int64?
        while began == nil { began = try await fixture.rows(open).first.flatMap { Int64($0[0]) } }
        let limit = try #require(began)
        for _ in 0..<3 { #expect(try await store.sql.settled() <= limit) }
        try other.execute("COMMIT")
        #expect(try await committing.isEmpty)
        while try await store.sql.settled() <= limit {}
        await store.close()
    }

    // MARK: - R62

    @Test(
        "Each figure by its definition: starts, passive starts, ends with and without a duration, ahead, names (R62)",
        arguments: StoreUnderTest.Kind.allCases)
    func figuresFollowTheirDefinitions(kind: StoreUnderTest.Kind) async throws {
        let books = try await ClockedProject(kind, zone: "UTC", start: "2026-01-12T00:00:00Z")
        let noon = ClockedProject.seconds("2026-01-13T12:00:00Z") * 1_000
        try await books.receive("$AppStart", at: "2026-01-11T23:00:00Z", user: "known")
        books.move(to: "2026-01-13T13:00:00Z")
        try await books.receive([
            ("$AppStart", noon, "known", [:]), ("$AppStart", noon, "new", [:]), ("$AppStart", noon, "new", [:]),
            ("$AppStartPassively", noon, "passive", [:]),
            ("$AppEnd", noon, "new", ["$event_duration": 0.0005]), ("$AppEnd", noon, "new", ["$event_duration": 86_400]),
            ("$AppEnd", noon, "known", ["$event_duration": 1.0005]), ("$AppEnd", noon, "known", [:]),
            ("$AppEnd", noon, "known", ["$event_duration": -1]), ("$AppEnd", noon, "known", ["$event_duration": 86_400.001]),
            ("$AppEnd", noon, "known", ["$event_duration": "5"]), ("$AppEnd", noon, "known", ["$event_duration": true]),
            ("order", noon, "service", ["$event_duration": 5]),
        ])
        // A day and a millisecond before its time: ahead; a day before: of the day.
        books.move(to: "2026-01-13T14:00:00Z")
        try await books.receive("ahead", at: "2026-01-15T00:00:00Z")
        try await books.receive([("just", (books.now + 86_400) * 1_000, "u", [:]), ("ahead", (books.now + 86_400) * 1_000 + 1, "u", [:])])
        books.move(to: "2026-01-16T10:00:00Z")
        try await books.close()
        let day = try await books.day("2026-01-13").figures
        #expect(day.users == 4 && day.activeUsers == 2 && day.newUsers == 1 && day.events == 13)
        #expect(day.sessions == 8 && day.timedSessions == 3 && day.sessionMilliseconds == 86_401_002 && day.timedUsers == 2)
        #expect(day.meanSession == 28_800_334 && day.meanUse == 43_200_501)
        #expect(day.byName.first == .init(event: "$AppEnd", count: 8) && day.other == 0)
        let next = try await books.day("2026-01-14").figures
        let last = try await books.day("2026-01-15").figures
        #expect(next.ahead == 1 && next.events == 1 && last.ahead == 1 && last.events == 0)
        try await books.expectPythonAgrees(try await books.report("2026-01-10", "2026-01-17"))
        await books.store.close()
    }

    @Test(
        "Imported history is late by definition: its closed days are empty and say so, or that it is being counted (S23); all holds it",
        arguments: StoreUnderTest.Kind.allCases)
    func importedHistoryIsLate(kind: StoreUnderTest.Kind) async throws {
        let books = try await ClockedProject(kind, start: "2026-01-12T10:00:00Z")
        try await books.receive("a", at: "2026-01-12T09:00:00Z")
        try await books.close()
        for year in [1970, 2019, 2025] { try await books.receive("$AppStart", at: "\(year)-06-15T10:00:00Z", user: "u\(year)") }
        #expect(try await books.report("1970-06-15", "1970-06-16").isCountingLate)
        #expect(try await !books.report("1970-06-16", "1970-06-17").isCountingLate)
        #expect(try await !books.report("1970-06-15", "1970-06-16", .all).isCountingLate)
        books.move(to: "2026-01-12T11:00:00Z")
        try await books.close()
        for year in ["1970", "2019", "2025"] {
            let report = try await books.report("\(year)-06-15", "\(year)-06-16")
            #expect(!report.isCountingLate)
            #expect(report.days[0].state == .closed && report.days[0].figures.events == 0 && report.onlyLate.map(\.late) == [1], "\(year)")
            let all = try await books.report("\(year)-06-15", "\(year)-06-16", .all)
            #expect(all.days[0].figures.newUsers == 1 && all.onlyLate.isEmpty)
        }
        await books.store.close()
    }

    @Test(
        "A changed zone holds from two days ahead, and no day that has begun gets other bounds; an admin's as well as a setting's",
        arguments: StoreUnderTest.Kind.allCases, [false, true])
    func zoneChanges(kind: StoreUnderTest.Kind, byAdmin: Bool) async throws {
        let books = try await ClockedProject(kind, zone: "Europe/Berlin", start: "2026-01-12T10:00:00Z")
        try await books.receive("a", at: "2026-01-12T09:00:00Z")
        try await books.close()
        let before = try await books.report("2026-01-10", "2026-01-14").days.map(\.bounds)
        if byAdmin {
            let (zone, now) = ("America/Los_Angeles", books.now * 1_000)
            await #expect(throws: Registry.Problem.self) {
                try await Registry(database: books.store.sql, zonesInSettings: ["shop"]).set("shop", timeZone: zone, now: now)
            }
            books.zones.withLock { $0 = [:] }
            let project = try await Registry(database: books.store.sql).set("shop", timeZone: zone, now: now)
            #expect(project.timeZone == zone && project.timeZoneFrom.map { $0 > .first } == true)
        } else {
            books.zones.withLock { $0[1] = ReportZone("America/Los_Angeles") }
        }
        try await books.close()
        books.move(to: "2026-01-20T20:00:00Z")
        try await books.close()
        let after = try await books.report("2026-01-10", "2026-01-19").days.map(\.bounds)
        #expect(Array(after.prefix(4)) == before)
        // PostgreSQL plans an admin's change by its own clock, which is months after the test's.
        let last = byAdmin && kind == .postgres ? "Europe/Berlin" : "America/Los_Angeles"
        #expect(after.map(\.zone.name).prefix(5).allSatisfy { $0 == "Europe/Berlin" } && after.last?.zone.name == last)
        #expect(zip(after, after.dropFirst()).allSatisfy { $0.ends == $1.starts })
        try await books.expectPythonAgrees(try await books.report("2026-01-10", "2026-01-21"))
        await books.store.close()
    }

    @Test(
        "S7: a server that no setting tells of a project's zone leaves it as it is, also a zone that is no longer set",
        arguments: StoreUnderTest.Kind.allCases)
    func unknownZoneIsKept(kind: StoreUnderTest.Kind) async throws {
        let books = try await ClockedProject(kind, zone: "Asia/Kolkata", start: "2026-01-12T10:00:00Z")
        try await books.receive("a", at: "2026-01-12T09:00:00Z")
        try await books.close()
        books.zones.withLock { $0 = [:] }
        try await books.close()
        books.move(to: "2026-01-20T20:00:00Z")
        try await books.close()
        let days = try await books.report("2026-01-10", "2026-01-22").days
        #expect(days.allSatisfy { $0.bounds.zone.name == "Asia/Kolkata" })
        // UTC can be asked for by name.
        books.zones.withLock { $0[1] = .utc }
        try await books.close()
        books.move(to: "2026-01-25T20:00:00Z")
        try await books.close()
        #expect(try await books.day("2026-01-25", .all).bounds.zone == .utc)
        await books.store.close()
    }

    // MARK: - Random histories

    @Test(
        "Random histories: another program makes the same figures of the same events, on both stores alike, and after a restart",
        arguments: 0..<3)
    func randomHistoriesAgree(round: Int) async throws {
        var random = SeededRandom.printed("randomHistoriesAgree \(round)")
        random = SeededRandom(seed: random.seed &+ UInt64(round))
        let zone = ["Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles", "Pacific/Apia", "UTC"].randomElement(using: &random) ?? "UTC"
        let start = ["2026-01-10T10:00:00Z", "2026-03-26T10:00:00Z", "2026-10-22T10:00:00Z"].randomElement(using: &random) ?? ""
        var both: [ClockedProject] = []
        for kind in StoreUnderTest.Kind.allCases { both.append(try await ClockedProject(kind, zone: zone, start: start)) }
        let end = both[0].now + 8 * 86_400
        while both[0].now < end {
            let now = both[0].now
            let events = (0..<Int.random(in: 1...30, using: &random)).map { _ in Self.event(now, &random) }
            let project: Int32 = Int.random(in: 0..<5, using: &random) == 0 ? 2 : 1
            let closes = Int.random(in: 0..<3, using: &random) > 0
            for books in both {
                try await books.receive(events, project: project)
                books.move(to: now)
                if closes { try await books.close() }
            }
            let step = Int64.random(in: 60...30_000, using: &random)
            for books in both { books.move(to: now + step) }
        }
        let from = CalendarDay.first.advanced(by: Int(ClockedProject.seconds(start) / 86_400) - 4).description
        let to = CalendarDay.first.advanced(by: Int(end / 86_400) + 3).description
        for project: Int32 in [1, 2] {
            for basis in DailyReport.Basis.allCases {
                var answers: [[UInt8]] = []
                for books in both {
                    try await books.close()
                    let report = try await books.report(from, to, basis, project: project)
                    try await books.expectPythonAgrees(report, project: project)
                    answers.append(report.json())
                    try await books.restart()
                    answers.append(try await books.report(from, to, basis, project: project).json())
                }
                #expect(Set(answers).count == 1)
            }
        }
        for books in both { await books.store.close() }
    }

    /// In time, late, ahead, repeated users, recovered ends, passive starts.
    private static func event(
        _ now: Int64, _ random: inout SeededRandom
    ) -> (name: String, time: Int64, user: String, properties: Properties) {
        let name = ["$AppStart", "$AppStartPassively", "$AppEnd", "a", "b"].randomElement(using: &random) ?? "a"
        let delay: Int64 =
            switch Int.random(in: 0..<10, using: &random) {
            case 0: .random(in: 100_000...400_000, using: &random)
            case 1: .random(in: -90_000...(-80_000), using: &random)
            case 2: .random(in: 20_000...120_000, using: &random)
            default: .random(in: 0...20_000, using: &random)
            }
        let durations: [PropertyValue?] = [
            nil, 0, 1.0005, 17.25, 3_600, 90_000, "x", .double(Double.random(in: 0...1_000, using: &random)),
        ]
        let duration = name == "$AppEnd" ? durations.randomElement(using: &random) ?? nil : nil
        return (
            name, (now - delay) * 1_000 + .random(in: 0...999, using: &random), "u\(Int.random(in: 0..<20, using: &random))",
            duration.map { ["$event_duration": $0] } ?? [:]
        )
    }

    @Test(
        "A name in CSV breaks no line, commands no terminal, and is no formula of a spreadsheet (S27)",
        arguments: [
            ("order_paid", "order_paid"), ("a,\"b\"", "\"a,\"\"b\"\"\""), ("=1+1", "'=1+1"), ("@x,", "\"'@x,\""), ("1-1", "1-1"),
            ("-0.5", "-0.5"), ("-1+1", "'-1+1"),
            ("\u{1B}[2J\r\n\u{202E}", #"\u{1B}[2J\u{D}\u{A}\u{202E}"#), ("=\u{301}", "'=\u{301}"), ("\"\u{301}", "\"\"\"\u{301}\""),
        ])
    func namesAreSafeInCSV(name: String, cell: String) throws {
        let day = ZoneHistory(.utc).bounds(of: .first)
        var figures = DailyFigures()
        (figures.events, figures.byName) = (5, [.init(event: name, count: 3)])
        let report = DailyReport(
            days: [.init(bounds: day, state: .open, figures: figures, late: 0)], from: .first, to: .first, zone: .utc, basis: .closed)
        let csv = Array("day,state,event,count\r\n1970-01-01,open,\(cell),3\r\n1970-01-01,open,,2\r\n".utf8)
        #expect(report.csvByEvent() == csv)
    }

    @Test(
        "A duration is a number of seconds in 0…86,400, to the millisecond, half up",
        arguments: [
            ("1", 1_000), ("0", 0), ("-0", 0), ("-0.0e5", 0), ("0.0005", 1), ("0.00049999999999999999999999999999999999999999999999999", 0),
            ("1.0005", 1_001), ("1.00049", 1_000), ("5e-4", 1), ("4.9e-4", 0), ("5E+1", 50_000), ("86400", 86_400_000),
            ("86400.0000", 86_400_000),
            ("86400.0000001", nil), ("86399.9996", 86_400_000), ("8.64e4", 86_400_000), ("0.0864e+6", 86_400_000), ("1e9", nil),
            ("1e-900", 0), ("-1e-9", nil),
            ("\"1\"", nil), ("true", nil), ("null", nil), ("[1]", nil),
        ] as [(String, Int64?)])
    func durationsAreExact(text: String, milliseconds: Int64?) {
        #expect(SessionDuration.milliseconds(Array(#"{"$event_duration":\#(text)}"#.utf8)[...]) == milliseconds)
    }
}
