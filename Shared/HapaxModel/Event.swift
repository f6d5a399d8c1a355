/// Something that happened, before it is encoded.
package struct Event: Hashable, Sendable {
    /// Identifies the event: the server stores one event per id and project.
    package var id: EventID
    /// What happened, 1…200 bytes of UTF-8; `event` on the wire.
    package var name: String
    /// When it happened by the client's clock, in Unix milliseconds, 0…253402300799999. Nothing rewrites it.
    package var time: Int64
    /// The user whom it concerns, 1…200 bytes of UTF-8.
    package var distinctID: String
    /// Its place in its install's order, from 1; nil for events that belong to no install.
    package var sequence: Int64?
    /// Everything else about it. The whole encoded event has at most ``EventLimits/maximumEventBytes`` bytes.
    package var properties: Properties

    /// Checks nothing: ``EncodedEvent/problem`` reports a limit that the event breaks.
    package init(
        id: EventID, name: String, time: Int64, distinctID: String, sequence: Int64? = nil, properties: Properties = [:]
    ) {
        self.id = id
        self.name = name
        self.time = time
        self.distinctID = distinctID
        self.sequence = sequence
        self.properties = properties
    }

    /// The bytes that are stored and sent: one JSON object. The names in `properties` are sorted by their bytes, so that the same event
    /// always gives the same text.
    ///
    /// A value that JSON cannot hold is replaced and named in `problem`, so that even such an event can be kept as a dead letter.
    package func encoded() -> EncodedEvent { encoded(over: .none) }

    /// The same with shared properties added, where the event has no value of its own.
    package func encoded(over base: EncodedProperties) -> EncodedEvent {
        var writer = JSONWriter(capacity: 1_024)
        writer.raw(#"{"event_id":"#)
        writer.id(id)
        writer.raw(#","event":"#)
        writer.string(name)
        writer.raw(#","time":"#)
        writer.integer(time)
        writer.raw(#","distinct_id":"#)
        writer.string(distinctID)
        if let sequence {
            writer.raw(#","sequence":"#)
            writer.integer(sequence)
        }
        writer.raw(#","properties":"#)
        writer.object(properties, over: base)
        writer.raw("}")
        let bytes = writer.bytes
        let obeysLimits =
            writer.extent.obeysLimits && bytes.count <= EventLimits.maximumEventBytes && time >= 0 && time <= EventLimits.maximumTime
            && sequence ?? 0 >= 0 && Self.isShort(name, EventLimits.maximumNameBytes)
            && Self.isShort(distinctID, EventLimits.maximumDistinctIDBytes)
        return EncodedEvent(
            id: id, bytes: bytes, unencodable: writer.unencodableValue.map { $0.problem.located(at: $0.position, in: bytes) },
            obeysLimits: obeysLimits)
    }

    private static func isShort(_ text: String, _ maximum: Int) -> Bool {
        let count = text.utf8.count
        return count > 0 && count <= maximum
    }
}

/// An event as it is stored and sent.
package struct EncodedEvent: Sendable {
    package let id: EventID
    /// One JSON object in UTF-8.
    package let bytes: [UInt8]
    /// Why a value had to be replaced in the bytes; nil if none was.
    let unencodable: EventProblem?
    /// Whether writing the bytes has shown it; if not, ``EventScanner/check(_:)`` decides.
    let obeysLimits: Bool

    /// Why the server would refuse it; nil if it has no reason to.
    package var problem: EventProblem? { unencodable ?? (obeysLimits ? nil : EventScanner.check(bytes)) }
}
