import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Retention (I2, R41)", .endsWhenItHangs)
struct RetentionTests {
    /// Outcomes by the way that a request goes.
    private static func send(_ ids: [EventID], to store: any EventStore) async throws -> Set<Receipt.Outcome> {
        let writer = GroupCommitWriter(store: store, metrics: ServerMetrics(), logger: Logger(label: "test"))
        async let running: Void = writer.run()
        let request = try Sample.request(ids.map { Sample.event($0) })
        let outcome = try await writer.submit(request)
        writer.stop()
        await running
        return Set(outcome.outcomes)
    }

    private static func undated(_ numbers: Range<Int>) -> [EventID] { numbers.map { .derived(name: "paid", key: "\($0)") } }

    private static func dated(_ numbers: Range<UInt64>, on day: CalendarDay?) -> [EventID] {
        numbers.map { Sample.id($0, day: day?.daysSince1970 ?? 0) }
    }

    @Test(
        "What is older than the horizon goes, wherever it lies, and returns at no server; ids without a day stay as tombstones",
        arguments: StoreUnderTest.Kind.allCases)
    func oldEventsGo(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        let retention = Retention(database: store.sql)
        let today = CalendarDay(daysSince1970: Int32(try await store.sql.settled() / 86_400_000))
        // Before the first month, of a whole month, and of one that has no partition.
        let days = [CalendarDay(year: 2024, month: 5, day: 5)] + (kind == .postgres ? [CalendarDay(year: 2026, month: 1, day: 9)] : [])
        var old = days.enumerated().flatMap { Self.dated(UInt64($0 * 10)..<UInt64($0 * 10 + 3), on: $1) }
        if kind == .postgres {
            try await fixture.execute("DROP TABLE events_2026_02")
            old += Self.dated(50..<53, on: CalendarDay(year: 2026, month: 2, day: 28))
        }
        #expect(try await Self.send(old + Self.undated(0..<3), to: store) == [.stored])
        try await fixture.execute(
            "UPDATE events SET received_at = received_at - \(kind == .postgres ? "interval '200 days'" : "200 * 86400000")")
        let kept = Self.dated(60..<63, on: today) + Self.undated(3..<6)
        #expect(try await Self.send(kept, to: store) == [.stored])
        let preview = try await retention.preview(months: 3)
        #expect(
            preview.undated == 3 && preview.months.map(\.month) == (kind == .postgres ? ["2024-05", "2026-01", "2026-02"] : ["2024-05"]))
        #expect(preview.months.allSatisfy { $0.events == 3 })
        #expect(try await retention.state() == .init(months: nil, horizon: 0, cleared: 0))
        // A server that is stopped now, and goes on when all is done.
        let stopped = kind == .postgres ? try await fixture.openWithMovingClock() : store
        let stale = CommitGroup([try Sample.request(Self.dated(70..<73, on: days[0]).map { Sample.event($0) })], horizon: 0)
        let set = try await retention.set(months: 3)
        #expect(set.horizon == preview.horizon && set.months == 3 && set.cleared == 0)
        try await store.refresh()
        #expect(try await Self.send(old, to: store) == [.duplicate])
        #expect(try await Self.send(Self.dated(80..<83, on: days[0]), to: store) == [.expired])

        let done = try await retention.perform()
        #expect(done?.cleared == set.horizon)
        #expect(try await retention.perform() == nil)
        #expect(try await fixture.rows("SELECT count(*), count(nullif(event, '')) FROM events") == [["9", "6"]])
        #expect(try await fixture.rows("SELECT count(*) FROM kept_events") == [["6"]])
        await #expect(throws: StoreError.collided) { _ = try await stopped.commit(stale.storeGroup, writer: 0) }
        for server in [stopped, store] {
            #expect(try await Self.send(old, to: server) == [.expired])
            #expect(try await Self.send(kept + Self.undated(0..<3), to: server) == [.duplicate])
        }
        #expect(try await fixture.rows("SELECT count(*) FROM events") == [["9"]])

        // Only ever higher: what is removed stays so, however long later events are to be kept.
        #expect(try await retention.set(months: 100).horizon == set.horizon)
        #expect(try await retention.set(months: 0) == .init(months: nil, horizon: set.horizon, cleared: set.horizon))
        await #expect(throws: Registry.Problem.self) { _ = try await retention.set(months: 1) }
        await store.close()
        if kind == .postgres { await stopped.close() }
        let started = try await fixture.openWithMovingClock()
        #expect(try await Self.send(old, to: started) == [.expired])
        await started.close()
    }

    @Test("A row of an old month that is being stored is waited for, and goes with the others the next time")
    func openTransactionIsWaitedFor() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.openWithMovingClock()
        let retention = Retention(database: store.sql)
        let writer = try PostgresConnection(uri: fixture.place)
        func insert(_ number: UInt64) -> String {
            """
            INSERT INTO events (project_id, event_id, bucket, event, distinct_id, time, fingerprint, properties)
            VALUES (1, '\(Sample.id(number))', \(Sample.day), 'paid', 'u', now(), 1, '{}')
            """
        }
        try writer.execute("BEGIN; \(insert(1))")
        let set = try await retention.set(months: 3)
        await #expect(throws: StoreError.self) { _ = try await retention.perform() }
        #expect(try await retention.state() == set)
        try writer.execute("COMMIT")
        #expect(try await retention.perform()?.cleared == set.horizon)
        #expect(try await fixture.rows("SELECT count(*) FROM events") == [["0"]])
        #expect(throws: PostgresError.self) { try writer.execute(insert(2)) }
        await store.close()
    }

    @Test(
        "Rows that somebody's own trigger keeps end in a failure, not in a loop, and go once it is away",
        arguments: StoreUnderTest.Kind.allCases)
    func keptRowsEndInAFailure(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        #expect(try await Self.send(Self.undated(0..<3), to: store) == [.stored])
        try await fixture.execute(
            kind == .postgres
                ? """
                UPDATE events SET received_at = received_at - interval '200 days';
                CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                CREATE TRIGGER keep BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION keep()
                """
                : """
                UPDATE events SET received_at = received_at - 200 * 86400000;
                CREATE TRIGGER keep BEFORE UPDATE ON events BEGIN SELECT RAISE(IGNORE); END
                """)
        let retention = Retention(database: store.sql)
        let set = try await retention.set(months: 2)
        await #expect(throws: StoreError.unavailable(Tombstone.unchangeable)) { _ = try await retention.perform() }
        #expect(try await retention.state() == set)
        try await fixture.execute(kind == .postgres ? "DROP TRIGGER keep ON events" : "DROP TRIGGER keep")
        #expect(try await retention.perform()?.cleared == set.horizon)
        #expect(try await fixture.rows("SELECT count(*) FROM kept_events") == [["0"]])
        await store.close()
    }

    @Test("The horizon lies some whole months back, before no day that is open, and rises by one month at most")
    func horizonIsWholeMonths() async throws {
        func day(_ text: String) throws -> CalendarDay { try #require(CalendarDay(text)) }
        for (today, months, open, horizon) in [
            ("2026-11-28", 2, nil, "2026-09-01"), ("2026-11-30", 25, "2026-11-29", "2024-10-01"), ("2026-01-01", 2, nil, "2025-11-01"),
            ("2026-12-31", 12, nil, "2025-12-01"), ("2026-11-28", 2, "2026-05-31", "2026-05-01"), ("2026-03-31", 1_200, nil, "1970-01-01"),
        ] {
            let found = Retention.horizon(months, today: try day(today), open: try open.map(day))
            #expect(try found == day(horizon).daysSince1970, "\(today) \(months)")
        }
        let fixture = try await StoreUnderTest(.sqlite)
        let store = try await fixture.openWithMovingClock()
        let first = try day("2024-06-01").daysSince1970
        let retention = Retention(database: store.sql)
        try await retention.advance()
        #expect(try await retention.state().horizon == 0)
        try await fixture.execute("UPDATE retention SET months = 2, horizon = \(first)")
        try await retention.advance()
        #expect(try await retention.state().horizon == day("2024-07-01").daysSince1970)
        // Not again within a day, whoever starts.
        try await retention.advance()
        #expect(try await retention.state().horizon == day("2024-07-01").daysSince1970)
        try await fixture.execute("UPDATE retention SET raised_at = raised_at - 86400000")
        try await retention.advance()
        #expect(try await retention.state().horizon == day("2024-08-01").daysSince1970)
        await store.close()
    }

    @Test("Over HTTP: shown, tried, set and done; refused for other numbers", arguments: StoreUnderTest.Kind.allCases)
    func retentionOverHTTP(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        let old = Self.dated(0..<3, on: CalendarDay(year: 2024, month: 5, day: 5)) + Self.dated(3..<4, on: .init(daysSince1970: Sample.day))
        #expect(try await Self.send(old, to: store) == [.stored])
        let today = CalendarDay(daysSince1970: Int32(try await store.sql.settled() / 86_400_000))
        #expect(try await Self.send(Self.dated(5..<6, on: today), to: store) == [.stored])
        try await RunningServer.run(on: store) { server in
            @Sendable func admin(_ body: String?) async throws -> (status: Int, text: String) {
                let connection = try await RawHTTP(port: server.port)
                let headers = ["Authorization": "Bearer \(RunningServer.adminKey)", "Content-Type": "application/json"]
                try await connection.send(
                    RawHTTP.request(
                        body == nil ? "GET" : "PATCH", "/v1/admin/retention", headers: headers, body: body.map { Array($0.utf8) }))
                let answer = try await connection.answer()
                return (answer.status, String(decoding: answer.body, as: UTF8.self))
            }
            #expect(try await admin(nil).text == #"{"months":null,"kept_from":null,"state":"done"}"#)
            for (body, status) in [
                (#"{"months":1}"#, 400), (#"{}"#, 400), (#"{"months":"two"}"#, 400), (#"{"months":2.5}"#, 400), (#"{"months":-3}"#, 400),
                (#"{"months":3,"days":1}"#, 400), (#"{"months":2,"yes":1}"#, 400), (#"{"months":2}"#, 200),
            ] { #expect(try await admin(body).status == status, "\(body)") }
            #expect(try await admin(nil).text.contains(#""months":null"#))
            #expect(try await admin(#"{"months":2,"yes":true}"#).text.contains(#""months":2"#))
            while try await !admin(nil).text.contains(#""state":"done""#) { await Task.yield() }
            #expect(try await server.get("/v1/events/\(old[0])").status == 404)
            let events = old.map { Sample.event($0) }
            let receipt = try await server.receipt(EventBatch(envelope: .init(), events: events).encoded())
            #expect(Set(receipt.results.map(\.outcome)) == (kind == .postgres ? [.expired] : [.expired, .duplicate]))
        }
        #expect(try await fixture.rows("SELECT count(*) FROM events") == [[kind == .postgres ? "1" : "2"]])
    }
}
