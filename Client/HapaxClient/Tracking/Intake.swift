import HapaxModel

/// Where events are taken in: everything that is fixed about an event when it is tracked is fixed here, in one critical section.
///
/// A value, kept behind the client's one lock. Nothing in it blocks or waits.
struct Intake: Sendable {
    struct Entry: Sendable {
        /// nil for a mark that only waits for what stands before it.
        var event: Event?
        /// What the event's own properties are laid over. Joined when it is encoded: the caller does not wait for it.
        var base = EncodedProperties.none
        /// What it takes by estimate, and what was promised to it on disk.
        var reserved = QueueUsage()
        /// Told when everything up to here is durable.
        var waiter: CommitWaiter?
    }

    enum Admission: Sendable {
        /// `sequence`: nil if the caller's id waits already: then the queue finds out whether it is another event. `wake`: the drainer rests and
        /// must be started.
        case admitted(EventID, sequence: Int64?, wake: Bool)
        /// The caller's derived id waits already, which says that it is the same event; the first one stays.
        case alreadyQueued(EventID, wake: Bool)
        case refused(DropReason)
    }

    private(set) var mailbox: [Entry] = []
    var context: EventContext
    private var ids = UUIDv7Generator()
    private var lastSequence: Int64
    /// In the mailbox, in the drainer's hands or in the queue. Those made here as well: a caller may give back what tracking returned,
    /// and that must take no sequence either (R12).
    private var waitingIDs: Set<EventID>
    /// How many of an id were taken behind one that waited, and are not committed yet: each may come to wait instead of that.
    private var repeats: [EventID: Int] = [:]
    /// Events taken in and not yet committed, those the drainer has taken included.
    private(set) var uncommitted = QueueUsage()
    private let capacity: Int64
    private let maximumBytes: Int64
    /// Room on disk; nil if that is not limited.
    private let quota: Locked<QuotaAccount>?
    private var isDraining = false
    private(set) var isClosed = false
    /// Refused, and counted by no commit yet.
    private(set) var uncounted: [String: Int64] = [:]

    /// Plants, for a control test, the interleaving of threads that take their sequence in one critical section and are queued in
    /// another: given each entry, it says which are queued now. nil in production.
    var plantedInterleaving: (@Sendable (Entry) -> [Entry])?

    init(
        lastSequence: Int64, waitingIDs: Set<EventID>, capacity: Int, maximumBytes: Int = .max,
        context: EventContext = EventContext(identity: Identity(anonymousID: "nobody")), quota: Locked<QuotaAccount>? = nil
    ) {
        self.context = context
        self.lastSequence = lastSequence
        self.waitingIDs = waitingIDs
        self.capacity = Int64(max(capacity, 1))
        self.maximumBytes = Int64(maximumBytes)
        self.quota = quota
        mailbox.reserveCapacity(min(max(capacity, 1), 1_024))
    }

    /// The highest sequence given.
    var created: Int64 { lastSequence }

    /// - Parameters:
    ///   - id: The caller's own; nil to have one made.
    ///   - distinctID: nil for the context's.
    ///   - now: The wall clock in Unix milliseconds.
    ///   - isComplete: Whether the properties hold the context's already.
    ///   - isKept: Whether the caller keeps it if it is refused for a while, and tries again: then that counts nothing.
    ///   - isRepeated: Whether it is the client's own and comes again with the next start if it is refused: that counts nothing.
    ///   - propertyBytes: About what the properties take, see ``QueueUsage/bytes(of:)``; added up before, so that nobody waits for it.
    mutating func admit(
        name: String, properties: Properties, id: EventID?, time: Int64?, distinctID: String?, now: Int64, waiter: CommitWaiter? = nil,
        isComplete: Bool = false, isKept: Bool = false, isRepeated: Bool = false, propertyBytes: Int64? = nil
    ) -> Admission {
        func refuse(_ reason: DropReason) -> Admission { self.refuse(reason, isKept: isKept, isRepeated: isRepeated) }
        if let reason = reasonToRefuseAll { return refuse(reason) }
        let isWaiting = id.map { self.isWaiting($0) } ?? false
        if let id, isWaiting, id.isDerived {
            // The mark behind the first event: who waits here waits for that one's commit.
            guard let waiter else { return .alreadyQueued(id, wake: false) }
            mailbox.append(Entry(waiter: waiter))
            return .alreadyQueued(id, wake: wake())
        }
        let base = isComplete ? EncodedProperties.none : context.encodedBase
        let distinctID = distinctID ?? context.identity.distinctID
        let room = QueueUsage(
            events: 1,
            bytes: QueueUsage.bytes(name, distinctID) + (propertyBytes ?? QueueUsage.bytes(of: properties)) + Int64(base.byteCount))
        let wanted = uncommitted + room
        // One alone may be larger than all together: it is a dead letter then.
        guard wanted.events <= capacity, wanted.bytes <= maximumBytes || uncommitted.events == 0 else { return refuse(.mailboxFull) }
        guard quota?.withLock({ $0.reserve(room) }) ?? true else { return refuse(.quotaFull) }
        uncommitted = wanted
        if !isWaiting { lastSequence += 1 }
        let event = Event(
            id: id ?? ids.next(unixMilliseconds: now), name: name, time: time ?? now, distinctID: distinctID,
            sequence: isWaiting ? nil : lastSequence, properties: isComplete || !context.isPassive ? properties : context.own(properties))
        if isWaiting { repeats[event.id, default: 0] += 1 } else { waitingIDs.insert(event.id) }
        let entry = Entry(event: event, base: base, reserved: room, waiter: waiter)
        if let plantedInterleaving { mailbox += plantedInterleaving(entry) } else { mailbox.append(entry) }
        return .admitted(event.id, sequence: event.sequence, wake: wake())
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

    /// Those who wait for anything in the mailbox; marks, which hold nothing else, leave it.
    mutating func takeWaiters() -> [CommitWaiter] {
        defer { mailbox.removeAll { $0.event == nil } }
        return mailbox.compactMap(\.waiter)
    }

    /// - Returns: Whether the drainer may rest, which it then must: the next event starts it again.
    mutating func rest() -> Bool {
        guard mailbox.isEmpty else { return false }
        isDraining = false
        return true
    }

    /// These are in the queue, or were found to be there already.
    mutating func committed(_ events: [PreparedEvent]) {
        for event in events {
            uncommitted = uncommitted - event.reserved
            guard event.sequence == nil, let count = repeats[event.id] else { continue }
            repeats[event.id] = count > 1 ? count - 1 : nil
        }
    }

    func isWaiting(_ id: EventID) -> Bool { waitingIDs.contains(id) || repeats[id] != nil }

    /// The queue says what waits in it now.
    mutating func waitingChanged(_ change: WaitingChange) {
        switch change {
        case .added(let ids): waitingIDs.formUnion(ids)
        case .removed(let ids): for id in ids { waitingIDs.remove(id) }
        // Those of a damaged file may be lost, and their callers' retries must be taken. One that is still in memory may then be taken twice; the
        // queue keeps the first.
        case .forgotten: waitingIDs = []
        }
    }

    /// What the next commit has to count; call ``addRefusals(_:)`` if it fails.
    mutating func takeRefusals() -> [String: Int64] {
        defer { uncounted = [:] }
        return uncounted
    }

    mutating func addRefusals(_ counts: [String: Int64]) {
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

    /// Why no event is taken at all; then none has to be looked at.
    var reasonToRefuseAll: DropReason? { isClosed ? .shutDown : context.isOptedOut ? .optedOut : nil }

    mutating func refuse(_ reason: DropReason, isKept: Bool = false, isRepeated: Bool = false) -> Admission {
        let isCounted = !isRepeated && !(isKept && reason.passes)
        if isCounted { uncounted[reason.rawValue, default: 0] += 1 }
        return .refused(reason)
    }
}

/// Why an event was refused at intake. It took no sequence.
public enum DropReason: String, Sendable, Hashable, CaseIterable {
    /// More events, or more bytes of them, wait for their commit than the mailbox holds.
    case mailboxFull = "mailbox_full"
    /// The queue holds what its quota allows.
    case quotaFull = "quota_full"
    /// After ``EventClient/shutdown(within:)`` has begun.
    case shutDown = "shut_down"
    /// After ``EventClient/optOut()``.
    case optedOut = "opted_out"
    /// An ``EventClient/Enricher`` returned nil.
    case enricher
    /// A service has no client: it is not configured, or has not started yet.
    case disabled

    /// Whether the same event may be taken another time, as by the next client on the queue.
    var passes: Bool {
        switch self {
        case .mailboxFull, .quotaFull, .shutDown: true
        case .optedOut, .enricher, .disabled: false
        }
    }
}
