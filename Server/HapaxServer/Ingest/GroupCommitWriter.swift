import HapaxModel
import Logging

/// The one place where events enter the store: performs what ``GroupCommitStateMachine`` decides.
package final class GroupCommitWriter: Sendable {
    private let store: any EventStore
    private let metrics: ServerMetrics
    private let failures: FailureLog
    private let state: Locked<State>

    private let now: @Sendable () -> ContinuousClock.Instant

    private struct State {
        var machine: GroupCommitStateMachine<Submission>
        /// Writers that wait, by number.
        var sleepers: [Int: CheckedContinuation<Void, Never>] = [:]
    }

    private struct Submission: Sendable {
        var request: IngestRequest
        var answer: CheckedContinuation<Result<IngestOutcome, RequestProblem>, Never>
    }

    package init(
        store: any EventStore, metrics: ServerMetrics, heldBytes: Int = ServerLimits().heldBytes, logger: Logger,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.store = store
        self.metrics = metrics
        failures = FailureLog(
            "A group could not be committed", recovery: "Groups are committed again", level: .error, logger: logger, now: now)
        self.now = now
        var limits = GroupCommitStateMachine<Submission>.Limits()
        limits.heldBytes = heldBytes
        state = Locked(State(machine: GroupCommitStateMachine(limits: limits)))
    }

    /// Commits a request's events, together with those of other requests.
    ///
    /// - Returns: What became of each event; after the COMMIT of every event that is in the store.
    /// - Throws: ``RequestProblem`` if the request was refused, or if it is not known whether its events were stored.
    package func submit(_ request: IngestRequest) async throws(RequestProblem) -> IngestOutcome {
        let result = await withCheckedContinuation { answer in
            let submission = Submission(request: request, answer: answer)
            let (admission, sleeper) = state.withLock { state in
                let admission = state.machine.requestArrived(
                    submission, project: request.projectID,
                    events: max(request.report == nil ? 1 : ServerLimits.eventsPerBook, request.count), bytes: request.bytes, now: now())
                guard case .commit(let writer) = admission else { return (admission, nil as CheckedContinuation<Void, Never>?) }
                return (admission, state.sleepers.removeValue(forKey: writer))
            }
            switch admission {
            case .waiting, .commit: sleeper?.resume()
            case .overloaded:
                answer.resume(returning: .failure(Self.overloaded))
            case .projectBusy:
                answer.resume(
                    returning: .failure(RequestProblem(.projectBusy, detail: "too much of this project is waiting to be stored")))
            case .stopping:
                answer.resume(returning: .failure(RequestProblem(.stopping, detail: "the server is stopping")))
            }
        }
        return try result.get()
    }

    /// Bytes of the requests that wait or are being committed.
    var heldBytes: Int { state.withLock { $0.machine.heldBytes } }

    /// Refuses a request before its body is scanned, since scanning costs a good part of what storing costs.
    func checkRoom(for bytes: Int) throws(RequestProblem) {
        guard state.withLock({ $0.machine.hasRoom(for: bytes) }) else { throw Self.overloaded }
    }

    private static let overloaded = RequestProblem(.overloaded, detail: "too much is waiting to be stored")

    /// Commits groups until ``stop()``; returns when the last one is committed.
    package func run() async {
        await withDiscardingTaskGroup { group in
            for writer in 0..<store.writerCount {
                group.addTask { await self.run(writer) }
            }
        }
    }

    /// Takes no further request. What waits is still committed.
    package func stop() {
        let sleepers = state.withLock { state in
            state.machine.stopRequested().compactMap { state.sleepers.removeValue(forKey: $0) }
        }
        for sleeper in sleepers { sleeper.resume() }
    }

    private func run(_ writer: Int) async {
        while true {
            let work = await nextWork(writer)
            guard let work else { return }
            await commit(work, writer: writer)
        }
    }

    /// - Returns: nil when no further request will come.
    private func nextWork(_ writer: Int) async -> [Submission]? {
        while true {
            var work: [Submission]?
            var isAtEnd = false
            await withCheckedContinuation { continuation in
                let mustWait = state.withLock { state in
                    switch state.machine.writerBecameFree(writer) {
                    case .commit(let group): work = group
                    case .end: isAtEnd = true
                    case .wait:
                        state.sleepers[writer] = continuation
                        return true
                    }
                    return false
                }
                if !mustWait { continuation.resume() }
            }
            if isAtEnd { return nil }
            if let work { return work }
        }
    }

    private func commit(_ submissions: [Submission], writer: Int) async {
        do throws(StoreError) {
            let outcomes = try await outcomes(submissions.map(\.request), writer: writer)
            failures.succeeded()
            for (submission, outcomes) in zip(submissions, outcomes) { submission.answer.resume(returning: .success(outcomes)) }
        } catch {
            metrics.groupFailed()
            failures.failed(error)
            let problem =
                error == .clockBehind
                ? RequestProblem(
                    .clockBehind, detail: "the database's clock is behind an instant that it has already reported; send the batch again")
                : RequestProblem(.storeUnavailable, detail: "nothing is known about this batch; send it again")
            for submission in submissions { submission.answer.resume(returning: .failure(problem)) }
        }
    }

    private func outcomes(_ requests: [IngestRequest], writer: Int) async throws(StoreError) -> [IngestOutcome] {
        while true {
            let horizon = store.horizon
            do throws(StoreError) { return try await outcomes(CommitGroup(requests, horizon: horizon), writer: writer) } catch {
                guard error == .collided else { throw error }
                // The store takes nothing below a horizon that this server may not have heard of.
                if store.horizon == horizon { try? await store.refresh() }
                guard store.horizon > horizon else { throw error }
            }
        }
    }

    private func outcomes(_ group: CommitGroup, writer: Int) async throws(StoreError) -> [IngestOutcome] {
        let began = now()
        let plan = try await commit(group.storeGroup, writer: writer)
        let repeats = group.repeats(found: plan.found, refused: plan.refused)
        var verdicts: [RowKey.Place: Bool] = [:]
        // The group is committed already: if the store cannot compare now, only these events are answered `retry`.
        if !repeats.isEmpty, let same = try? await store.compare(repeats.map(group.record), writer: writer) {
            for (row, isSame) in zip(repeats, same) { verdicts[row.place] = isSame }
        }
        metrics.groupCommitted(
            records: group.storeGroup.records.count, in: now() - began,
            derivedWithOtherContent: group.derivedWithOtherContent(plan.found, verdicts))
        let outcomes = group.outcomes(found: plan.found, refused: plan.refused, verdicts: verdicts)
        // Before it is answered, so that a client that learns what became of an event finds it in the books.
        if let books = group.lateBooks(outcomes, repeats: repeats, isSplit: plan.isSplit) { _ = try await commit(books, writer: writer) }
        return outcomes
    }

    private func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> CommitPlan {
        var plan = CommitPlan(group)
        while let part = plan.next {
            do throws(StoreError) { plan.committed(try await store.commit(part, writer: writer)) } catch { try plan.failed(error) }
        }
        return plan
    }
}
