import HapaxModel

/// Where events are taken in: everything that is fixed about an event when it is tracked is fixed here, in one critical section.
///
/// A value, kept behind the client's one lock. Nothing in it blocks or waits.
struct Intake: Sendable {
    struct Entry: Sendable {
        /// nil for a mark that only waits for what stands before it.
        var event: Event?
        var callerSupplied = false
        /// Told when everything up to here is durable.
        var waiter: CommitWaiter?
    }

    enum Admission: Sendable {
        /// `wake`: the drainer rests and must be started.
        case admitted(EventID, sequence: Int64, wake: Bool)
        /// The caller's id waits already; the first event stays.
        case alreadyQueued(EventID, wake: Bool)
        case refused(DropReason)
    }

    private(set) var mailbox: [Entry] = []
    private var ids = UUIDv7Generator()
    private var lastSequence: Int64
    /// Chosen by callers, and in the mailbox or in the queue.
    private var callerSuppliedIDs: Set<EventID>
    /// Events taken in and not yet committed, those the drainer has taken included.
    private(set) var uncommitted = 0
    private let capacity: Int
    /// Room on disk; nil if that is not limited.
    private let quota: Locked<QuotaAccount>?
    private var isDraining = false
    private(set) var isClosed = false
    /// Refused, and counted by no commit yet.
    private(set) var uncounted: [String: Int64] = [:]

    init(lastSequence: Int64, callerSuppliedIDs: Set<EventID>, capacity: Int, quota: Locked<QuotaAccount>? = nil) {
        self.lastSequence = lastSequence
        self.callerSuppliedIDs = callerSuppliedIDs
        self.capacity = max(capacity, 1)
        self.quota = quota
        mailbox.reserveCapacity(min(self.capacity, 1_024))
    }

    /// The highest sequence given.
    var created: Int64 { lastSequence }

    /// - Parameters:
    ///   - id: The caller's own; nil to have one made.
    ///   - now: The wall clock in Unix milliseconds.
    mutating func admit(
        name: String, properties: Properties, id: EventID?, time: Int64?, distinctID: String, now: Int64, waiter: CommitWaiter? = nil
    ) -> Admission {
        if isClosed { return refuse(.shutDown) }
        if let id, callerSuppliedIDs.contains(id) {
            // The mark behind the first event: who waits here waits for that one's commit.
            guard let waiter else { return .alreadyQueued(id, wake: false) }
            mailbox.append(Entry(waiter: waiter))
            return .alreadyQueued(id, wake: wake())
        }
        guard uncommitted < capacity else { return refuse(.mailboxFull) }
        let event = Event(
            id: id ?? ids.next(unixMilliseconds: now), name: name, time: time ?? now, distinctID: distinctID, sequence: lastSequence + 1,
            properties: properties)
        if let quota, !quota.withLock({ $0.reserve(QueueUsage(estimating: event)) }) { return refuse(.quotaFull) }
        uncommitted += 1
        lastSequence += 1
        if let id { callerSuppliedIDs.insert(id) }
        mailbox.append(Entry(event: event, callerSupplied: id != nil, waiter: waiter))
        return .admitted(event.id, sequence: lastSequence, wake: wake())
    }

    /// Adds a mark; its waiter is told when everything tracked before is durable.
    ///
    /// - Returns: Whether the drainer must be started.
    mutating func mark(_ waiter: CommitWaiter) -> Bool {
        mailbox.append(Entry(waiter: waiter))
        return wake()
    }

    /// Takes the whole mailbox in exchange for an empty one.
    mutating func take(into entries: inout [Entry]) {
        swap(&mailbox, &entries)
    }

    /// - Returns: Whether the drainer may rest, which it then must: the next event starts it again.
    mutating func rest() -> Bool {
        guard mailbox.isEmpty else { return false }
        isDraining = false
        return true
    }

    mutating func committed(_ count: Int) {
        uncommitted -= count
    }

    mutating func removed(_ ids: some Sequence<EventID>) {
        guard !callerSuppliedIDs.isEmpty else { return }
        for id in ids { callerSuppliedIDs.remove(id) }
    }

    mutating func queued(_ ids: some Sequence<EventID>) {
        callerSuppliedIDs.formUnion(ids)
    }

    /// Forgets the ids of events that were lost with a damaged file, so that their callers' retries are taken. One that is still in memory
    /// may then be taken twice; the queue keeps the first.
    mutating func onlyQueued(_ ids: Set<EventID>) {
        callerSuppliedIDs = ids
    }

    /// What the next commit has to count; call ``restoreRefusals(_:)`` if it fails.
    mutating func takeRefusals() -> [String: Int64] {
        defer { uncounted = [:] }
        return uncounted
    }

    mutating func restoreRefusals(_ counts: [String: Int64]) {
        uncounted.merge(counts, uniquingKeysWith: +)
    }

    /// From now on every event is refused.
    mutating func close() {
        isClosed = true
    }

    private mutating func wake() -> Bool {
        if isDraining { return false }
        isDraining = true
        return true
    }

    private mutating func refuse(_ reason: DropReason) -> Admission {
        uncounted[reason.rawValue, default: 0] += 1
        return .refused(reason)
    }
}

/// Why an event was refused at intake. It took no sequence.
public enum DropReason: String, Sendable, Hashable, CaseIterable {
    /// More events wait for their commit than the mailbox holds.
    case mailboxFull = "mailbox_full"
    /// The queue holds what its quota allows.
    case quotaFull = "quota_full"
    case shutDown = "shut_down"
}
