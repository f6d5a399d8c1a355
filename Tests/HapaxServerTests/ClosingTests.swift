import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

/// What goes on beside the closing of days.
@Suite("Closing days beside erasures, removals, zones and other projects", .serialized, .endsWhenItHangs)
struct ClosingTests {
    /// A closed day, and an open one, while a user is erased behind the n-th question.
    private static func figures(_ kind: StoreUnderTest.Kind, erasedAfter number: Int, isTorn: Bool) async throws -> [DailyFigures] {
        let project = try await ClockedProject(kind, zone: "UTC", start: "2026-01-12T10:00:00Z")
        try await project.receive("a", at: "2026-01-12T09:00:00Z")
        try await project.close()
        for day in ["13", "14"] {
            project.move(to: "2026-01-\(day)T12:00:00Z")
            for user in ["u1", "u1", "u2"] { try await project.receive("$AppStart", at: "2026-01-\(day)T11:00:00Z", user: user) }
            try await project.receive("view", at: "2026-01-\(day)T11:00:00Z", user: "u1")
        }
        let count = Locked(0)
        let (fixture, now) = (project.fixture, project.now)
        let after: @Sendable (StoreSQL) async throws(StoreError) -> Void = { (_) throws(StoreError) in
            let turn = count.withLock { count in
                count += 1
                return count
            }
            guard turn == number else { return }
            do {
                try await fixture.execute("UPDATE events SET event = '', distinct_id = '' WHERE distinct_id = 'u1'")
            } catch { throw .unavailable("\(error)") }
        }
        try await project.close(after: after, isTorn: isTorn)
        // Of a closed day what is stored counts; the days' figures are read without any interruption.
        let closed = try await project.day("2026-01-13").figures
        let returns = try await fixture.rows("SELECT coalesce(sum(users), 0) FROM report_returns WHERE day = '2026-01-13'")
        #expect(isTorn || returns == [["\(closed.newUsers)"]])
        // Behind the second of the statements that belong together.
        count.withLock { $0 = number - 2 }
        let database = SteppedStore(base: project.store.sql, now: now, after: after, isTorn: isTorn)
        let bounds = try await project.day("2026-01-14").bounds
        let query = DailyQuery(projectID: 1, day: bounds, receivedBefore: bounds.closes, foldedTo: 0)
        let open = try await query.figures(database, in: QuestionTurn(within: .seconds(600)))
        await project.store.close()
        return [closed, open]
    }

    @Test(
        "A user is erased between any two questions: a day, closed or open, has as many events as its names and as many new users as its cohort (S6)",
        arguments: StoreUnderTest.Kind.allCases)
    func dayIsOfOneMoment(kind: StoreUnderTest.Kind) async throws {
        var isTorn = false
        for number in [5, 8, 9, 10, 11, 12, 13, 40] {
            for figures in try await Self.figures(kind, erasedAfter: number, isTorn: false) { #expect(figures.other == 0, "\(number)") }
            isTorn = try await Self.figures(kind, erasedAfter: number, isTorn: true).contains { $0.other != 0 } || isTorn
        }
        #expect(isTorn, "a control: asked one by one they are torn")
    }

    @Test("A project that is removed while days close leaves no row in any table (S13)", arguments: StoreUnderTest.Kind.allCases)
    func removalBesideClosing(kind: StoreUnderTest.Kind) async throws {
        let project = try await ClockedProject(kind, zone: "UTC", start: "2026-01-12T10:00:00Z")
        try await project.receive("a", at: "2026-01-12T09:00:00Z")
        try await project.receive("a", at: "2026-01-12T09:00:00Z", project: 2)
        let erasures = Erasures(database: project.store.sql, serversKnow: 0)
        let removal = try await erasures.add(project: "shop", user: nil)
        if kind == .sqlite { project.move(to: project.now + 1) }
        let hasTried = Locked(false)
        try await project.close(after: { (sql) throws(StoreError) in
            guard "\(sql.parts)".contains("name FROM projects"), hasTried.withLock({ !$0 }) else { return }
            hasTried.withLock { $0 = true }
            do { #expect(try await erasures.perform(removal) == nil, "it waits until the days are closed") } catch {
                throw .unavailable("\(error)")
            }
        })
        #expect(hasTried.withLock { $0 })
        _ = try await erasures.finished(removal)
        try await project.close()
        for table in ReportTables.all + ["removals", "installs", "keys", "erasures", "projects", "kept_events"] {
            #expect(try await project.fixture.rows("SELECT count(*) FROM \(table) WHERE project_id = 1") == [["0"]], "\(table)")
        }
        await project.store.close()
    }

    @Test(
        "A project whose zone this program does not know stops no other one; it is named with its lag, in the log once, and closes again (S7)",
        arguments: StoreUnderTest.Kind.allCases)
    func unknownZoneStopsOneProject(kind: StoreUnderTest.Kind) async throws {
        let project = try await ClockedProject(kind, start: "2026-01-12T10:00:00Z")
        for number: Int32 in [1, 2] { try await project.receive("a", at: "2026-01-12T09:00:00Z", project: number) }
        try await project.close()
        project.zones.withLock { $0 = [:] }
        try await project.fixture.execute("UPDATE report_zones SET time_zone = 'Mars/Olympus' WHERE project_id = 1")
        project.move(to: "2026-01-15T10:00:00Z")
        // Later for both: one has to be counted.
        for number: Int32 in [1, 2] { try await project.receive("a", at: "2026-01-12T09:30:00Z", project: number) }
        project.move(to: "2026-01-15T10:01:00Z")
        let outcome = try #require(try await project.close())
        #expect(Array(outcome.failures.keys) == ["shop"] && "\(outcome.failures)".contains("Mars/Olympus"))
        let other = try await project.report("2026-01-12", "2026-01-15", project: 2)
        #expect(other.days.allSatisfy { $0.state == .closed } && other.days.map(\.late) == [1, 0, 0])
        let (database, now) = (project.store.sql, project.now * 1_000)
        let lag = try await StoreWatch.Figures(database, project.store.reader, now: now, as: .own).closingLag
        #expect(lag.map(\.project) == ["app", "shop"] && lag[0].seconds == 0 && lag[1].seconds > 86_400, "\(lag)")

        let (log, looks) = (RecordedLog(), Locked(0))
        let zones = project.zones
        let service = ReportService(
            closing: DayClosing(database: SteppedStore(base: database, now: project.now), zones: zones.withLock { $0 }),
            isStoreThere: { true }, logger: log.logger)
        let closing = Periodic(
            every: .zero,
            pause: { [fixture = project.fixture] _ in
                let look = looks.withLock { looks in
                    looks += 1
                    return looks
                }
                if look == 2 { try await fixture.execute("UPDATE report_zones SET time_zone = 'Europe/Berlin' WHERE project_id = 1") }
                if look == 3 { throw CancellationError() }
            }
        ) { await service.closeDays() }
        try await closing.run()
        #expect(
            log.lines.map { $0.metadata["project"] } == ["shop", "shop"] && log.lines.map(\.level) == [.error, .notice], "\(log.lines)")
        #expect(try await project.report("2026-01-12", "2026-01-15").days.allSatisfy { $0.state == .closed })
        await project.store.close()
    }

    /// Each day begins where the one before ended.
    private static func expectOneDayAfterAnother(_ project: ClockedProject) async throws {
        project.move(to: "2026-01-20T20:00:00Z")
        try await project.close()
        let days = try await project.report("2026-01-12", "2026-01-20").days.map(\.bounds)
        #expect(zip(days, days.dropFirst()).allSatisfy { $0.ends == $1.starts }, "\(days)")
    }

    @Test(
        "A zone that is set while a server first sees the project: no hour belongs to two days or none (S8)",
        arguments: StoreUnderTest.Kind.allCases, [false, true])
    func zoneBesideFirstLook(kind: StoreUnderTest.Kind, isServerFirst: Bool) async throws {
        let project = try await ClockedProject(kind, start: "2026-01-12T10:00:00Z")
        project.zones.withLock { $0 = [:] }
        try await project.receive("a", at: "2026-01-12T09:00:00Z")
        let hasSet = Locked(false)
        let settings = project.store.sql
        if isServerFirst {
            let interrupted = SteppedStore(
                base: settings,
                after: { (sql) throws(StoreError) in
                    guard "\(sql.parts)".contains("FROM report_zones WHERE"), hasSet.withLock({ !$0 }) else { return }
                    hasSet.withLock { $0 = true }
                    do { try await project.close() } catch { throw .unavailable("\(error)") }
                })
            let registry = Registry(database: interrupted)
            _ = try await registry.set("shop", timeZone: "Asia/Kolkata", now: project.now * 1_000)
        } else {
            let now = project.now * 1_000
            try await project.close(after: { (sql) throws(StoreError) in
                guard "\(sql.parts)".contains("report_zones"), hasSet.withLock({ !$0 }) else { return }
                hasSet.withLock { $0 = true }
                do { _ = try await Registry(database: settings).set("shop", timeZone: "Asia/Kolkata", now: now) } catch {
                    throw .unavailable("\(error)")
                }
            })
        }
        try await Self.expectOneDayAfterAnother(project)
        #expect(try await Registry(database: settings).contents().project(named: "shop").timeZone == "Asia/Kolkata")
        await project.store.close()
    }

    @Test(
        "A zone that is changed behind days that are stored: the next one begins where they end (S8)",
        arguments: StoreUnderTest.Kind.allCases)
    func zoneIsChangedBehindBounds(kind: StoreUnderTest.Kind) async throws {
        let project = try await ClockedProject(kind, start: "2026-01-12T10:00:00Z")
        project.zones.withLock { $0 = [:] }
        try await project.receive("a", at: "2026-01-12T09:00:00Z")
        try await project.close()
        try await project.fixture.execute("UPDATE report_zones SET time_zone = 'America/Los_Angeles' WHERE project_id = 1")
        try await Self.expectOneDayAfterAnother(project)
        await project.store.close()
    }
}
