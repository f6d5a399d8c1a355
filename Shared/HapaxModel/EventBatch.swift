/// A batch as it travels: an envelope around the bytes of its events, which are joined as they are.
package struct EventBatch: Sendable {
    /// What stands around the events.
    package var envelope: Envelope
    /// Each one encoded event.
    package var events: [[UInt8]]

    /// The events are taken as they are; each must be one whole JSON object.
    package init(envelope: Envelope, events: [[UInt8]]) {
        self.envelope = envelope
        self.events = events
    }

    /// What is said about a batch. All of it is optional for foreign senders; our own client says all of it.
    package struct Envelope: Hashable, Sendable {
        /// New for each attempt, and repeated by the receipt.
        package var batchID: EventID?
        /// The client's clock when the batch was sent, in Unix milliseconds.
        package var sentAt: Int64?
        /// The queue file that the events come from.
        package var installID: EventID?
        /// Counts what the install has said: raised by each change of ``held``, ``gone`` or ``refused``, from 1. Of two envelopes the one with the
        /// greater word is the later one, whatever order they arrive in.
        package var word: Int64?
        /// The highest sequence that the install has given.
        package var created: Int64?
        /// The highest sequence that is settled.
        package var acknowledged: Int64?
        /// The sequences below the last event of this batch that still wait and are not in it; at most ``EventLimits/maximumSaidRanges`` ranges.
        package var held: [ClosedRange<Int64>]
        /// The sequences that will never come; at most ``EventLimits/maximumSaidRanges``.
        package var gone: [Gone]
        /// Events refused at intake since the install began, which have no sequence, by reason; at most ``EventLimits/maximumDropReasons``.
        package var refused: [String: Int64]

        /// Sequences that will never come, and why.
        package struct Gone: Hashable, Sendable {
            /// Both ends are gone.
            package var sequences: ClosedRange<Int64>
            /// A stable name, such as `purged`; at most ``EventLimits/maximumNameBytes`` bytes.
            package var reason: String

            /// Takes what it is given.
            package init(_ sequences: ClosedRange<Int64>, reason: String) {
                self.sequences = sequences
                self.reason = reason
            }
        }

        /// What is nil, or empty, is left out of the body.
        package init(
            batchID: EventID? = nil, sentAt: Int64? = nil, installID: EventID? = nil, word: Int64? = nil, created: Int64? = nil,
            acknowledged: Int64? = nil, held: [ClosedRange<Int64>] = [], gone: [Gone] = [], refused: [String: Int64] = [:]
        ) {
            self.batchID = batchID
            self.sentAt = sentAt
            self.installID = installID
            self.word = word
            self.created = created
            self.acknowledged = acknowledged
            self.held = held
            self.gone = gone
            self.refused = refused
        }
    }

    /// The request's body, before compression.
    package func encoded() -> [UInt8] {
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
        if let word = envelope.word { writer.field(#""word":"#, word) }
        if let created = envelope.created { writer.field(#""created":"#, created) }
        if let acknowledged = envelope.acknowledged { writer.field(#""acknowledged":"#, acknowledged) }
        if !envelope.held.isEmpty {
            writer.raw(#""held":"#)
            writer.raw(envelope.encodedHeld)
            writer.raw(",")
        }
        if !envelope.gone.isEmpty {
            writer.raw(#""gone":"#)
            writer.raw(envelope.encodedGone)
            writer.raw(",")
        }
        if !envelope.refused.isEmpty {
            writer.raw(#""refused":"#)
            writer.raw(envelope.encodedRefused)
            writer.raw(",")
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

extension EventBatch.Envelope {
    /// ``held`` as it travels: `[[9,9],[12,14]]`.
    package var encodedHeld: [UInt8] {
        var writer = JSONWriter(capacity: 2 + held.count * 24)
        writer.list(held) { $0.range($1) }
        return writer.bytes
    }

    /// ``gone`` as it travels: `[[12,14,"purged"]]`.
    package var encodedGone: [UInt8] {
        var writer = JSONWriter(capacity: 2 + gone.count * 32)
        writer.list(gone) { $0.range($1.sequences, reason: $1.reason) }
        return writer.bytes
    }

    /// ``refused`` as it travels: `{"quota_full":3}`.
    package var encodedRefused: [UInt8] {
        var writer = JSONWriter()
        writer.object(refused.mapValues { .integer($0) })
        return writer.bytes
    }
}

extension JSONWriter {
    fileprivate mutating func list<Element>(_ elements: [Element], _ write: (inout JSONWriter, Element) -> Void) {
        raw("[")
        for (index, element) in elements.enumerated() {
            if index > 0 { raw(",") }
            write(&self, element)
        }
        raw("]")
    }

    fileprivate mutating func range(_ range: ClosedRange<Int64>, reason: String? = nil) {
        raw("[")
        integer(range.lowerBound)
        raw(",")
        integer(range.upperBound)
        if let reason {
            raw(",")
            string(reason)
        }
        raw("]")
    }

    fileprivate mutating func field(_ key: StaticString, _ value: Int64) {
        raw(key)
        integer(value)
        raw(",")
    }
}
