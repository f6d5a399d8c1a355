import HapaxModel

/// Where events to deliver come from: a queue, or a file that is being imported.
///
/// Contract: ``nextBatch(limit:maximumBytes:skipping:)`` changes nothing and always gives the oldest events; ``settle(_:)`` makes all of
/// its changes durable or none. One delivery at a time works on a source, on a thread that may wait for the disk.
package protocol BatchSource: Sendable {
    /// - Parameters:
    ///   - maximumBytes: Of the events together; the first event is given even if it alone is larger.
    ///   - skipping: How many of the oldest events to leave out.
    /// - Returns: Without events if there are none behind the skipped ones.
    nonisolated(nonsending) func nextBatch(limit: Int, maximumBytes: Int, skipping: Int) async throws -> SourceBatch

    nonisolated(nonsending) func settle(_ settlements: [Settlement]) async throws
}

/// The oldest events and what the envelope says about where they come from.
package struct SourceBatch: Sendable {
    package var events: [OutgoingEvent]
    /// Without batch id and time, which each attempt gives anew.
    package var envelope: EventBatch.Envelope
    /// Events that became dead letters while these were read: their bytes had changed on the disk.
    package var buried = 0

    package init(events: [OutgoingEvent], envelope: EventBatch.Envelope = EventBatch.Envelope()) {
        self.events = events
        self.envelope = envelope
    }
}

package struct OutgoingEvent: Hashable, Sendable {
    /// The source's own name for it.
    package var row: Int64
    package var id: EventID
    package var bytes: [UInt8]

    package init(row: Int64, id: EventID, bytes: [UInt8]) {
        self.row = row
        self.id = id
        self.bytes = bytes
    }
}

/// What becomes of one event that was sent.
package struct Settlement: Hashable, Sendable {
    package enum Fate: Hashable, Sendable {
        case stored
        case duplicate
        case deadLetter(reason: String, detail: String)
    }

    package var event: OutgoingEvent
    package var fate: Fate
}

extension Settlement {
    /// One that was never sent.
    init(buried id: EventID, _ reason: String, _ detail: String) {
        self.init(event: OutgoingEvent(row: 0, id: id, bytes: []), fate: .deadLetter(reason: reason, detail: detail))
    }
}
