import Dispatch
import GRDB
import HapaxModel

/// The one writer: takes the mailbox, encodes each event once, commits in groups, resumes the waiters.
///
/// A failed commit keeps its events at the head and is tried again after a backoff; later events wait behind it, so order never changes.
final class QueueWriter: Sendable {
    /// What has become durable, for the flush policy.
    struct Stored: Sendable {
        var depth: Int
        var immediate: Bool
    }

    /// What the store keeps: a queue file, or in tests something that fails on purpose.
    /// It calls `committed` before anybody else can read what was stored.
    typealias Commit = @Sendable (_ events: [PreparedEvent], _ dropped: [String: Int64], _ committed: () -> Void) throws -> Committed

    /// Looks for what the user has decided in another process; nil for nothing new.
    typealias Learn = @Sendable () -> KeptConsent?

    typealias Encode = @Sendable (Event, _ base: EncodedProperties) -> EncodedEvent

    struct Committed: Sendable {
        /// Events that wait in the store now.
        var depth: Int
        /// nil where all of it is in the store.
        var appended: QueueFile.Appended?
    }

    let intake: Locked<Intake>
    private let encode: Encode
    private let store: Commit
    private let learnConsent: Learn
    private let keepIdentity: @Sendable (IdentityChange) throws -> Void
    /// Makes what was committed survive what it was promised to.
    private let flush: @Sendable () throws -> Void
    private let clock: any ClientClock
    private let retryPolicy: RetryPolicy
    /// nil: every event.
    private let immediateEvents: @Sendable () -> Set<String>?
    private let stored: @Sendable (Stored) -> Void
    private let reporter: EventReporter?
    private let dispatch = DispatchQueue(label: "hapax.writer")
    private let encoder = DispatchQueue(label: "hapax.encoder")
    private let work: Work
    private let state = Locked(State())

    /// Events of one transaction.
    static let maximumGroup = 1_000
    /// Events that must wait for it to be worth encoding a group while another is committed.
    static let minimumAhead = 256
    /// Bytes of one transaction's events; the last one may exceed it.
    private let maximumGroupBytes: Int

    private struct State {
        /// Of everything in `work`.
        var waiters: [CommitWaiter] = []
        var failures = 0
        var lastFailure: StorageFailure?
        var hasGivenUp = false
        /// The next attempt, while the latest failed.
        var retry: (any ScheduledAction)?
    }

    /// Encoded events; one transaction.
    private struct Group {
        var events: [PreparedEvent] = []
        /// Kept before the events are committed.
        var identity: IdentityChange?
        /// Each with the place of the event that it waits for; nil for all before.
        var waiters: [(waiter: CommitWaiter, event: Int?)] = []
        var isImmediate = false

        var isEmpty: Bool { events.isEmpty && waiters.isEmpty && identity == nil }

        mutating func wait(behind number: Int64) {
            for index in events.indices { events[index].pending = max(events[index].pending ?? number, number) }
        }

        mutating func removeAll() {
            events.removeAll(keepingCapacity: true)
            identity = nil
            waiters.removeAll(keepingCapacity: true)
            isImmediate = false
        }
    }

    /// What the writer has in hand, in order: the group that is being committed, the one behind it, then the rest of what it took from the
    /// mailbox.
    // Unchecked: touched on `dispatch` only, but for `next` and what follows it while `dispatch` commits and then waits for `encoding`.
    private final class Work: @unchecked Sendable {
        var group = Group()
        /// What its commit came to, while the flush behind that is still to succeed.
        var committed: Committed?
        var next = Group()
        var taken: [Intake.Entry] = []
        /// Of the entries that come next.
        var consent: KeptConsent
        /// Behind which decision those were taken of which this process has learned too late that consent is not granted any more.
        var unlearned: Int64?
        /// How many of `taken` are in a group.
        var used = 0

        init(consent: KeptConsent) { self.consent = consent }
    }

    init(
        intake: Locked<Intake>, clock: any ClientClock, retryPolicy: RetryPolicy = .storage, maximumGroupBytes: Int = 1024 * 1024,
        immediateEvents: @escaping @Sendable () -> Set<String>?, encode: @escaping Encode = { $0.encoded(over: $1) },
        learnConsent: @escaping Learn = { nil }, keepIdentity: @escaping @Sendable (IdentityChange) throws -> Void = { _ in },
        commit: @escaping Commit,
        flush: @escaping @Sendable () throws -> Void = {}, reporter: EventReporter? = nil,
        stored: @escaping @Sendable (Stored) -> Void
    ) {
        self.intake = intake
        work = Work(consent: intake.withLock { $0.consent })
        self.clock = clock
        self.retryPolicy = retryPolicy
        self.maximumGroupBytes = maximumGroupBytes
        self.immediateEvents = immediateEvents
        self.encode = encode
        self.keepIdentity = keepIdentity
        store = commit
        self.learnConsent = learnConsent
        self.flush = flush
        self.stored = stored
        self.reporter = reporter
    }

    deinit {
        // A shutdown has reported it.
        guard !hasGivenUp else { return }
        let events = intake.withLock { Int($0.uncommitted.events) }
        if events > 0 { reporter?.lost(events, lastFailure) }
    }

    /// Why the latest commit failed; nil once one has succeeded.
    var lastFailure: StorageFailure? { state.withLock { $0.lastFailure } }

    var hasGivenUp: Bool { state.withLock { $0.hasGivenUp } }

    func wake() {
        dispatch.async { self.drain() }
    }

    /// Returns when everything tracked before is durable.
    ///
    /// - Parameter retrying: Whether to try now if commits fail, and not to wait longer than for that one attempt.
    func barrier(retrying: Bool = false) async throws(TrackError) {
        let waiter = CommitWaiter()
        if intake.withLock({ $0.mark(waiter) }) || (retrying && lastFailure != nil) { wake() }
        // Nothing would resume it any more. Read after the mark was added: giving up sets this before it collects marks.
        if hasGivenUp { waiter.resume(.failure(.shutDown)) }
        try await waiter.wait()
    }

    /// Calls `action` on the writer's thread once everything tracked before is durable.
    func whenStored(_ action: @escaping @Sendable () -> Void) {
        let waiter = CommitWaiter { result in if case .success = result { action() } }
        if intake.withLock({ $0.mark(waiter) }) { wake() }
    }

    /// Tells everyone who waits that nothing more will be committed, and stops trying.
    func giveUp() {
        // Not on `dispatch`: a commit that hangs in the file system must not hold up those who wait for it.
        let waiters = state.withLock { state in
            state.hasGivenUp = true
            state.retry?.cancel()
            state.retry = nil
            return state.waiters
        }
        let late = intake.withLock { intake in
            intake.close()
            return intake.mailbox.compactMap(\.waiter)
        }
        for waiter in waiters + late { waiter.resume(.failure(.shutDown)) }
    }

    /// Returns once nothing is under way, and all that was committed has been reported.
    func rests() async {
        await withCheckedContinuation { continuation in dispatch.async { continuation.resume() } }
    }

    // MARK: - On the queue

    private func drain() {
        while !hasGivenUp {
            if work.group.isEmpty { swap(&work.group, &work.next) }
            if work.group.isEmpty { fill(&work.group, behind: []) }
            if work.group.isEmpty {
                if intake.withLock({ $0.rest() }) { return }
                continue
            }
            learn()
            let encoding = encodeAhead()
            let result = commitGroup()
            encoding?.wait()
            if case .failure(let failure) = result { return failed(failure) }
            work.group.removeAll()
        }
    }

    /// What was tracked before this process knew that consent is not granted any more may have been tracked behind the latest question or denial: it
    /// is taken for that, so that nothing is sent which nobody agreed to.
    private func learn() {
        guard let now = learnConsent(), now.consent != .granted, let latest = now.number else { return }
        let number = now.pending ?? latest - 1
        work.unlearned = number
        work.group.wait(behind: number)
        work.next.wait(behind: number)
    }

    /// Encodes the group behind the one that is committed now, if there is much to do: a disk and a processor can work at the same time.
    private func encodeAhead() -> DispatchSemaphore? {
        guard work.next.isEmpty, work.taken.count - work.used + intake.withLock({ $0.mailbox.count }) >= Self.minimumAhead else {
            return nil
        }
        let done = DispatchSemaphore(value: 0)
        let waiters = work.group.waiters.map(\.waiter)
        encoder.async { [self] in
            fill(&work.next, behind: waiters)
            done.signal()
        }
        return done
    }

    /// Takes the mailbox when nothing is left of the last one, and encodes a group. Only here, and once: from now on these bytes are the
    /// event (R4).
    ///
    /// - Parameter waiters: Those of the group before.
    private func fill(_ group: inout Group, behind waiters: [CommitWaiter]) {
        if work.used == work.taken.count {
            work.taken.removeAll(keepingCapacity: true)
            work.used = 0
            intake.withLock { $0.take(into: &work.taken) }
            let waiters = waiters + work.taken.compactMap(\.waiter)
            let hasGivenUp = state.withLock { state in
                state.waiters = waiters
                return state.hasGivenUp
            }
            if hasGivenUp { for waiter in waiters { waiter.resume(.failure(.shutDown)) } }
        }
        let immediate = immediateEvents()
        let end = min(work.used + Self.maximumGroup, work.taken.count)
        var bytes = 0
        while work.used < end, bytes < maximumGroupBytes {
            let entry = work.taken[work.used]
            work.used += 1
            for change in entry.changes {
                switch change {
                case .identity(let change): group.identity = group.identity?.followed(by: change) ?? change
                case .consent(let consent): (work.consent, work.unlearned) = (consent, nil)
                }
            }
            if let waiter = entry.waiter { group.waiters.append((waiter, entry.event == nil ? nil : group.events.count)) }
            guard let event = entry.event else { continue }
            let prepared = prepare(event, entry)
            bytes += prepared.bytes.count
            group.events.append(prepared)
            if !group.isImmediate { group.isImmediate = immediate?.contains(event.name) ?? true }
        }
    }

    private func prepare(_ event: Event, _ entry: Intake.Entry) -> PreparedEvent {
        let encoded = encode(event, entry.base)
        return PreparedEvent(
            id: event.id, time: event.time, bytes: encoded.bytes, problem: encoded.problem, pending: work.unlearned ?? work.consent.pending,
            reserved: entry.reserved)
    }

    private func commitGroup() -> Result<Void, StorageFailure> {
        let group = work.group
        do {
            if work.committed == nil, let change = group.identity { try keepIdentity(change) }
            // Once: where the flush behind it failed, only that is tried again.
            let committed = try work.committed ?? commit(group.events)
            work.committed = committed
            try flush()
            work.committed = nil
            let failures = state.withLock { state in
                defer { (state.failures, state.lastFailure, state.retry) = (0, nil, nil) }
                state.retry?.cancel()
                return state.failures
            }
            if failures > 0 { reporter?.commitsSucceedAgain(after: failures) }
            for (waiter, event) in group.waiters {
                guard let event, let appended = committed.appended else {
                    waiter.resume(.success(nil))
                    continue
                }
                if appended.denied.contains(event) {
                    waiter.resume(.failure(.refused(.optedOut)))
                } else {
                    waiter.resume(appended.removed.contains(event) ? .failure(.removed) : .success(appended.sequences[event]))
                }
            }
            if !group.events.isEmpty { stored(Stored(depth: committed.depth, immediate: group.isImmediate)) }
            return .success(())
        } catch {
            return .failure(StorageFailure(error))
        }
    }

    private func commit(_ events: [PreparedEvent]) throws -> Committed {
        let dropped = intake.withLock { $0.takeRefusals() }
        if events.isEmpty && dropped.isEmpty { return Committed(depth: 0) }
        let start = clock.monotonic
        do {
            // An event leaves memory in the turn that brings it to disk: a shutdown may look right behind that.
            let committed = try store(events, dropped) { intake.withLock { $0.committed(events) } }
            reporter?.committed(events, committed.appended, in: clock.monotonic - start)
            return committed
        } catch {
            intake.withLock { $0.addRefusals(dropped) }
            throw error
        }
    }

    /// Takes whoever waits, also behind the group: they wait behind what failed, and must learn of it now and not one group after the other.
    private func takeWaiters() -> [CommitWaiter] {
        let waiters = (work.group.waiters + work.next.waiters).map(\.waiter) + work.taken[work.used...].compactMap(\.waiter)
        return waiters + intake.withLock { $0.takeWaiters() }
    }

    private func failed(_ failure: StorageFailure) {
        // Before the next attempt is due: what comes later waits for it. A waiter ignores its second result, when all is stored.
        let waiters = takeWaiters()
        let (delay, isFirst) = state.withLock { state in
            state.failures += 1
            state.lastFailure = failure
            var randomness = SystemRandomNumberGenerator()
            return (retryPolicy.delay(failures: state.failures, using: &randomness), state.failures == 1)
        }
        reporter?.commitFailed(failure, isFirst: isFirst, events: intake.withLock { Int($0.uncommitted.events) })
        // One at a time: attempts that callers asked for fail as well, and would each begin attempts without end.
        // Strongly: who lets go of the client has not taken back what was tracked. A file that has lost its name takes nothing any more.
        let mayPass = failure.code != ResultCode.SQLITE_READONLY_DBMOVED.rawValue
        let retry = clock.schedule(after: delay) { [weak self, kept = mayPass ? self : nil] in (kept ?? self)?.wake() }
        state.withLock { state in
            let replaced = state.retry
            state.retry = state.hasGivenUp ? nil : retry
            return state.hasGivenUp ? retry : replaced
        }?.cancel()
        for waiter in waiters { waiter.resume(.failure(.notStored(failure))) }
    }
}
