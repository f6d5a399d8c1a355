import HapaxModel

extension EventClient {
    /// How the queue and the delivery stand.
    public func status() async -> Status {
        let delivery = delivery.latestState
        let (created, inMemory, uncounted) = writer.intake.withLock { ($0.created, Int($0.uncommitted.events), $0.uncounted) }
        let books = queue.books
        return Status(
            installID: queue.installID, depth: Int(books.depth), bytes: Int(books.bytes), inMemory: inMemory,
            oldest: queue.oldestTime, failure: delivery.failure ?? adopter?.failure.withLock { $0 }, storageFailure: writer.lastFailure,
            nextAttempt: delivery.nextAttempt, created: created, tracked: books.lastSequence + books.adopted, stored: books.stored,
            duplicates: books.duplicates, deadLettered: books.deadLettered, discarded: books.discarded,
            dropped: books.drops.byReason.merging(uncounted, uniquingKeysWith: +), isSpool: queue.isSpool,
            damage: queue.latestDamage)
    }

    /// Where an event of this client's queue became a dead letter.
    package func deadLetter(of id: EventID) throws(StorageFailure) -> DeadLetter? {
        do { return try queue.deadLetter(of: id) } catch { throw StorageFailure(error) }
    }

    /// Whether what waited in this queue, or in one beside it, goes to another server than the one with which that queue was last worked
    /// on, or under another write key.
    package var hasRedirected: Bool { reporter.hasRedirected.withLock { $0 } }

    /// Whether it was somebody whom events concern, as far as anybody knows, and a damaged file does not say who any more.
    package var hasLostIdentity: Bool { !queue.isSpool && identityFailure != nil }

    /// Whether a power cut may take what was stored at the level `power`.
    package var mayLoseInPowerCut: Bool { queue.mayLoseInPowerCut }

    /// What was not stored and is not sent again by itself.
    public var deadLetters: DeadLetters { DeadLetters(queue: queue) }
}

/// How a client's queue and delivery stand at one moment.
///
/// `tracked = depth + stored + duplicates + deadLettered + discarded`, whatever happened (I12).
public struct Status: Hashable, Sendable {
    /// Names the queue file.
    public var installID: EventID
    /// Events on disk that wait to be delivered.
    public var depth: Int
    /// Of these, as they will travel, before compression.
    public var bytes: Int
    /// Events that wait for their commit; those that are being committed at that moment can be in ``depth`` already.
    public var inMemory: Int
    /// The time of the oldest waiting event, in Unix milliseconds.
    public var oldest: Int64?
    /// Why the latest attempt to deliver failed; if it did not, why that to deliver queues beside this one did; else nil.
    public var failure: DeliveryFailure?
    /// Why the latest commit failed; nil if it did not.
    public var storageFailure: StorageFailure?
    /// When the next attempt to deliver this queue is made after a failure, in Unix milliseconds.
    public var nextAttempt: Int64?
    /// The highest sequence given, those in memory included.
    public var created: Int64
    /// Events committed since the queue began.
    public var tracked: Int64
    /// Acknowledged as stored for the first time. Of this queue: those of queues beside it, which are removed once they are delivered, are in
    /// ``FlushReport`` and ``EventDeliveries`` only.
    public var stored: Int64
    /// Acknowledged as stored before; or taken again after damage, when nobody knew that the id still waited.
    public var duplicates: Int64
    /// Moved to the dead letters since the queue began and not put back; those that were deleted since count as well.
    public var deadLettered: Int64
    /// Events gone unsent after they had been stored: removed by the quota, purged, or lost with a damaged file.
    public var discarded: Int64
    /// By reason: events refused at intake, which took no sequence; discarded ones; dead letters that did not stay.
    public var dropped: [String: Int64]
    /// Whether this queue stands in for a main one that was taken.
    public var isSpool: Bool
    /// The latest damage, of this queue's file or of one beside it, that was met, taken over or told of since the client started, which may
    /// have been met before; nil if there was none.
    public var damage: QueueDamage?
}
