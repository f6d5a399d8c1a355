import HapaxModel

extension JSONWriter {
    /// An event as it was sent, its properties as the store keeps them.
    mutating func event(_ event: EventRow) {
        eventMembers(event)
        raw(event.properties)
        raw("}")
    }

    /// A line of an export: what `hapax import` takes, and when it was received.
    mutating func line(_ event: EventRow) {
        eventMembers(event)
        // A line's end can only stand between values: inside of a text JSON escapes it.
        raw(event.properties.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
        raw(#","received_at":"#)
        string(event.receivedAt.description)
        raw("}\n")
    }

    private mutating func eventMembers(_ event: EventRow) {
        raw(#"{"event_id":"#)
        id(event.id)
        raw(#","event":"#)
        text(event.name)
        raw(#","time":"#)
        integer(event.time)
        raw(#","distinct_id":"#)
        text(event.distinctID)
        raw(#","properties":"#)
    }

    /// The members that every answer with a stored event has.
    mutating func members(of event: EventRow) {
        raw(#""received_at":"#)
        string(event.receivedAt.description)
        raw(event.isLate ? #","late":true,"install_id":"# : #","late":false,"install_id":"#)
        optional(event.installID)
        raw(#","sequence":"#)
        optional(event.sequence)
        raw(#","event":"#)
        self.event(event)
    }

    mutating func text(_ utf8: some Collection<UInt8>) {
        string(String(decoding: utf8, as: UTF8.self))
    }

    mutating func optional(_ id: EventID?) {
        if let id { self.id(id) } else { raw("null") }
    }

    mutating func optional(_ text: String?) {
        if let text { string(text) } else { raw("null") }
    }

    mutating func optional(_ number: (some BinaryInteger)?) {
        if let number { integer(Int64(number)) } else { raw("null") }
    }

    mutating func list<Element>(_ elements: some Sequence<Element>, _ write: (inout JSONWriter, Element) -> Void) {
        raw("[")
        var isFirst = true
        for element in elements {
            if !isFirst { raw(",") }
            isFirst = false
            write(&self, element)
        }
        raw("]")
    }
}

extension EventPosition {
    /// As it travels; nobody but this server has to understand it.
    var text: String { "\(receivedAt.unixMicroseconds).\(id)" }

    init?(text: String) {
        let parts = text.split(separator: ".", maxSplits: 1)
        guard parts.count == 2, let instant = Int64(parts[0]).flatMap({ Timestamp(unixMicroseconds: $0) }),
            let id = EventID(String(parts[1]))
        else { return nil }
        self.init(receivedAt: instant, id: id)
    }
}
