/// Something that happened, as it is written once and then travels unchanged.
package struct Event: Hashable, Sendable {
    /// What makes it the same event wherever it arrives.
    package var id: EventID
    /// What happened, 1…200 bytes of UTF-8; `event` on the wire.
    package var name: String
    /// When it happened by the client's clock, in Unix milliseconds, 0…253402300799999. Nothing rewrites it.
    package var time: Int64
    /// Whom it concerns, 1…200 bytes of UTF-8.
    package var distinctID: String
    /// Its place in its install's order, from 1; nil for events that belong to no install.
    package var sequence: Int64?
    /// What else is known about it; with everything around them at most ``EventLimits/maximumEventBytes``.
    package var properties: Properties

    /// Checks nothing: whether it obeys the limits, ``EventScanner/check(_:)`` says of its bytes.
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

    /// The bytes that travel: one JSON object, the names of `properties` in the order of their bytes, so that the same event is always the
    /// same text.
    ///
    /// What JSON cannot hold is replaced and named in `problem`, so that even such an event can be kept in the dead letters.
    package func encoded() -> EncodedEvent { encoded(over: .none) }

    /// The same, with the properties laid over others.
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
        return EncodedEvent(id: id, bytes: bytes, unencodable: writer.unencodable, obeysLimits: obeysLimits)
    }

    private static func isShort(_ text: String, _ maximum: Int) -> Bool {
        let count = text.utf8.count
        return count > 0 && count <= maximum
    }
}

/// An event as it travels.
package struct EncodedEvent: Sendable {
    /// Of the event.
    package let id: EventID
    /// One JSON object in UTF-8.
    package let bytes: [UInt8]
    /// Why the bytes are not all of the event; nil if they are.
    let unencodable: EventProblem?
    /// Known from writing them; if not, ``EventScanner/check(_:)`` says what is wrong.
    let obeysLimits: Bool

    /// Why the server would refuse it; nil if it has no reason to.
    package var problem: EventProblem? { unencodable ?? (obeysLimits ? nil : EventScanner.check(bytes)) }
}
