import HapaxModel
import Logging
import Testing

@testable import HapaxServer

@Suite("The owner of group commit", .endsWhenItHangs)
struct GroupCommitWriterTests {
    /// Starts the writer around a scripted store, runs `body`, stops.
    private func withWriter<Value: Sendable>(
        _ store: ScriptedStore, heldBytes: Int = ServerLimits().heldBytes,
        _ body: @Sendable @escaping (GroupCommitWriter) async throws -> Value
    ) async throws -> Value {
        let writer = GroupCommitWriter(
            store: store, metrics: ServerMetrics(), heldBytes: heldBytes, logger: Logger(label: "test"))
        async let running: Void = writer.run()
        do {
            let value = try await body(writer)
            writer.stop()
            await running
            return value
        } catch {
            writer.stop()
            await running
            throw error
        }
    }

    @Test("A duplicate found inside a group is answered only after the COMMIT that stored its first copy (I4)")
    func duplicateIsAnsweredAfterItsFirstCopyIsCommitted() async throws {
        let store = ScriptedStore()
        store.hold()
        try await withWriter(store) { writer in
            let request = try Sample.request([Sample.event(Sample.id(1)), Sample.event(Sample.id(1))])
            async let answer = writer.submit(request)
            await store.untilHeld()
            #expect(store.committedIDs.isEmpty)
            store.release()
            #expect(try await answer.outcomes == [.stored, .duplicate])
            #expect(store.committedIDs == [Sample.id(1)])
        }
    }

    @Test("Data that the database refuses is halved until only its event is refused (D13)", arguments: [1, 2, 7, 64, 1_000])
    func refusedDataCostsOnlyItsEvent(count: Int) async throws {
        let culprit = Sample.id(UInt64(count / 2 + 1))
        let store = ScriptedStore()
        store.fail { group in group.records.contains { $0.key.id == culprit } ? .dataRefused("22P05") : nil }
        let outcomes = try await withWriter(store) { writer in
            try await writer.submit(try Sample.request((1...count).map { Sample.event(Sample.id(UInt64($0))) }))
        }
        #expect(outcomes.stored == count - 1)
        #expect(outcomes.results.map(\.eventID) == [culprit] && outcomes.results.map(\.reason) == ["refused_by_store"])
        #expect(store.committedIDs.count == count - 1)
    }

    @Test(
        "If the store cannot compare an event that comes again in other bytes, only this one is to be sent again; the rest is told (I8, I12)"
    )
    func failedComparisonCostsOnlyItsEvent() async throws {
        let store = ScriptedStore()
        store.failChecks()
        let events = [Sample.event(Sample.id(1)), Sample.event(Sample.id(1), properties: ["a": 1]), Sample.event(Sample.id(2))]
        let outcome = try await withWriter(store) { try await $0.submit(try Sample.request(events)) }
        #expect(outcome.outcomes == [.stored, .retry, .stored])
    }

    @Test("Refused data without any event ends in 503, not in a loop")
    func refusalWithoutEventsIsUnavailable() async throws {
        let store = ScriptedStore()
        store.fail { $0.reports.isEmpty ? nil : .dataRefused("22003") }
        let envelope = EventBatch.Envelope(installID: Sample.id(9), created: 1)
        await #expect(throws: RequestProblem.self) {
            try await withWriter(store) { writer in
                try await writer.submit(try Sample.request([Sample.event(Sample.id(1))], envelope: envelope))
            }
        }
    }

    @Test("A collision is tried again; the answer is as if nothing had happened")
    func collisionIsRetried() async throws {
        let store = ScriptedStore()
        let attempts = Locked(0)
        store.fail { _ in
            attempts.withLock { attempts in
                attempts += 1
                return attempts < 4 ? .collided : nil
            }
        }
        let outcomes = try await withWriter(store) { try await $0.submit(try Sample.request([Sample.event(Sample.id(1))])) }
        #expect(outcomes.outcomes == [.stored])
        #expect(attempts.withLock { $0 } == 4)
    }

    @Test("Endless collisions end in 503, bounded (I13)")
    func endlessCollisionsEndIn503() async throws {
        let store = ScriptedStore()
        store.fail { _ in .collided }
        let problem = await #expect(throws: RequestProblem.self) {
            try await withWriter(store) { try await $0.submit(try Sample.request([Sample.event(Sample.id(1))])) }
        }
        #expect(problem?.code == .storeUnavailable)
    }

    @Test("Server trouble is 503 for the whole group and refuses no event for good", arguments: ["08006", "53100", "57014", "40003"])
    func storeTroubleIs503(state: String) async throws {
        let error = StoreError(PostgresError(kind: .statement, sqlState: state, summary: "a statement failed"))
        let store = ScriptedStore()
        store.fail { _ in error }
        let problem = await #expect(throws: RequestProblem.self) {
            try await withWriter(store) { try await $0.submit(try Sample.request([Sample.event(Sample.id(1))])) }
        }
        #expect(problem?.code.status == 503)
        #expect(store.committedIDs.isEmpty)
    }

    @Test("Only class 22, 54000 and 54001 may refuse an event; 40P01, 40001 and 23514 are tried again")
    func onlyNamedStatesRefuseEvents() {
        func error(_ state: String, _ kind: PostgresError.Kind = .statement) -> StoreError {
            StoreError(PostgresError(kind: kind, sqlState: state, summary: ""))
        }
        for state in ["22P05", "22P02", "22003", "22021", "54000", "54001"] { #expect(error(state) == .dataRefused(state)) }
        for state in ["40P01", "40001", "23514"] { #expect(error(state) == .collided) }
        for state in ["54023", "23505", "42P01", "53200", "53300", "57P01", "25006", "XX000", "40003", ""] {
            guard case .unavailable = error(state) else { Issue.record("\(state) is not the store's trouble"); continue }
        }
        // A connection lost while an error was on its way says nothing about the data.
        guard case .unavailable = error("22P05", .connection) else { Issue.record("a lost connection refused an event"); return }
    }

    @Test("Too much held is 503 at once, while the group before is still being committed (I13)")
    func tooMuchHeldIsRefused() async throws {
        let store = ScriptedStore()
        store.hold()
        let request = try Sample.request([Sample.event(Sample.id(1))])
        try await withWriter(store, heldBytes: request.bytes) { writer in
            async let first = writer.submit(request)
            await store.untilHeld()
            let problem = await #expect(throws: RequestProblem.self) {
                try await writer.submit(try Sample.request([Sample.event(Sample.id(2))]))
            }
            #expect(problem?.code == .overloaded && store.committedIDs.isEmpty)
            store.release()
            let outcomes = try await first.outcomes
            #expect(outcomes == [.stored])
        }
    }

    @Test("After stop nothing is taken; what waited was committed (I17)")
    func stopCommitsWhatWaits() async throws {
        let store = ScriptedStore()
        let writer = GroupCommitWriter(store: store, metrics: ServerMetrics(), logger: Logger(label: "test"))
        store.hold()
        async let running: Void = writer.run()
        async let answer = writer.submit(try Sample.request([Sample.event(Sample.id(1))]))
        await store.untilHeld()
        writer.stop()
        let problem = await #expect(throws: RequestProblem.self) {
            try await writer.submit(try Sample.request([Sample.event(Sample.id(2))]))
        }
        #expect(problem?.code == .stopping)
        store.release()
        #expect(try await answer.outcomes == [.stored])
        await running
    }
}
