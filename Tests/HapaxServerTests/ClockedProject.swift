import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// A store whose rows are received when the test says, and whose days close when the test says.
final class ClockedProject: Sendable {
    let fixture: StoreUnderTest
    private let state: Locked<(stores: [any EventStore], turn: Int, now: Int64, number: UInt64)>
    private let clock: Locked<Int64>
    let zones: Locked<[Int32: ReportZone]>

    /// - Parameter start: RFC 3339.
    init(_ kind: StoreUnderTest.Kind, zone: String = "Europe/Berlin", start: String) async throws {
        fixture = try await StoreUnderTest(kind)
        let clock = Locked(ClockedProject.seconds(start) * 1_000)
        self.clock = clock
        let store = try await fixture.open(currentTime: { clock.withLock { $0 } })
        state = Locked(([store], 0, ClockedProject.seconds(start), 0))
        zones = Locked([1: try #require(ReportZone(zone)), 2: .utc])
        for name in ["shop", "app"] { _ = try await store.projectID(named: name) }
        // PostgreSQL's own clock gave another time.
        if kind == .postgres {
            try await fixture.execute("UPDATE projects SET created_at = to_timestamp(\(ClockedProject.seconds(start)))")
        }
    }

    static func seconds(_ text: String) -> Int64 { (Timestamp(text)?.unixMilliseconds ?? -1) / 1_000 }

    /// That of each server in turn, if there are several.
    var store: any EventStore {
        state.withLock { state in
            state.turn += 1
            return state.stores[state.turn % state.stores.count]
        }
    }
    var now: Int64 { state.withLock { $0.now } }

    func move(to text: String) { move(to: Self.seconds(text)) }

    func move(to seconds: Int64) {
        state.withLock { $0.now = max($0.now, seconds) }
        clock.withLock { $0 = now * 1_000 }
    }

    /// Stores events that are received now, if their users end in a digit as of a device that each ten users share.
    ///
    /// - Parameter idsOf: The day that their ids are of, in days since 1970.
    func receive(
        _ events: [(name: String, time: Int64, user: String, properties: Properties)], project: Int32 = 1, idsOf day: Int32 = Sample.day
    ) async throws {
        let records = events.map { event in
            let number = state.withLock { state in
                state.number += 1
                return state.number
            }
            let id = Sample.id(number, day: day)
            let bytes = Sample.event(id, name: event.name, distinctID: event.user, time: event.time, properties: event.properties)
            let install = event.user.last?.wholeNumberValue.map { Sample.id(UInt64(900 + $0)) }
            var record = EventRecord(EventScanner.scan(bytes[...]), id: id, projectID: project, envelope: .init(installID: install))
            if install != nil { record.sequence = Int64(number) }
            return record
        }
        _ = try await store.commit(Sample.group(records), writer: 0)
        guard fixture.kind == .postgres else { return }
        // PostgreSQL's own clock gave another time.
        try await fixture.execute(
            "UPDATE events SET received_at = to_timestamp(\(now)) WHERE event_id IN (\(records.map { "'\($0.key.id)'" }.joined(separator: ",")))"
        )
    }

    func receive(_ name: String, at time: String, user: String = "u1", _ properties: Properties = [:], project: Int32 = 1) async throws {
        try await receive([(name, Self.seconds(time) * 1_000, user, properties)], project: project)
    }

    /// Closes what is due at the test's own time.
    @discardableResult
    func close(
        after: @escaping @Sendable (StoreSQL) async throws(StoreError) -> Void = { (_) throws(StoreError) in }, isTorn: Bool = false
    ) async throws -> DayClosing.Outcome? {
        let database = SteppedStore(base: store.sql, now: now, after: after, isTorn: isTorn)
        return try await DayClosing(database: database, zones: zones.withLock { $0 }).perform()
    }

    func report(_ from: String, _ to: String, _ basis: DailyReport.Basis = .closed, project: Int32 = 1) async throws -> DailyReport {
        let database = store.sql
        let reader = DailyReportReader(database: database, zones: zones.withLock { $0 })
        return try await reader.report(
            project, (CalendarDay(from), CalendarDay(to)), basis, now: now, in: QuestionTurn(within: .seconds(600))
        ) { query throws(StoreError) in
            try await query.figures(database, in: QuestionTurn(within: .seconds(600)))
        }
    }

    func day(_ day: String, _ basis: DailyReport.Basis = .closed) async throws -> DailyReport.Day {
        let next = try #require(CalendarDay(day)).advanced(by: 1).description
        return try #require(try await report(day, next, basis).days.first)
    }

    /// All events of a project, as they are exported.
    func export(_ project: Int32 = 1) async throws -> String {
        var writer = JSONWriter()
        let end = Timestamp(clampingUnixMilliseconds: EventLimits.maximumTime).unixMicroseconds
        var (rest, width) = (Optional(EventQuery(projectID: project, received: 0..<end, limit: .max)), 0)
        while let query = rest {
            let step = try await store.reader.stepForward(query, width: &width, in: QuestionTurn(within: .seconds(600)))
            for event in step.events { writer.line(event) }
            rest = step.rest
        }
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    /// Compares a report with what another program makes of the same events.
    func expectPythonAgrees(_ report: DailyReport, project: Int32 = 1) async throws {
        let json = String(decoding: report.json(), as: UTF8.self)
        let answer = try await Python.run("daily_report", input: json + "\n" + (try await export(project)))
        #expect(answer == "checked \(report.days.count)\n", "\(answer)")
    }

    /// Another server of the same database, which has a hand in all that follows.
    func addServer() async throws {
        let store = try await fixture.open(currentTime: { [clock] in clock.withLock { $0 } })
        state.withLock { $0.stores.append(store) }
    }

    func restart() async throws {
        let count = state.withLock { $0.stores.count }
        await stop()
        for _ in 0..<count { try await addServer() }
    }

    func stop() async {
        let stores = state.withLock { state in
            defer { state.stores = [] }
            return state.stores
        }
        for store in stores { await store.close() }
    }
}
