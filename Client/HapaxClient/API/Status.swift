import Foundation
import HapaxModel

extension EventClient {
    /// How a client's file and its delivery stand at one moment.
    ///
    /// `created = depth + stored + duplicates + deadLettered + removed`, whatever happened (I12).
    public struct Status: Hashable, Sendable {
        /// Names the queue file; nil while it is closed.
        public var installID: EventID?
        /// Why the queue is closed; nil if it is open, or if there is no configuration.
        public var startFailure: StartError?
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
        /// What the server said of it, for people: why it does not know the key, for example. Of an answer that is not our server's nothing.
        public var failureDetail: String?
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
        /// Events removed unsent after they had been stored: by the quota, or by a purge.
        public var removed: Int64
        /// By reason: events refused at intake, which took no sequence; removed ones; dead letters that did not stay.
        public var dropped: [String: Int64]
        /// The latest damage of the client's file that was met, or of which something was still to be recovered, since the client started; nil if
        /// there was none.
        public var damage: QueueDamage?
    }
}

extension EventClient.Status {
    /// Of a client whose queue is closed.
    init(startFailure: StartError?, refused: [String: Int64]) {
        self.init(
            startFailure: startFailure, depth: 0, held: 0, bytes: 0, inMemory: 0, created: 0, stored: 0, duplicates: 0, deadLettered: 0,
            removed: 0, dropped: refused)
    }
}
