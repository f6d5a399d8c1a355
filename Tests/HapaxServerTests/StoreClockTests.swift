import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

/// A store's clock that is wrong for a while (S2).
@Suite("The store's clock", .serialized, .endsWhenItHangs)
struct StoreClockTests {
    private static let day: Int64 = 1_440

    /// What has passed, what the clock shows, and up to what days may close, all in minutes.
    struct Step: Sendable, CustomStringConvertible {
        var passed: Int64
        var clock: Int64
        var closing: Int64
        var description: String { "\(passed): \(clock)" }

        init(_ passed: Int64, _ clock: Int64, _ closing: Int64) { (self.passed, self.clock, self.closing) = (passed, clock, closing) }
    }

    private static let jump: Int64 = 10 * day
    static let trusts: [(String, Int64, [Step])] = [
        ("as time passes", 0, [Step(10, 10, 10), Step(600, 601, 601)]),
        ("some minutes ahead, once", 0, [Step(10, 14, 14), Step(11, 20, 15), Step(12, 15, 15)]),
        ("a jump that is over", 0, [Step(10, 10 + jump, 10), Step(11, 11 + jump, 11), Step(12, 12, 12), Step(13, 13, 13)]),
        ("a jump that lasts", 0, [Step(10, 10 + jump, 10), Step(69, 69 + jump, 69), Step(70, 70 + jump, 70 + jump)]),
        (
            "a jump that is accepted", 11 + jump,
            [Step(10, 9 + 9 * day, 10), Step(11, 11 + jump, 11 + jump), Step(12, 12 + jump, 12 + jump)]
        ),
        ("back, and here again", 0, [Step(10, 10, 10), Step(11, 11 - day, 11 - day), Step(12, 12, 12)]),
        ("steps of minutes come to hours", 0, [Step(1, 5, 5), Step(2, 10, 6), Step(3, 15, 7), Step(4, 20, 8)]),
        ("two clocks that drift", 0, (1...24).map { Step($0 * 60, $0 * 60 + $0 / 2, $0 * 60 + $0 / 2) }),
    ]

    @Test(
        "It grows by no more than time does, plus minutes; a jump waits an hour; what is over, or accepted, is believed at once",
        arguments: trusts)
    func trust(name: String, accepted: Int64, steps: [Step]) {
        let (start, began) = (Sample.now, ContinuousClock.now)
        var trust = ClockTrust(known: 0, clock: start, at: began)
        _ = trust.read(start, accepted: 0, at: began)
        for step in steps {
            let clock = trust.read(
                start + step.clock * 60_000, accepted: accepted == 0 ? 0 : start + accepted * 60_000, at: began + .seconds(60 * step.passed)
            )
            #expect((clock.closing - start) / 60_000 == step.closing && clock.settled == clock.closing, "\(name), \(step): \(clock)")
            #expect((clock.ahead > 0) == (step.closing != step.clock), "\(name), \(step)")
        }
    }

    static let starts: [(String, Int64, [Step])] = [
        ("within a day", 23 * 60, [Step(1, 23 * 60 + 1, 23 * 60 + 1)]),
        ("after a weekend", 2 * day, [Step(1, 2 * day + 1, 1), Step(60, 2 * day + 60, 2 * day + 60)]),
        ("a clock that is set right", jump, [Step(1, jump + 1, 1), Step(2, 120, 120), Step(3, 121, 121)]),
    ]

    @Test(
        "A start a day after the last mark: questions are answered by the clock, and days wait an hour, or until the clock is right",
        arguments: starts)
    func start(name: String, shown: Int64, steps: [Step]) {
        let (mark, began) = (Sample.now, ContinuousClock.now)
        var trust = ClockTrust(known: mark, clock: mark + shown * 60_000, at: began)
        _ = trust.read(mark + shown * 60_000, accepted: 0, at: began)
        for step in steps {
            let clock = trust.read(mark + step.clock * 60_000, accepted: 0, at: began + .seconds(60 * step.passed))
            #expect(
                (clock.closing - mark) / 60_000 == step.closing && (clock.settled - mark) / 60_000 == step.clock,
                "\(name), \(step): \(clock)")
        }
    }

    /// A database whose clock the test moves, and one of its servers.
    private static func postgres() async throws -> (fixture: StoreUnderTest, open: @Sendable () async throws -> PostgresEventStore) {
        let fixture = try await StoreUnderTest(.postgres)
        await (try await fixture.open()).close()
        try await fixture.execute(
            """
            CREATE SCHEMA ahead; CREATE TABLE ahead.days (count integer); INSERT INTO ahead.days VALUES (0);
            CREATE FUNCTION ahead.now() RETURNS timestamptz LANGUAGE sql AS
              'SELECT pg_catalog.now() + make_interval(days => (SELECT count FROM ahead.days))'
            """)
        var options = PostgresEventStore.Options()
        options.durabilityRecheck = .zero
        return (
            fixture,
            { [options] in
                try await StoreUnderTest.postgres(fixture.place + "?options=-csearch_path%3Dahead,pg_catalog,public", options: options)
            }
        )
    }

    @Test("PostgreSQL's clock ten days ahead for a while closes no day, and stops no ingest once it is right again")
    func databaseJumps() async throws {
        let (fixture, open) = try await Self.postgres()
        let store = try await open()
        _ = try await store.projectID(named: "shop")
        let closing = DayClosing(database: store.sql, zones: [:])
        let closed = "SELECT min(next_day), max(folded_to) FROM report_progress"
        #expect(try await closing.perform()?.clockAhead == 0)
        let before = try await fixture.rows(closed)
        try await fixture.execute("UPDATE ahead.days SET count = 10")
        let ahead = try #require(try await closing.perform()).clockAhead
        #expect(abs(ahead - 10 * 86_400_000) < 600_000)
        #expect(try await fixture.rows(closed) == before)
        try await fixture.execute("UPDATE ahead.days SET count = 0")
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
        #expect(try await closing.perform()?.clockAhead == 0)

        // Somebody accepts a wrong one: the marks go ahead, and can be moved back but for days that have closed.
        try await fixture.execute("DELETE FROM report_zones; DELETE FROM report_bounds; DELETE FROM report_progress; DELETE FROM projects")
        try await fixture.execute("UPDATE ahead.days SET count = 10")
        let marks = ClockMarks(database: store.sql)
        _ = try await marks.accept(now: 0)
        #expect(try await closing.perform()?.clockAhead == 0)
        try await fixture.execute("UPDATE ahead.days SET count = 0")
        let other = try await open()
        await #expect(throws: StoreError.clockBehind) { try await other.commit(Sample.group([Sample.record(Sample.id(2))]), writer: 0) }
        #expect(try await marks.reset(now: 0).closed.isEmpty)
        #expect(try await other.commit(Sample.group([Sample.record(Sample.id(2))]), writer: 0).isEmpty)
        try await fixture.execute(
            "INSERT INTO projects (name) VALUES ('shop'); INSERT INTO report_progress SELECT project_id, '2030-01-01', '2030-01-01' FROM projects"
        )
        let reset = try await marks.reset(now: 0)
        #expect(reset.closed.map(\.project) == ["shop"])
        await other.close()
        await store.close()
    }

    @Test("The embedded store's clock ten days ahead for a while: each event is in the figures of its day")
    func machineJumps() async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        let (clock, passed, began) = (Locked(Sample.now), Locked<Int64>(0), ContinuousClock.now)
        @Sendable func open() async throws -> any EventStore {
            try await fixture.open(
                currentTime: { clock.withLock { $0 } }, uptime: { began + .milliseconds(passed.withLock { $0 }) })
        }
        @Sendable func move(_ milliseconds: Int64) {
            clock.withLock { $0 += milliseconds }
            passed.withLock { $0 += milliseconds }
        }
        let store = try await open()
        _ = try await store.projectID(named: "shop")
        func send(_ number: UInt64, _ store: any EventStore) async throws {
            _ = try await store.commit(Sample.group([Sample.record(Sample.id(number))]), writer: 0)
            move(1_000)
            _ = try await DayClosing(database: store.sql, zones: [:]).perform()
        }
        try await send(1, store)
        clock.withLock { $0 += 10 * 86_400_000 }
        try await send(2, store)
        move(25_000)
        // What the metrics of a server say meanwhile.
        let text = try await RunningServer.run(on: store) { server in
            var text = ""
            while !text.contains("hapax_clock_ahead_seconds") { text = try await server.metrics() }
            return text
        }
        #expect(text.contains("hapax_clock_ahead_seconds 864000"), "\(text.split(separator: "\n").filter { $0.contains("clock") })")
        clock.withLock { $0 -= 10 * 86_400_000 }
        let next = try await open()
        try await send(3, next)
        move(30 * 3_600_000)
        _ = try await DayClosing(database: next.sql, zones: [:]).perform()
        #expect(try await fixture.rows("SELECT events FROM report_days WHERE day = '2026-01-01'") == [["3"]])
        await next.close()

        // A start by a wrong clock stores what it cannot know to be wrong; then the marks are moved back.
        clock.withLock { $0 += 10 * 86_400_000 }
        let wrong = try await open()
        try await send(4, wrong)
        #expect(try await fixture.rows("SELECT max(day) FROM report_days") == [["2026-01-01"]])
        await wrong.close()
        clock.withLock { $0 -= 10 * 86_400_000 }
        let right = try await open()
        let reset = try await ClockMarks(database: right.sql).reset(now: clock.withLock { $0 })
        #expect(reset.events == 1 && reset.closed.isEmpty)
        #expect(try await fixture.rows("SELECT max(received_at) FROM events") == [["\(reset.now)"]])
        await right.close()
    }

    @Test("A jump is in the log once, and so is its end")
    func jumpIsLogged() async throws {
        let (fixture, open) = try await Self.postgres()
        let store = try await open()
        let (log, looks) = (RecordedLog(), Locked(0))
        let service = ReportService(
            closing: DayClosing(database: store.sql, zones: [:]), isStoreThere: { true }, logger: log.logger)
        let closing = Periodic(
            every: .zero,
            pause: { _ in
                let look = looks.withLock { looks in
                    looks += 1
                    return looks
                }
                if look < 5 { try await fixture.execute("UPDATE ahead.days SET count = \(look == 1 || look == 2 ? 10 : 0)") }
                if look == 5 { throw CancellationError() }
            }
        ) { await service.closeDays() }
        try await closing.run()
        #expect(log.lines.map(\.level) == [.error, .notice] && log.lines.first?.metadata["clock.ahead.seconds"] != nil, "\(log.lines)")
        await store.close()
    }
}
