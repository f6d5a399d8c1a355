import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// docs/reading.md, Analysis: one suite over both stores.
@Suite("Analysis: series, breakdown, funnel, return", .endsWhenItHangs(after: .seconds(720)))
struct AnalysisTests {
    /// A question, and its answer's JSON.
    private typealias Question = @Sendable (ProjectDays, AnalysisReader) async throws(StoreError) -> [UInt8]

    private static func series(
        _ filter: EventFilter = EventFilter(), _ unit: SeriesQuery.Unit = .day, _ basis: DailyReport.Basis = .closed,
        compares: Bool = false,
        over: Int? = nil
    ) -> Question {
        { (days, reader) async throws(StoreError) in
            try await SeriesQuery(filter: filter, unit: unit, basis: basis, compares: compares, over: over).answer(days, reader).json()
        }
    }

    private static func breakdown(
        _ property: String, _ filter: EventFilter = EventFilter(), _ basis: DailyReport.Basis = .closed,
        order: BreakdownQuery.Order = .events,
        limit: Int = 100
    ) -> Question {
        { (days, reader) async throws(StoreError) in
            try await BreakdownQuery(filter: filter, property: property, basis: basis, order: order, limit: limit).answer(days, reader)
                .json()
        }
    }

    private static func ask(
        _ question: Question, _ project: ClockedProject, _ from: String, _ to: String,
        after: @escaping @Sendable (StoreSQL) async throws(StoreError) -> Void = { (_) throws(StoreError) in }
    ) async throws -> String {
        let reader = AnalysisReader(
            database: SteppedStore(base: project.store.sql, now: project.now, after: after), zones: project.zones.withLock { $0 },
            projectID: 1,
            turn: QuestionTurn(within: .seconds(600)))
        let days = try await reader.days((CalendarDay(from), CalendarDay(to)), now: project.now)
        return String(decoding: try await question(days, reader), as: UTF8.self)
    }

    private static func part(_ name: String, of json: String) throws -> String {
        let value = try #require(PropertyLookup.value(of: name, in: Array(json.utf8)[...]))
        return String(decoding: value, as: UTF8.self)
    }

    @Test(
        "An event of a closed day counts if it came before 04:00 of the next; then it is late, in no closed figure (R61)",
        arguments: StoreUnderTest.Kind.allCases)
    func lateEventsAreInNoClosedFigure(kind: StoreUnderTest.Kind) async throws {
        let project = try await ClockedProject(kind, start: "2026-11-22T12:00:00Z")
        try await project.receive("a", at: "2026-11-22T11:00:00Z")
        // 03:59:59 of the next day in Berlin, and 04:00.
        project.move(to: "2026-11-23T02:59:59Z")
        try await project.receive("a", at: "2026-11-22T22:59:00Z", user: "u2")
        project.move(to: "2026-11-23T03:00:00Z")
        try await project.receive("a", at: "2026-11-22T22:59:00Z", user: "u3")
        // A phone three days ahead.
        try await project.receive("a", at: "2026-11-26T11:00:00Z", user: "u4")
        project.move(to: "2026-11-23T05:00:00Z")
        try await project.close()
        let point = #""state":"closed","events":2,"users":2}],"total":{"events":2,"users":2}}"#
        let closed = try await Self.ask(Self.series(), project, "2026-11-22", "2026-11-23")
        #expect(
            closed.hasSuffix(point) && closed.contains(#""as_of":"2026-11-23T03:00:00.000000Z","final":true,"late":1,"ahead":0"#),
            "\(closed)")
        let all = try await Self.ask(Self.series(.init(), .day, .all), project, "2026-11-22", "2026-11-23")
        #expect(try Self.part("total", of: all) == #"{"events":3,"users":3}"# && all.contains(#""final":false"#))
        let ahead = try await Self.ask(Self.series(), project, "2026-11-26", "2026-11-27")
        #expect(try Self.part("ahead", of: ahead) == "1" && Self.part("total", of: ahead) == #"{"events":0,"users":0}"#)
        // What is final repeats byte for byte, whatever comes later, but for the number of late events.
        try await project.receive("a", at: "2026-11-22T11:00:00Z", user: "u5")
        project.move(to: "2026-12-01T00:00:00Z")
        try await project.close()
        let again = try await Self.ask(Self.series(), project, "2026-11-22", "2026-11-23")
        #expect(again == closed.replacing(#""late":1"#, with: #""late":2"#))
        await project.store.close()
    }

    @Test(
        "A day of a clock change has 25 or 23 hours, and none of a day that a zone skips; weeks begin on Monday",
        arguments: StoreUnderTest.Kind.allCases)
    func hoursOfClockChanges(kind: StoreUnderTest.Kind) async throws {
        for (zone, day, next, hours) in [
            ("Europe/Berlin", "2026-10-25", "2026-10-26", 25), ("Europe/Berlin", "2027-03-28", "2027-03-29", 23),
            ("Pacific/Apia", "2011-12-30", "2011-12-31", 0), ("Asia/Kolkata", "2026-10-25", "2026-10-26", 24),
        ] {
            let project = try await ClockedProject(kind, zone: zone, start: "2026-11-22T12:00:00Z")
            try await project.close()
            let points = try Self.part("points", of: try await Self.ask(Self.series(.init(), .hour), project, day, next))
            #expect(points.split(separator: #""start""#).count - 1 == hours, "\(zone)")
            if zone == "Europe/Berlin", hours == 25 {
                #expect(points.contains(#""start":"2026-10-25T02:00:00+02:00","end":"2026-10-25T02:00:00+01:00""#))
                let weeks = try Self.part(
                    "points", of: try await Self.ask(Self.series(.init(), .week), project, "2026-10-22", "2026-11-04"))
                #expect(
                    weeks.contains(#""start":"2026-10-22T00:00:00+02:00","end":"2026-10-26T00:00:00+01:00""#)
                        && weeks.contains(#""start":"2026-11-02T00:00:00+01:00","end":"2026-11-04T00:00:00+01:00""#))
            }
            await project.store.close()
        }
    }

    @Test(
        "Values are told apart by type and are one however they are written; none collides with the rest",
        arguments: StoreUnderTest.Kind.allCases)
    func valuesAreJSONValues(kind: StoreUnderTest.Kind) async throws {
        let project = try await ClockedProject(kind, start: "2026-11-22T12:00:00Z")
        let values = [
            "1", "1.0", "10e-1", #""1""#, #""""#, "null", "false", "-0", "0.00", #""missing""#, #""other""#, #"{"b":1.0,"a":[2, 3]}"#,
            #"{"a":[2.0,3],"b":1}"#, #""\u0061\u001f\b\"\\é""#, "1e30", "-0.50",
            "-1e-300", "\"\(String(repeating: "x", count: 2_000))\"",
        ]
        let time = project.now * 1_000
        var events = try values.map { value in
            ("a", time, "u1", ["p": try PropertyValue(json: value)] as Properties)
        }
        events += [
            ("a", time, "u2", [:]), ("a", time, "u2", ["q": ["r": "deep"]]), ("a", time, "u3", ["q.r": "flat", "q": ["r": "deep"]]),
        ]
        try await project.receive(events)
        project.move(to: project.now + 60)
        let rows = try await Self.ask(Self.breakdown("p"), project, "2026-11-22", "2026-11-23")
        let expected = [
            ("1", 3), ("0", 2), (#"{"a":[2,3],"b":1}"#, 2), (#""""#, 1), (#""1""#, 1), (#""a\u001f\b\"\\é""#, 1), (#""missing""#, 1),
            (#""other""#, 1),
            ("-0.5", 1), ("-1e-300", 1), ("1000000000000000000000000000000", 1), ("false", 1), ("null", 1),
        ].map { #"{"value":\#($0),"events":\#($1),"users":1}"# }.joined(separator: ",")
        #expect(try Self.part("rows", of: rows) == "[\(expected)]")
        #expect(
            try Self.part("missing", of: rows) == #"{"events":3,"users":2}"#
                && Self.part("other", of: rows) == #"{"values":1,"events":1,"users":1}"#
                && Self.part("total", of: rows) == #"{"events":21,"users":3}"#)
        let paths = try await Self.ask(Self.breakdown("q.r"), project, "2026-11-22", "2026-11-23")
        #expect(
            try Self.part("rows", of: paths) == #"[{"value":"deep","events":1,"users":1},{"value":"flat","events":1,"users":1}]"#)
        for (text, count) in [
            ("p:1", 4), ("p:1.00", 3), (#"p:"1""#, 1), ("p:", 1), ("p:null", 1), ("q.r:flat", 1), ("p:missing", 1), ("p:0", 2),
            ("p:nope", 0),
        ] {
            let filter = EventFilter(properties: [try #require(PropertyFilter(text))])
            let total = try Self.part("total", of: try await Self.ask(Self.series(filter), project, "2026-11-22", "2026-11-23"))
            #expect(total.hasPrefix(#"{"events":\#(count),"#), "\(text): \(total)")
        }
        await project.store.close()
    }

    @Test("A question that takes longer than it may is ended, and the next one is answered", arguments: StoreUnderTest.Kind.allCases)
    func longQuestionsAreEnded(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let endless: StoreSQL = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 - i / 2 FROM n) SELECT count(*) FROM n"
        await #expect(throws: StoreError.tooHeavy) {
            try await store.sql.ask(endless, as: .question(QuestionTurn(within: .milliseconds(100))))
        }
        await #expect(throws: StoreError.tooHeavy) {
            try await store.sql.each(endless, in: QuestionTurn(within: .milliseconds(100))) { _ in }
        }
        #expect(try await store.sql.ask("SELECT 1", as: .question(QuestionTurn(within: .seconds(600)))) == [["1"]])
        let looks = Locked(0)
        await #expect(throws: StoreError.tooHeavy, "who asked has left, long before the time is over (S24)") {
            let turn = QuestionTurn(deadline: .now + .seconds(600)) {
                looks.withLock { looks in
                    looks += 1
                    return looks > 2
                }
            }
            _ = try await store.sql.ask(endless, as: .question(turn))
        }
        #expect(try await store.sql.ask("SELECT 1", as: .question(QuestionTurn(within: .seconds(600)))) == [["1"]])
        await store.close()
    }

    @Test(
        "A question whose asker has closed the connection, in an orderly way as browsers do or not, is ended; one that is awaited goes on (S24)"
    )
    func abandonedQuestionsAreEnded() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let store = try await PostgresEventStore(uri: uri, logger: RecordedLog().logger)
        let log = RecordedLog()
        try await RunningServer.run(on: store, logger: log.logger) { server in
            let (holder, watcher) = (try PostgresConnection(uri: uri), try PostgresConnection(uri: uri))
            try holder.execute("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            // The server's own work waits as well, for up to an hour; a person's question has seconds.
            let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'statement_timeout = \\d{1,5};'"
            for isOrderly in [true, false] {
                var asker: RawHTTP? = try await RawHTTP(port: server.port)
                let request = RawHTTP.request("GET", "/v1/events", headers: ["Authorization": "Bearer \(RunningServer.readKey)"])
                try await asker?.send(request)
                while try watcher.query(waiting).isEmpty {}
                if !isOrderly { asker?.resetOnClose() }
                asker = nil
                while try !watcher.query(waiting).isEmpty {}
            }
            try holder.execute("ROLLBACK")
        }
        // Ended by its time it would have been range_too_large.
        #expect(log.lines.filter { $0.metadata["problem.code"] != nil }.map { $0.metadata["problem.code"] } == ["too_slow", "too_slow"])
        await store.close()
    }

    @Test(
        "Who came back is stored when a day closes: with all events gone the answer about closed days is the same, byte for byte",
        arguments: StoreUnderTest.Kind.allCases)
    func returnsOfClosedDaysAreStored(kind: StoreUnderTest.Kind) async throws {
        let project = try await ClockedProject(kind, start: "2026-11-20T09:00:00Z")
        try await project.close()
        try await project.receive("$AppStart", at: "2026-11-20T08:00:00Z", user: "a")
        try await project.receive("view", at: "2026-11-20T08:00:00Z", user: "b")
        project.move(to: "2026-11-21T09:00:00Z")
        for user in ["a", "b", "c"] { try await project.receive("$AppStart", at: "2026-11-21T08:00:00Z", user: user) }
        project.move(to: "2026-11-22T09:00:00Z")
        try await project.close()
        // The first start of d comes after its day has closed, before that of the next day in time: new on no day. That of c changes nothing any more.
        try await project.receive("$AppStart", at: "2026-11-20T08:00:00Z", user: "d")
        try await project.receive("$AppStart", at: "2026-11-20T08:00:00Z", user: "c")
        for user in ["c", "d"] { try await project.receive("$AppStart", at: "2026-11-22T08:00:00Z", user: user) }
        project.move(to: "2026-11-23T09:00:00Z")
        let open = try Self.part("cohorts", of: try await Self.ask(Self.retention(), project, "2026-11-20", "2026-11-24"))
        try await project.close()
        let answer = try await Self.ask(Self.retention(), project, "2026-11-20", "2026-11-23")
        let cells = { (users: [Int]) in users.map { #"{"users":\#($0),"state":"closed"}"# }.joined(separator: ",") }
        #expect(
            answer.hasSuffix(
                #""cohorts":[{"day":"2026-11-20","size":1,"returned":[\#(cells([1, 1, 0]))]},{"day":"2026-11-21","size":2,"returned":[\#(cells([2, 1]))]},{"day":"2026-11-22","size":0,"returned":[\#(cells([0]))]}],"average":[{"users":3,"size":3},{"users":2,"size":3},{"users":0,"size":1}],"unassigned":1}"#
            ),
            "\(answer)")
        let stored = try Self.part("cohorts", of: try await Self.ask(Self.retention(), project, "2026-11-20", "2026-11-24"))
        #expect(stored == open, "computed before")
        // She who was there yesterday, of which the day is open, is not unassigned today.
        try await project.receive("$AppStart", at: "2026-11-23T08:00:00Z", user: "e")
        project.move(to: "2026-11-23T23:30:00Z")
        try await project.receive("$AppStart", at: "2026-11-23T23:20:00Z", user: "e")
        project.move(to: "2026-11-23T23:40:00Z")
        let today = try await Self.ask(Self.retention(), project, "2026-11-24", "2026-11-25")
        #expect(try Self.part("unassigned", of: today) == "0" && today.contains(#""size":0"#), "\(today)")
        // A day closes while who asks has read half of what is stored.
        project.move(to: "2026-11-24T09:00:00Z")
        let isClosed = Locked(false)
        let meanwhile = try await Self.ask(Self.retention(), project, "2026-11-20", "2026-11-25") { (sql) throws(StoreError) in
            guard "\(sql.parts)".contains("max(day)"), isClosed.withLock({ !$0 }) else { return }
            isClosed.withLock { $0 = true }
            do { try await project.close() } catch { throw .unavailable("\(error)") }
        }
        let later = try await Self.ask(Self.retention(), project, "2026-11-20", "2026-11-25")
        #expect(try isClosed.withLock { $0 } && Self.part("cohorts", of: meanwhile) == Self.part("cohorts", of: later), "\(meanwhile)")
        try await project.fixture.execute("DELETE FROM events")
        #expect(try await Self.ask(Self.retention(), project, "2026-11-20", "2026-11-23") == answer)
        await project.store.close()
    }

    @Test(
        "Random histories: another program makes the same of the same events, on both stores alike, with two servers where there can be, and after a restart; days are those of the daily report",
        arguments: 0..<2)
    func randomHistoriesAgree(round: Int) async throws {
        var random = SeededRandom.printed("AnalysisTests.randomHistoriesAgree \(round)")
        random = SeededRandom(seed: random.seed &+ UInt64(round))
        let zone = ["Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles", "Pacific/Apia", "UTC"].randomElement(using: &random) ?? "UTC"
        let start = ["2026-01-10T10:00:00Z", "2026-03-26T10:00:00Z", "2026-10-22T10:00:00Z"].randomElement(using: &random) ?? ""
        var both: [ClockedProject] = []
        for kind in StoreUnderTest.Kind.allCases { both.append(try await ClockedProject(kind, zone: zone, start: start)) }
        for project in both where project.fixture.kind == .postgres { try await project.addServer() }
        let end = both[0].now + 5 * 86_400
        while both[0].now < end {
            let now = both[0].now
            let events = (0..<Int.random(in: 1...30, using: &random)).map { _ in Self.event(now, &random) }
            let (closes, step) = (Bool.random(using: &random), Int64.random(in: 60...30_000, using: &random))
            for project in both {
                try await project.receive(events)
                project.move(to: now + step)
                if closes { try await project.close() }
            }
        }
        for project in both { try await project.close() }
        let first = CalendarDay.first.advanced(by: Int(ClockedProject.seconds(start) / 86_400))
        var (answers, questions) = ([String](), [(question: Question, from: String, to: String)]())
        for _ in 0..<30 {
            let from = first.advanced(by: Int.random(in: -4...6, using: &random))
            let to = from.advanced(by: Int.random(in: 0...9, using: &random)).description
            questions.append((Self.question(&random), from.description, to))
        }
        for (question, from, to) in questions {
            let pair = try await [Self.ask(question, both[0], from, to), Self.ask(question, both[1], from, to)]
            #expect(pair[0] == pair[1])
            answers.append(pair[0])
        }
        let known = try await both[0].fixture.rows("SELECT min(day) FROM report_bounds WHERE project_id = 1")[0][0]
        let header = #"{"now": \#(both[0].now * 1_000), "first_day": "\#(known)"}"#
        let input = ([header] + answers).joined(separator: "\n") + "\n\n" + (try await both[round % 2].export())
        let verdict = try await Python.run("analysis", input: input)
        #expect(verdict == "checked \(answers.count)\n", "\(verdict)")
        if round == 0 {
            let wrong = input.replacing(#""ahead":"#, with: #""ahead":1"#, maxReplacements: 1)
            #expect(try await Python.run("analysis", input: wrong).contains("expected"), "a control")
        }
        // Days are those of the daily report.
        let (from, to) = (first.description, first.advanced(by: 12).description)
        let report = try await both[0].report(from, to)
        let points = try await Self.ask(Self.series(), both[0], from, to)
        let days = try Self.part("points", of: points).split(separator: #"{"start":"#).dropFirst()
        for (day, point) in zip(report.days, days) {
            #expect(point.contains(#""events":\#(day.figures.events),"users":\#(day.figures.users)}"#), "\(day.bounds.day)")
        }
        for project in both { try await project.restart() }
        for (number, (question, from, to)) in questions.enumerated() {
            #expect(try await Self.ask(question, both[number % 2], from, to) == answers[number])
        }
        for project in both { await project.stop() }
    }

    private static func retention() -> Question {
        { (days, reader) async throws(StoreError) in try await ReturnQuery().answer(days, reader).json() }
    }

    private static func question(_ random: inout SeededRandom) -> Question {
        let basis = DailyReport.Basis.allCases.randomElement(using: &random) ?? .closed
        let filters = [[], [], ["plan:pro"], ["plan:1"], ["plan:null"], ["a.b:1", "plan:pro"]].randomElement(using: &random) ?? []
        let filter = EventFilter(
            name: [nil, "view", "paid", "nothing"].randomElement(using: &random) ?? nil,
            properties: filters.compactMap { PropertyFilter($0) })
        if Int.random(in: 0..<3, using: &random) == 0 {
            let unit = SeriesQuery.Unit.allCases.randomElement(using: &random) ?? .day
            return series(
                filter, unit, basis, compares: Bool.random(using: &random),
                over: unit == .day ? [nil, 7, 28].randomElement(using: &random) ?? nil : nil)
        }
        switch Int.random(in: 0..<3, using: &random) {
        case 0:
            var funnel = FunnelQuery(
                steps: (0..<Int.random(in: 2...4, using: &random)).map { _ in
                    var step = filter
                    step.name = ["view", "paid", "$AppStart"].randomElement(using: &random)
                    if Bool.random(using: &random) { step.properties = [] }
                    return step
                })
            funnel.within = [60_000, 3_600_000, 86_400_000, 7 * 86_400_000].randomElement(using: &random) ?? 0
            funnel.key = Int.random(in: 0..<3, using: &random) == 0 ? .install : .user
            funnel.basis = basis
            return { [funnel] (days, reader) async throws(StoreError) in try await funnel.answer(days, reader).json() }
        case 1:
            let query = ReturnQuery(
                start: ["$AppStart", "$AppStart", "view"].randomElement(using: &random) ?? "", again: filter,
                unit: ReturnQuery.Unit.allCases.randomElement(using: &random) ?? .day,
                mode: ReturnQuery.Mode.allCases.randomElement(using: &random) ?? .on, basis: basis)
            return { (days, reader) async throws(StoreError) in try await query.answer(days, reader).json() }
        default: break
        }
        return breakdown(
            ["plan", "a.b", "none"].randomElement(using: &random) ?? "plan", filter, basis,
            order: BreakdownQuery.Order.allCases.randomElement(using: &random) ?? .events, limit: Int.random(in: 1...12, using: &random))
    }

    /// In time, late, ahead, of few users, with properties of all types.
    private static func event(
        _ now: Int64, _ random: inout SeededRandom
    ) -> (name: String, time: Int64, user: String, properties: Properties) {
        let delay: Int64 =
            switch Int.random(in: 0..<10, using: &random) {
            case 0: .random(in: 100_000...400_000, using: &random)
            case 1: .random(in: -90_000...(-80_000), using: &random)
            case 2: .random(in: 20_000...120_000, using: &random)
            default: .random(in: 0...20_000, using: &random)
            }
        var properties: Properties = [:]
        let plans: [PropertyValue?] = [nil, "pro", "pro", "free", "", "1", 1, 1.5, true, false, .null, "a\"\u{1F}\\"]
        if let plan = plans.randomElement(using: &random) ?? nil { properties["plan"] = plan }
        switch Int.random(in: 0..<4, using: &random) {
        case 0: properties["a"] = ["b": 1]
        case 1: properties["a.b"] = 1
        case 2: properties["a"] = [1, 2]
        default: break
        }
        return (
            ["view", "view", "paid", "$AppStart"].randomElement(using: &random) ?? "view",
            (now - delay) * 1_000 + .random(in: 0...999, using: &random),
            "\(["u", "w"].randomElement(using: &random) ?? "")\(Int.random(in: 0..<10, using: &random).formatted().replacing("9", with: "x"))",
            properties
        )
    }
}
