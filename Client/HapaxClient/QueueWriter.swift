import Dispatch
import HapaxModel

/// The one drainer: takes the mailbox, encodes each event once, commits in groups, tells who waits.
///
/// A failed commit keeps its events at the head and is tried again after a backoff; later events wait behind it, so order never changes.
final class QueueWriter: Sendable {
    /// What has become durable, for the flush policy.
    struct Stored: Sendable {
        var depth: Int
        var immediate: Bool
    }

    /// What the store keeps: a queue file, or in tests something that fails on purpose.
    typealias Commit = @Sendable (_ events: ArraySlice<PreparedEvent>, _ dropped: [String: Int64]) throws -> Int

    let intake: Locked<Intake>
    private let commit: Commit
    private let clock: any ClientClock
    private let retryPolicy: RetryPolicy
    private let isImmediate: @Sendable (String) -> Bool
    private let stored: @Sendable (Stored) -> Void
    private let dispatch = DispatchQueue(label: "hapax.writer")
    /// Touched on `dispatch` only, but for the count; the lock is never contended.
    private let state = Locked(State())

    /// Events of one transaction.
    static let maximumGroup = 1_000

    private struct State {
        var spare: [Intake.Entry] = []
        /// Encoded and not committed, in order.
        var pending: [Pending] = []
        var failures = 0
        var lastFailure: StorageFailure?
        var hasGivenUp = false
    }

    private struct Pending {
        var event: PreparedEvent?
        var immediate = false
        var waiter: CommitWaiter?
    }

    init(
        intake: Intake, clock: any ClientClock, retryPolicy: RetryPolicy = .storage, isImmediate: @escaping @Sendable (String) -> Bool,
        commit: @escaping Commit, stored: @escaping @Sendable (Stored) -> Void
    ) {
        self.intake = Locked(intake)
        self.clock = clock
        self.retryPolicy = retryPolicy
        self.isImmediate = isImmediate
        self.commit = commit
        self.stored = stored
    }

    /// Why the latest commit failed; nil once one has succeeded.
    var lastFailure: StorageFailure? { state.withLock { $0.lastFailure } }

    func wake() {
        dispatch.async { self.drain() }
    }

    /// Returns when everything tracked before is durable.
    func barrier() async throws(TrackError) {
        let waiter = CommitWaiter()
        if intake.withLock({ $0.mark(waiter) }) { wake() }
        try await waiter.wait()
    }

    /// Tells everyone who waits that nothing more will be committed, and stops trying.
    func giveUp() {
        // Not on `dispatch`: a commit that hangs in the file system must not hold up those who wait for it.
        let waiters = state.withLock { state in
            state.hasGivenUp = true
            return state.pending.compactMap(\.waiter)
        }
        let late = intake.withLock { intake in
            intake.close()
            return intake.mailbox.compactMap(\.waiter)
        }
        for waiter in waiters + late { waiter.tell(.failure(.shutDown)) }
    }

    /// Returns when the drainer has ended what it was doing.
    func settled() async {
        await withCheckedContinuation { continuation in dispatch.async { continuation.resume() } }
    }

    // MARK: - On the queue

    private func drain() {
        while true {
            if state.withLock({ $0.hasGivenUp }) { return }
            prepare()
            let group = state.withLock { $0.pending.prefix(Self.maximumGroup) }
            if group.isEmpty {
                if intake.withLock({ $0.rest() }) { return }
                continue
            }
            guard commit(group) else { return }
        }
    }

    /// Encodes what has gathered. Only here, and once: from now on these bytes are the event (R4).
    private func prepare() {
        var entries = state.withLock { state in
            var spare: [Intake.Entry] = []
            swap(&spare, &state.spare)
            return spare
        }
        intake.withLock { $0.take(into: &entries) }
        if !entries.isEmpty {
            let prepared = entries.map { entry in
                Pending(
                    event: entry.event.map { Self.prepare($0, callerSupplied: entry.callerSupplied) },
                    immediate: entry.event.map { isImmediate($0.name) } ?? false, waiter: entry.waiter)
            }
            entries.removeAll(keepingCapacity: true)
            let hasGivenUp = state.withLock { state in
                state.pending.append(contentsOf: prepared)
                return state.hasGivenUp
            }
            if hasGivenUp { for entry in prepared { entry.waiter?.tell(.failure(.shutDown)) } }
        }
        state.withLock { $0.spare = entries }
    }

    private static func prepare(_ event: Event, callerSupplied: Bool) -> PreparedEvent {
        let encoded = event.encoded()
        return PreparedEvent(
            id: event.id, sequence: event.sequence ?? 0, time: event.time, bytes: encoded.bytes, callerSupplied: callerSupplied,
            problem: encoded.unencodable ?? EventScanner.check(encoded.bytes))
    }

    /// - Returns: false if it failed and the next attempt is scheduled.
    private func commit(_ group: ArraySlice<Pending>) -> Bool {
        let events = group.compactMap(\.event)
        let dropped = intake.withLock { $0.takeRefusals() }
        do {
            let depth = events.isEmpty && dropped.isEmpty ? 0 : try commit(events[...], dropped)
            state.withLock { state in
                state.pending.removeFirst(group.count)
                state.failures = 0
                state.lastFailure = nil
            }
            intake.withLock { intake in
                intake.committed(events.count)
                intake.removed(events.lazy.filter { $0.problem != nil && $0.callerSupplied }.map(\.id))
            }
            for entry in group { entry.waiter?.tell(.success(())) }
            if !events.isEmpty { stored(Stored(depth: depth, immediate: group.contains(where: \.immediate))) }
            return true
        } catch {
            let failure = StorageFailure(error)
            intake.withLock { $0.restoreRefusals(dropped) }
            let delay = state.withLock { state in
                state.failures += 1
                state.lastFailure = failure
                var randomness = SystemRandomNumberGenerator()
                return retryPolicy.delay(failures: state.failures, using: &randomness)
            }
            for entry in group { entry.waiter?.tell(.failure(.notStored(failure))) }
            _ = clock.schedule(after: delay) { [weak self] in self?.wake() }
            return false
        }
    }
}
