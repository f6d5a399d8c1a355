import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// What an answer says of rows that are gone.
@Suite("Removed rows and answers (S5, S23)", .serialized, .endsWhenItHangs)
struct RemovedRowsTests {
    private static func warnings(_ project: ClockedProject, _ from: String, _ to: String) async throws -> [Bool] {
        let reader = AnalysisReader(
            database: SteppedStore(base: project.store.sql, now: project.now), zones: [:], projectID: 1,
            turn: QuestionTurn(within: .seconds(600)))
        let days = try await reader.days((CalendarDay(from), CalendarDay(to)), now: project.now)
        let steps = [EventFilter(name: "order"), EventFilter(name: "paid")]
        return [
            try await SeriesQuery(filter: EventFilter()).answer(days, reader).frame.isRowsRemoved,
            try await BreakdownQuery(filter: EventFilter(), property: "p").answer(days, reader).frame.isRowsRemoved,
            try await FunnelQuery(steps: steps, within: 60_000).answer(days, reader).frame.isRowsRemoved,
            try await ReturnQuery().answer(days, reader).frame.isRowsRemoved,
        ]
    }

    @Test(
        "Rows go by the day of their id, or by their user: each answer about a span that begins before their time says so, no later one does",
        arguments: StoreUnderTest.Kind.allCases, [false, true])
    func removalsAreTold(kind: StoreUnderTest.Kind, isErasure: Bool) async throws {
        let project = try await ClockedProject(kind, zone: "UTC", start: "2026-01-12T10:00:00Z")
        try await project.receive("a", at: "2026-01-12T09:00:00Z", user: "other")
        try await project.close()
        project.move(to: "2026-01-13T12:00:00Z")
        // Dated and undated ids of an order of last year, and one of today's that retention leaves alone.
        let order = [("order", ClockedProject.seconds("2026-01-13T11:00:00Z") * 1_000, "u1", [:] as Properties)]
        try await project.receive(order, idsOf: try #require(CalendarDay("2025-06-15")).daysSince1970)
        project.move(to: "2026-01-16T12:00:00Z")
        try await project.close()
        let (before, behind) = (("2026-01-13", "2026-01-14"), ("2026-01-14", "2026-01-15"))
        #expect(try await Self.warnings(project, before.0, before.1) == [false, false, false, false])
        if isErasure {
            let erasures = Erasures(database: project.store.sql)
            let erasure = try await erasures.add(project: "shop", user: "u1")
            project.move(to: project.now + 1)
            _ = try await erasures.finished(erasure)
        } else {
            let retention = Retention(database: project.store.sql)
            _ = try await retention.set(months: 2)
            _ = try await retention.perform()
        }
        #expect(try await project.fixture.rows("SELECT count(*) FROM kept_events") == [["1"]])
        #expect(try await Self.warnings(project, before.0, before.1) == [true, true, true, true])
        #expect(try await Self.warnings(project, behind.0, behind.1) == [false, false, false, false])
        // The days before count as well, where an answer tells of them.
        let reader = AnalysisReader(
            database: SteppedStore(base: project.store.sql, now: project.now), zones: [:], projectID: 1,
            turn: QuestionTurn(within: .seconds(600)))
        let days = try await reader.days((CalendarDay(behind.0), CalendarDay(behind.1)), now: project.now)
        #expect(try await SeriesQuery(filter: EventFilter(), compares: true).answer(days, reader).frame.isRowsRemoved)
        await project.store.close()
    }

    @Test("An answer that was kept is not given again once a user of it is erased", arguments: StoreUnderTest.Kind.allCases)
    func keptAnswersForget(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        defer { withExtendedLifetime(fixture) {} }
        try await RunningServer.run(on: store) { server in
            let event = Sample.event(Sample.id(1), name: "canary-name", distinctID: "u1", properties: ["p": "canary"])
            #expect(try await server.receipt(EventBatch(envelope: .init(), events: [event]).encoded()).stored == 1)
            let paths = ["breakdown?property=p&", "daily?"].map { "/v1/reports/\($0)from=2026-01-01&to=2026-01-02&basis=all" }
            for path in paths {
                var text = ""
                while !text.contains("canary") { text = String(decoding: try await server.get(path).body, as: UTF8.self) }
            }
            let erasures = Erasures(database: store.sql)
            _ = try await erasures.finished(try await erasures.add(project: "shop", user: "u1"))
            for path in paths {
                let answer = try await server.get(path)
                #expect(answer.status == 200 && !String(decoding: answer.body, as: UTF8.self).contains("canary"), "\(path)")
            }
        }
    }
}
