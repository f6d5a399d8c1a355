import HapaxModel

/// Where events are taken in: everything that is fixed about an event when it is tracked is fixed here, in one critical section.
///
/// A value, kept behind the client's one lock. Nothing in it blocks or waits.
struct Intake: Sendable {
    struct Entry: Sendable {
        /// nil for a mark that only waits for what stands before it, and for changes.
        var event: Event?
        /// One at most: in a list, since entries are many and this is rare.
        var changes: [Change] = []
        /// What the event's own properties are laid over. Joined when it is encoded: the caller does not wait for it.
        var base = EncodedProperties.none
        /// What it takes by estimate, and what was promised to it on disk.
        var reserved = QueueUsage()
        /// Resumed when everything up to here is durable.
        var waiter: CommitWaiter?
    }

    enum Change: Sendable {
        /// Kept before any event behind it is committed.
        case identity(IdentityChange)
        /// Under it the events behind it are taken.
        case consent(KeptConsent)
    }

    enum Admission: Sendable {
        /// `wake`: the writer rests and must be started.
        case admitted(EventID, wake: Bool)
        case refused(DropReason)
    }

    private(set) var mailbox: [Entry] = []
    var context: EventContext
    private(set) var consent: KeptConsent
    private var ids = UUIDv7Generator()
    /// Events taken in and not yet committed, those the writer has taken included.
    private(set) var uncommitted = QueueUsage()
    private let capacity: Int64
    private let maximumBytes: Int64
    /// Room on disk; nil if that is not limited.
    private let quota: Locked<QuotaAccount>?
    /// Taken of that, and by no event yet.
    private var spare = QueueUsage()
    private var isDraining = false
    private(set) var isClosed = false
    /// Refused, and counted by no commit yet.
    private(set) var uncounted: [String: Int64] = [:]

    init(
        capacity: Int, maximumBytes: Int = .max,
        context: EventContext = EventContext(identity: Identity(anonymousID: "nobody")),
        consent: KeptConsent = KeptConsent(consent: .granted), quota: Locked<QuotaAccount>? = nil
    ) {
        (self.context, self.consent) = (context, consent)
        self.context.consent = consent.consent
        self.capacity = Int64(max(capacity, 1))
        self.maximumBytes = Int64(maximumBytes)
        self.quota = quota
        mailbox.reserveCapacity(min(max(capacity, 1), 1_024))
    }

    /// - Parameters:
    ///   - id: The caller's own, or ``EventID/made``.
    ///   - distinctID: nil for the context's.
    ///   - now: The wall clock in Unix milliseconds.
    ///   - isComplete: Whether the properties hold the context's already.
    ///   - isKept: Whether the caller keeps it if it is refused for a while, and tries again: then that counts nothing.
    ///   - isRepeated: Whether it is the client's own and comes again with the next start if it is refused: that counts nothing.
    ///   - called: The consent at its call, if that was before.
    ///   - propertyBytes: About what the properties take, see ``QueueUsage/bytes(of:)``; added up before, so that nobody waits for it.
    mutating func admit(
        name: String, properties: Properties, id: EventID, time: Int64?, distinctID: String?, now: Int64, waiter: CommitWaiter? = nil,
        isComplete: Bool = false, isKept: Bool = false, isRepeated: Bool = false, propertyBytes: Int64? = nil,
        calledUnder called: KeptConsent? = nil
    ) -> Admission {
        func refuse(_ reason: DropReason) -> Admission { self.refuse(reason, isKept: isKept, isRepeated: isRepeated) }
        if let reason = reasonToRefuseAll { return refuse(reason) }
        if let number = called?.number, consent.decision(after: number) == false { return refuse(.optedOut) }
        if !isComplete { continueSession(at: now) }
        let room = QueueUsage(
            events: 1,
            bytes: QueueUsage.bytes(name, distinctID ?? context.distinctID) + (propertyBytes ?? QueueUsage.bytes(of: properties))
                + (isComplete ? 0 : Int64(context.encodedBase.byteCount)))
        let wanted = uncommitted + room
        // One alone may be larger than all together: it is a dead letter then.
        guard wanted.events <= capacity, wanted.bytes <= maximumBytes || uncommitted.events == 0 else { return refuse(.mailboxFull) }
        guard reserve(room) else { return refuse(.quotaFull) }
        uncommitted = wanted
        let id = id == .made ? ids.next(unixMilliseconds: now) : id
        // Made where it stays: each copy counts the references to all of its parts.
        mailbox.append(
            Entry(
                event: Event(
                    id: id, name: name, time: time ?? now, distinctID: distinctID ?? context.distinctID,
                    properties: isComplete || !context.isPassive ? properties : context.own(properties)),
                base: isComplete ? EncodedProperties.none : context.encodedBase, reserved: room, waiter: waiter))
        return .admitted(id, wake: wake())
    }

    /// Takes room on disk for an event: of what was taken before for many, so that the account is asked once for them.
    private mutating func reserve(_ room: QueueUsage) -> Bool {
        guard let quota else { return true }
        if room.events <= spare.events, room.bytes <= spare.bytes {
            spare = spare - room
            return true
        }
        return quota.withLock { account in
            let many = QueueUsage(events: Self.reservedAtOnce, bytes: Self.reservedAtOnce * room.bytes)
            if account.reserve(many) {
                spare = spare + many - room
                return true
            }
            // What is left is exact.
            account.committed(QueueUsage(), releasing: spare)
            spare = QueueUsage()
            return account.reserve(room)
        }
    }

    private static let reservedAtOnce: Int64 = 64

    /// Adds a mark; its waiter is resumed when everything tracked before is durable.
    ///
    /// - Returns: Whether the writer must be started.
    mutating func mark(_ waiter: CommitWaiter) -> Bool {
        mailbox.append(Entry(waiter: waiter))
        return wake()
    }

    /// Changes whom later events concern and what they say, at once; kept on disk in the order of the calls.
    ///
    /// - Returns: Whether the writer must be started, and the anonymous id from then on.
    mutating func change(_ change: IdentityChange) -> (wake: Bool, anonymousID: String) {
        let identity = context.identity
        var kept = KeptIdentity(anonymousID: identity.anonymousID, loginID: identity.loginID, common: context.common)
        change.change(&kept)
        (context.identity.anonymousID, context.identity.loginID) = (kept.anonymousID, kept.loginID)
        if change.forgetsCommon || !change.common.isEmpty { context.common = kept.common }
        guard !isClosed else { return (false, kept.anonymousID) }
        // However often somebody logs in while commits fail, it is one entry.
        if let last = mailbox.indices.last, case .identity(let before)? = mailbox[last].changes.last {
            mailbox[last].changes = [.identity(before.followed(by: change))]
        } else {
            mailbox.append(Entry(changes: [.identity(change)]))
        }
        return (wake(), kept.anonymousID)
    }

    /// From now on events are taken under this consent; the writer learns of it with the first of them.
    mutating func change(_ consent: KeptConsent) {
        guard consent != self.consent else { return }
        (self.consent, context.consent) = (consent, consent.consent)
        mailbox.append(Entry(changes: [.consent(consent)]))
    }

    /// The same for another person, with nothing of the one before.
    mutating func changePerson(_ change: IdentityChange, now: Int64) -> Bool {
        if context.session != nil { context.session = AppSession(id: ids.next(unixMilliseconds: now), began: now, lastActivity: now) }
        context.screenName = nil
        return self.change(change).wake
    }

    /// To be called when something happens in the app: what happens after a long pause belongs to a new session.
    mutating func continueSession(at now: Int64) {
        guard let session = context.session else { return }
        if session.isOver(at: now) {
            context.session = AppSession(id: ids.next(unixMilliseconds: now), began: now, lastActivity: now)
        } else if now > session.lastActivity {
            context.session?.lastActivity = now
        }
    }

    /// Takes the whole mailbox in exchange for an empty one.
    mutating func take(into entries: inout [Entry]) {
        swap(&mailbox, &entries)
    }

    /// Those who wait for anything in the mailbox; marks, which hold nothing else, leave it.
    mutating func takeWaiters() -> [CommitWaiter] {
        defer { mailbox.removeAll { $0.event == nil && $0.changes.isEmpty } }
        return mailbox.compactMap(\.waiter)
    }

    /// - Returns: Whether the writer may rest, which it then must: the next event starts it again.
    mutating func rest() -> Bool {
        guard mailbox.isEmpty else { return false }
        isDraining = false
        return true
    }

    /// These are in the queue, or were found to be there already.
    mutating func committed(_ events: [PreparedEvent]) {
        for event in events { uncommitted = uncommitted - event.reserved }
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
    var reasonToRefuseAll: DropReason? { isClosed ? .shutDown : context.consent == .denied ? .optedOut : nil }

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
    /// The user's consent is ``Consent/denied``.
    case optedOut = "opted_out"
    /// An ``EventClient/Enricher`` returned nil.
    case enricher
    /// The queue is not open: the client has no configuration, or could not open it yet.
    case disabled
    /// The same, since a file that says what the user has agreed to, or whom events concern, cannot be read (``StartError/unreadable(_:)``).
    case unreadable
    /// An id given to ``EventClient/identify(_:)`` that has not 1…200 bytes, or holds U+0000. Not an event's.
    case invalidID = "invalid_id"

    /// Whether the same event may be taken another time, as by the next client on the queue.
    var passes: Bool {
        switch self {
        case .mailboxFull, .quotaFull, .shutDown: true
        case .optedOut, .enricher, .disabled, .unreadable, .invalidID: false
        }
    }
}
