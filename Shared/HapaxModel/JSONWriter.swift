/// Writes JSON (RFC 8259) into one growing buffer. The only writer of the wire on both sides.
package struct JSONWriter {
    package var bytes: [UInt8] = []

    /// The first value that JSON cannot hold, or that lies too deep to be written; something else stands in its place.
    package private(set) var unencodable: EventProblem?

    /// Deeper values are not written: recursion must end well before the stack does. Far above what an event may have.
    private static let maximumDepth = 128

    package init() {}

    package mutating func raw(_ text: StaticString) {
        bytes.append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    package mutating func id(_ id: EventID) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 38) { buffer in
            buffer[0] = UInt8(ascii: "\"")
            id.write(to: UnsafeMutableBufferPointer(rebasing: buffer[1..<37]))
            buffer[37] = UInt8(ascii: "\"")
            bytes.append(contentsOf: buffer)
        }
    }

    package mutating func integer(_ value: some BinaryInteger) {
        guard let small = UInt64(exactly: value) else { return bytes.append(contentsOf: String(value).utf8) }
        // Without a text in between: sequences and times are in every event.
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
            var rest = small
            var start = 20
            repeat {
                start -= 1
                digits[start] = UInt8(truncatingIfNeeded: rest % 10) + 0x30
                rest /= 10
            } while rest > 0
            bytes.append(contentsOf: digits[start...])
        }
    }

    package mutating func string(_ text: String) {
        bytes.append(UInt8(ascii: "\""))
        var text = text
        text.withUTF8 { escaped($0) }
        bytes.append(UInt8(ascii: "\""))
    }

    package mutating func object(_ properties: Properties) {
        object(properties, depth: 2)
    }

    /// - Parameter depth: How deep this value lies in its event, the event being 1.
    private mutating func value(_ value: PropertyValue, depth: Int) {
        switch value {
        case .null: raw("null")
        case .bool(true): raw("true")
        case .bool(false): raw("false")
        case .integer(let number): integer(number)
        case .double(let number): double(number)
        case .string(let text): string(text)
        case .array(let elements):
            guard descend(to: depth) else { return }
            raw("[")
            for (index, element) in elements.enumerated() {
                if index > 0 { raw(",") }
                self.value(element, depth: depth + 1)
            }
            raw("]")
        case .object(let properties): object(properties, depth: depth)
        }
    }

    private mutating func object(_ properties: Properties, depth: Int) {
        guard descend(to: depth) else { return }
        raw("{")
        var first = true
        for (key, element) in properties.sorted(by: { $0.key < $1.key }) {
            if !first { raw(",") }
            first = false
            string(key)
            raw(":")
            value(element, depth: depth + 1)
        }
        raw("}")
    }

    private mutating func descend(to depth: Int) -> Bool {
        if depth <= Self.maximumDepth { return true }
        note(EventProblem(.tooDeep, detail: "nesting beyond \(Self.maximumDepth) was not written"))
        raw("null")
        return false
    }

    private mutating func double(_ number: Double) {
        guard number.isFinite else {
            note(EventProblem(.invalidNumber, detail: "a number is not finite"))
            return string("\(number)")
        }
        // Swift's description is the shortest text that reads back as the same double, and valid JSON for finite values.
        bytes.append(contentsOf: number.description.utf8)
    }

    private mutating func note(_ problem: EventProblem) {
        if unencodable == nil { unencodable = problem }
    }

    private mutating func escaped(_ text: UnsafeBufferPointer<UInt8>) {
        var clean = 0
        for index in 0..<text.count {
            let byte = text[index]
            if byte >= 0x20 && byte != 0x22 && byte != 0x5C { continue }
            bytes.append(contentsOf: text[clean..<index])
            clean = index + 1
            switch byte {
            case 0x22: raw(#"\""#)
            case 0x5C: raw(#"\\"#)
            case 0x0A: raw(#"\n"#)
            case 0x0D: raw(#"\r"#)
            case 0x09: raw(#"\t"#)
            default:
                raw(#"\u00"#)
                bytes.append(byte >> 4 + 0x30)
                let digit = byte & 0xF
                bytes.append(digit < 10 ? 0x30 + digit : 0x61 + digit - 10)
            }
        }
        bytes.append(contentsOf: text[clean...])
    }
}
