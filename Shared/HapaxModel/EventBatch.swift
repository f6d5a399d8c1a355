/// A batch as it is sent: an envelope around encoded events, whose bytes are copied unchanged.
package struct EventBatch: Sendable {
    /// Everything in the body except the events.
    package var envelope: Envelope
    /// Each one encoded event.
    package var events: [[UInt8]]

    /// Does not check the events: each must be one whole JSON object.
    package init(envelope: Envelope, events: [[UInt8]]) {
        self.envelope = envelope
        self.events = events
    }

    /// The fields about a batch as a whole. The server requires none of them; our own client sends them all.
    package struct Envelope: Hashable, Sendable {
        /// New for each attempt, and repeated by the receipt.
        package var batchID: EventID?
        /// The client's clock when the batch was sent, in Unix milliseconds.
        package var sentAt: Int64?
        /// The queue file that the events come from.
        package var installID: EventID?
        /// The version of the install's report, from 1: raised by each change of ``held``, ``removed`` or ``refused``. Of two envelopes the one with
        /// the greater version is the later one, in whatever order they arrive.
        package var reportVersion: Int64?
        /// The highest sequence that the install has assigned.
        package var created: Int64?
        /// The highest sequence that an answer has settled.
        package var acknowledged: Int64?
        /// The sequences below the last event of this batch that still wait and are not in it; at most ``EventLimits/maximumReportedRanges`` ranges.
        package var held: [ClosedRange<Int64>]
        /// The sequences of removed events, which will never come; at most ``EventLimits/maximumReportedRanges`` ranges.
        package var removed: [Removed]
        /// Counts of events refused at intake, which have no sequence, since the install began; at most ``EventLimits/maximumDropReasons``
        /// reasons.
        package var refused: [String: Int64]

        /// Sequences that will never come, and why.
        package struct Removed: Hashable, Sendable {
            /// Both ends included.
            package var sequences: ClosedRange<Int64>
            /// A stable name, such as `purged`; at most ``EventLimits/maximumNameBytes`` bytes.
            package var reason: String

            /// Does not check the reason's length.
            package init(_ sequences: ClosedRange<Int64>, reason: String) {
                self.sequences = sequences
                self.reason = reason
            }
        }

        /// Fields that are nil or empty are left out of the body.
        package init(
            batchID: EventID? = nil, sentAt: Int64? = nil, installID: EventID? = nil, reportVersion: Int64? = nil, created: Int64? = nil,
            acknowledged: Int64? = nil, held: [ClosedRange<Int64>] = [], removed: [Removed] = [], refused: [String: Int64] = [:]
        ) {
            self.batchID = batchID
            self.sentAt = sentAt
            self.installID = installID
            self.reportVersion = reportVersion
            self.created = created
            self.acknowledged = acknowledged
            self.held = held
            self.removed = removed
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
        if let reportVersion = envelope.reportVersion { writer.field(#""report_version":"#, reportVersion) }
        if let created = envelope.created { writer.field(#""created":"#, created) }
        if let acknowledged = envelope.acknowledged { writer.field(#""acknowledged":"#, acknowledged) }
        if !envelope.held.isEmpty {
            writer.raw(#""held":"#)
            writer.raw(envelope.encodedHeld)
            writer.raw(",")
        }
        if !envelope.removed.isEmpty {
            writer.raw(#""removed":"#)
            writer.raw(envelope.encodedRemoved)
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
    /// ``held`` as JSON: `[[9,9],[12,14]]`.
    package var encodedHeld: [UInt8] {
        var writer = JSONWriter(capacity: 2 + held.count * 24)
        writer.list(held) { $0.range($1) }
        return writer.bytes
    }

    /// ``removed`` as JSON: `[[12,14,"purged"]]`.
    package var encodedRemoved: [UInt8] {
        var writer = JSONWriter(capacity: 2 + removed.count * 32)
        writer.list(removed) { $0.range($1.sequences, reason: $1.reason) }
        return writer.bytes
    }

    /// ``refused`` as JSON: `{"quota_full":3}`.
    package var encodedRefused: [UInt8] {
        var writer = JSONWriter()
        writer.object(refused.mapValues { .integer($0) })
        return writer.bytes
    }
}

extension JSONWriter {
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
