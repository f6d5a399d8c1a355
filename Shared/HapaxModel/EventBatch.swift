/// A batch as it travels: an envelope around the bytes of its events, which are joined as they are.
public struct EventBatch: Sendable {
    /// What stands around the events.
    public var envelope: Envelope
    /// Each one encoded event.
    public var events: [[UInt8]]

    /// The events are taken as they are; each must be one whole JSON object.
    public init(envelope: Envelope, events: [[UInt8]]) {
        self.envelope = envelope
        self.events = events
    }

    /// What is said about a batch. All of it is optional for foreign senders; our own client says all of it.
    public struct Envelope: Hashable, Sendable {
        /// New for each attempt, and repeated by the receipt.
        public var batchID: EventID?
        /// The client's clock when the batch was sent, in Unix milliseconds.
        public var sentAt: Int64?
        /// The queue file that the events come from.
        public var installID: EventID?
        /// The highest sequence that the install has given.
        public var created: Int64?
        /// How many events wait in the install's queue, those of this batch included.
        public var waiting: Int64?
        /// How many events the install dropped since it began, by reason.
        public var dropped: [String: Int64]
        /// The same of installs that are gone and whose counts this one has taken over.
        public var takenOver: [EventID: [String: Int64]]

        /// What is nil, or empty, is left out of the body.
        public init(
            batchID: EventID? = nil, sentAt: Int64? = nil, installID: EventID? = nil, created: Int64? = nil,
            waiting: Int64? = nil, dropped: [String: Int64] = [:], takenOver: [EventID: [String: Int64]] = [:]
        ) {
            self.batchID = batchID
            self.sentAt = sentAt
            self.installID = installID
            self.created = created
            self.waiting = waiting
            self.dropped = dropped
            self.takenOver = takenOver
        }
    }

    /// The request's body, before compression.
    public func encoded() -> [UInt8] {
        var writer = JSONWriter(capacity: events.reduce(512) { $0 + $1.count + 1 })
        writer.raw("{")
        if let batchID = envelope.batchID {
            writer.raw(#""batch_id":"#)
            writer.id(batchID)
            writer.raw(",")
        }
        if let sentAt = envelope.sentAt { writer.field(#""sent_at":"#, sentAt) }
        if let installID = envelope.installID {
            writer.raw(#""install_id":"#)
            writer.id(installID)
            writer.raw(",")
        }
        if let created = envelope.created { writer.field(#""created":"#, created) }
        if let waiting = envelope.waiting { writer.field(#""waiting":"#, waiting) }
        if !envelope.dropped.isEmpty {
            writer.raw(#""dropped":"#)
            writer.object(envelope.dropped.mapValues { .integer($0) })
            writer.raw(",")
        }
        if !envelope.takenOver.isEmpty {
            writer.raw(#""taken_over":{"#)
            for (index, install) in envelope.takenOver.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { writer.raw(",") }
                writer.id(install.key)
                writer.raw(":")
                writer.object(install.value.mapValues { .integer($0) })
            }
            writer.raw("},")
        }
        writer.raw(#""events":["#)
        for (index, event) in events.enumerated() {
            if index > 0 { writer.raw(",") }
            writer.raw(event)
        }
        writer.raw("]}")
        return writer.bytes
    }
}

extension JSONWriter {
    fileprivate mutating func field(_ key: StaticString, _ value: Int64) {
        raw(key)
        integer(value)
        raw(",")
    }
}
