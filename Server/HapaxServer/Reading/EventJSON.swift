import HapaxModel

extension JSONWriter {
    /// An event as it was sent, its properties as the store keeps them.
    mutating func event(_ event: EventRow) {
        object { writer in
            writer.members(as: event)
            writer.raw(event.properties)
        }
    }

    /// A line of an export: the event as `hapax import` takes it, and what else the store knows: which number of which install it had, and
    /// when it was received.
    mutating func line(_ event: EventRow) {
        object { writer in
            writer.members(as: event)
            // Line breaks can only be between values, where they may become spaces: inside a text JSON escapes them.
            writer.raw(event.properties.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
            if let installID = event.installID {
                // Under names of their own: they belong to a delivery, and who sends the line again makes another.
                writer.member("install") { writer in
                    writer.member("id", installID)
                    writer.member("sequence", event.sequence)
                }
            }
            writer.member("received_at", event.receivedAt.description)
        }
        raw("\n")
    }

    /// What was sent, up to the properties, whose value must follow.
    private mutating func members(as event: EventRow) {
        member("event_id", event.id)
        member("event")
        text(event.name)
        member("time", event.time)
        member("distinct_id")
        text(event.distinctID)
        member("properties")
    }

    /// The members that every answer with a stored event has.
    mutating func members(of event: EventRow) {
        member("received_at", event.receivedAt.description)
        member("late", event.isLate)
        member("install_id", event.installID)
        member("sequence", event.sequence)
        member("event")
        self.event(event)
    }

    mutating func text(_ utf8: some Collection<UInt8>) {
        string(String(decoding: utf8, as: UTF8.self))
    }
}

extension EventPosition {
    /// The value of `next` and `after`; clients return it without interpreting it.
    var text: String { "\(receivedAt.unixMicroseconds).\(id)" }

    init?(text: String) {
        let parts = text.split(separator: ".", maxSplits: 1)
        guard parts.count == 2, let instant = Int64(parts[0]).flatMap({ Timestamp(unixMicroseconds: $0) }),
            let id = EventID(uuidString: String(parts[1]))
        else { return nil }
        self.init(receivedAt: instant, id: id)
    }
}
