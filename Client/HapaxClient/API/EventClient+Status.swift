import Foundation
import HapaxModel

extension EventClient {
    /// How the client's file and its delivery stand.
    public func status() async -> Status {
        let delivery = delivery.latestState
        let (inMemory, uncounted) = writer.intake.withLock { (Int($0.uncommitted.events), $0.uncounted) }
        let counters = file.counters
        return Status(
            installID: counters.installID, depth: Int(counters.waiting), held: Int(counters.held), bytes: Int(counters.bytes),
            inMemory: inMemory, oldest: file.oldestTime.map(Date.init(unixMilliseconds:)), failure: delivery.failure,
            storageFailure: writer.lastFailure,
            nextAttempt: delivery.nextAttempt.map(Date.init(unixMilliseconds:)), created: counters.created, stored: counters.stored,
            duplicates: counters.duplicates,
            deadLettered: counters.deadLettered, removed: counters.gone,
            dropped: counters.dropped.merging(uncounted, uniquingKeysWith: +), damage: file.latestDamage)
    }

    /// Where an event of this client's file became a dead letter.
    package func deadLetter(of id: EventID) throws(StorageFailure) -> DeadLetter? {
        do { return try file.deadLetter(of: id) } catch { throw StorageFailure(error) }
    }

    /// Whether a power cut may take what was stored at the level `power`.
    package var mayLoseInPowerCut: Bool { file.mayLoseInPowerCut }

    /// What was not stored and is not sent again by itself.
    public var deadLetters: DeadLetters { DeadLetters(file: file, delivery: delivery) }
}

extension EventClient {
    /// How a client's file and its delivery stand at one moment.
    ///
    /// `created = depth + stored + duplicates + deadLettered + removed`, whatever happened (I12).
    public struct Status: Hashable, Sendable {
        /// Names the queue file.
        public var installID: EventID
        /// Events on disk that wait to be delivered.
        public var depth: Int
        /// Of these, those that the server refused alone. One becomes a dead letter once the server has accepted others; until then it is tried
        /// again from time to time.
        public var held: Int
        /// Of the events that wait, as they will travel, before compression.
        public var bytes: Int
        /// Events that wait for their commit; those that are being committed at that moment can be in ``depth`` already.
        public var inMemory: Int
        /// The time of the oldest waiting event.
        public var oldest: Date?
        /// Why the latest attempt to deliver failed; nil if it did not.
        public var failure: DeliveryFailure?
        /// Why the latest commit failed; nil if it did not.
        public var storageFailure: StorageFailure?
        /// When the next attempt to deliver is made after a failure.
        public var nextAttempt: Date?
        /// The highest sequence given: events committed since the file began.
        public var created: Int64
        /// Acknowledged as stored for the first time.
        public var stored: Int64
        /// Acknowledged as stored before.
        public var duplicates: Int64
        /// Moved to the dead letters since the file began and not put back; those that were deleted since count as well.
        public var deadLettered: Int64
        /// Events gone unsent after they had been stored: removed by the quota, or purged.
        public var removed: Int64
        /// By reason: events refused at intake, which took no sequence; removed ones; dead letters that did not stay.
        public var dropped: [String: Int64]
        /// The latest damage of the client's file that was met, or of which something was still to be recovered, since the client started; nil if
        /// there was none.
        public var damage: QueueDamage?
    }
}
