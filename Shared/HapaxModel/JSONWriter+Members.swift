/// Objects and lists of answers: a comma stands in front of whatever does not come first.
extension JSONWriter {
    package mutating func object(_ members: (inout JSONWriter) -> Void) {
        byte(UInt8(ascii: "{"))
        members(&self)
        byte(UInt8(ascii: "}"))
    }

    package mutating func list<Element>(_ elements: some Sequence<Element>, _ write: (inout JSONWriter, Element) -> Void) {
        byte(UInt8(ascii: "["))
        for element in elements {
            separate()
            write(&self, element)
        }
        byte(UInt8(ascii: "]"))
    }

    /// Begins a member; its value must follow.
    package mutating func member(_ name: StaticString) {
        separate()
        byte(UInt8(ascii: "\""))
        raw(name)
        raw(#"":"#)
    }

    /// - Parameter name: Any text.
    package mutating func member(named name: String) {
        separate()
        string(name)
        byte(UInt8(ascii: ":"))
    }

    package mutating func member(_ name: StaticString, _ text: String?) {
        member(name)
        optional(text)
    }

    package mutating func member(_ name: StaticString, _ id: EventID?) {
        member(name)
        if let id { self.id(id) } else { raw("null") }
    }

    package mutating func member(_ name: StaticString, _ number: (some BinaryInteger)?) {
        member(name)
        optional(number)
    }

    package mutating func member(_ name: StaticString, _ flag: Bool) {
        member(name)
        if flag { raw("true") } else { raw("false") }
    }

    package mutating func member<Element>(
        _ name: StaticString, list elements: some Sequence<Element>, _ write: (inout JSONWriter, Element) -> Void
    ) {
        member(name)
        list(elements, write)
    }

    package mutating func member(_ name: StaticString, object members: (inout JSONWriter) -> Void) {
        member(name)
        object(members)
    }

    package mutating func optional(_ text: String?) {
        if let text { string(text) } else { raw("null") }
    }

    package mutating func optional(_ number: (some BinaryInteger)?) {
        if let number { integer(number) } else { raw("null") }
    }

    private mutating func separate() {
        if last != UInt8(ascii: "{"), last != UInt8(ascii: "[") { byte(UInt8(ascii: ",")) }
    }
}
