import HapaxModel
import StoreStandIns

@testable import HapaxServer

/// A store in memory that can be held in mid-commit and told to fail.
final class ScriptedStore: EventStore {
    private struct State {
        var rows: [EventKey: Int64] = [:]
        var failure: @Sendable (StoreGroup) -> StoreError? = { _ in nil }
        var isHolding = false
        var held: [CheckedContinuation<Void, Never>] = []
        var watchers: [CheckedContinuation<Void, Never>] = []
        var checkFails = false
        var upkeeps = 0
        var upkeepFails = false
    }

    private let state = Locked(State())

    let reader: any EventReader = NoReader()
    let sql: any SQLStore = NoSQL()

    var committedIDs: Set<EventID> { state.withLock { Set($0.rows.keys.map(\.id)) } }

    func fail(_ failure: @escaping @Sendable (StoreGroup) -> StoreError?) {
        state.withLock { $0.failure = failure }
    }

    var upkeeps: Int { state.withLock { $0.upkeeps } }

    func failUpkeep(_ fails: Bool) { state.withLock { $0.upkeepFails = fails } }

    func failChecks() {
        state.withLock { $0.checkFails = true }
    }

    /// From now on a commit stays before its end.
    func hold() {
        state.withLock { $0.isHolding = true }
    }

    /// Returns when a commit is held.
    func untilHeld() async {
        await withCheckedContinuation { continuation in
            let isHeld = state.withLock { state in
                if state.held.isEmpty { state.watchers.append(continuation) }
                return !state.held.isEmpty
            }
            if isHeld { continuation.resume() }
        }
    }

    /// Lets held commits, and all later ones, go on.
    func release() {
        let held = state.withLock { state in
            state.isHolding = false
            defer { state.held = [] }
            return state.held
        }
        for continuation in held { continuation.resume() }
    }

    let writerCount = 1
    let horizon: Int32 = 0

    func projectID(named name: String) async throws(StoreError) -> Int32 { 1 }
    func check() async throws(StoreError) {
        if state.withLock({ $0.checkFails }) { throw .unavailable("test") }
    }
    let crowdedMonths: [CrowdedMonth] = []
    /// What it says of events in other bytes.
    func compare(_ records: [EventRecord], writer: Int) async throws(StoreError) -> [Bool?] {
        if state.withLock({ $0.checkFails }) { throw .unavailable("test") }
        return records.map { _ in false }
    }
    func refresh() async throws(StoreError) {}
    func performUpkeep() async throws(StoreError) {
        let fails = state.withLock { state in
            state.upkeeps += 1
            return state.upkeepFails
        }
        if fails { throw .unavailable("test") }
    }
    func close() async {}

    func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64] {
        await withCheckedContinuation { continuation in
            let watchers: [CheckedContinuation<Void, Never>]? = state.withLock { state in
                guard state.isHolding else { return nil }
                state.held.append(continuation)
                defer { state.watchers = [] }
                return state.watchers
            }
            guard let watchers else { return continuation.resume() }
            for watcher in watchers { watcher.resume() }
        }
        if let error = state.withLock({ $0.failure })(group) { throw error }
        return state.withLock { state in
            var found: [EventKey: Int64] = [:]
            for record in group.records {
                if let fingerprint = state.rows[record.key] {
                    found[record.key] = fingerprint
                } else {
                    state.rows[record.key] = record.fingerprint
                }
            }
            for key in group.lookups { found[key] = state.rows[key] }
            return found
        }
    }
}
