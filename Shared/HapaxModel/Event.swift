/// Something that happened, as it is written once and then travels unchanged.
public struct Event: Hashable, Sendable {
    /// What makes it the same event wherever it arrives.
    public var id: EventID
    /// What happened, 1…200 bytes of UTF-8; `event` on the wire.
    public var name: String
    /// When it happened by the client's clock, in Unix milliseconds, 0…253402300799999. Nothing rewrites it.
    public var time: Int64
    /// Whom it concerns, 1…200 bytes of UTF-8.
    public var distinctID: String
    /// Its place in its install's order, from 1; nil for events that belong to no install.
    public var sequence: Int64?
    public var properties: Properties

    public init(
        id: EventID, name: String, time: Int64, distinctID: String, sequence: Int64? = nil, properties: Properties = [:]
    ) {
        self.id = id
        self.name = name
        self.time = time
        self.distinctID = distinctID
        self.sequence = sequence
        self.properties = properties
    }

    /// The bytes that travel: one JSON object, keys of `properties` sorted, so that the same event is always the same bytes.
    ///
    /// Whether they obey the limits is for ``EventScanner/check(_:)`` to say. What JSON cannot hold is replaced and named in
    /// `unencodable`, so that even such an event can be kept in the dead letters.
    public func encoded() -> EncodedEvent {
        var writer = JSONWriter()
        writer.bytes.reserveCapacity(512)
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
        writer.object(properties)
        writer.raw("}")
        return EncodedEvent(id: id, bytes: writer.bytes, unencodable: writer.unencodable)
    }
}

/// An event as it travels.
public struct EncodedEvent: Sendable {
    public let id: EventID
    /// One JSON object in UTF-8.
    public let bytes: [UInt8]
    /// Why the bytes are not all of the event; nil if they are.
    public let unencodable: EventProblem?
}
