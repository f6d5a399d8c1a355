import Foundation

extension PropertyValue {
    /// The value of a JSON text that an event may hold. The last of repeated keys wins. A number with a fraction or an exponent becomes the
    /// nearest double. An integer beyond 64 bits, and a number from 2⁵³ on that a double would round, becomes a ``number(_:)``.
    ///
    /// - Throws: What is wrong with it; also if two keys are equal as `String` though their bytes differ.
    package init(json text: String) throws(EventProblem) {
        // Bounds the depth, above all: the code below recurses.
        let id = EventID.derived(name: "", key: "")
        let event = #"{"event_id":"\#(id)","event":"e","time":0,"distinct_id":"u","properties":{"value":\#(text)}}"#
        if let problem = EventScanner.check(Array(event.utf8)) {
            throw EventProblem(problem.reason, detail: problem.detail.replacing("properties.value", with: "properties"))
        }
        let result = Array(text.utf8).withUnsafeBufferPointer { bytes -> Result<PropertyValue, EventProblem> in
            var cursor = JSONCursor(bytes)
            return Result { () throws(EventProblem) in
                let value = try cursor.propertyValue()
                cursor.skipWhitespace()
                guard cursor.isAtEnd else { throw JSONCursor.invalid("something follows the value") }
                return value
            }
        }
        self = try result.get()
    }
}

extension [String: PropertyValue] {
    /// Whether there is a key that is canonically equivalent to this one but has other bytes: one of the two would be lost.
    package func holdsLookalike(of key: String) -> Bool {
        guard let index = index(forKey: key) else { return false }
        return !keys[index].utf8.elementsEqual(key.utf8)
    }
}

extension JSONCursor {
    /// Reads a value that has been checked.
    fileprivate mutating func propertyValue() throws(EventProblem) -> PropertyValue {
        skipWhitespace()
        switch current {
        case UInt8(ascii: "{"): return .object(try object())
        case UInt8(ascii: "["): return .array(try array())
        case UInt8(ascii: "\""): return .string(string(try string()))
        case UInt8(ascii: "-"), 0x30...0x39: return try numericValue()
        default:
            let start = position
            try value(depth: 0)
            return start == position - 4 ? bytes[start] == UInt8(ascii: "n") ? .null : .bool(true) : .bool(false)
        }
    }

    private mutating func object() throws(EventProblem) -> [String: PropertyValue] {
        var object: [String: PropertyValue] = [:]
        position += 1
        skipWhitespace()
        while !skip(UInt8(ascii: "}")) {
            skipWhitespace()
            let key = string(try string())
            guard !object.holdsLookalike(of: key) else {
                throw EventProblem(.invalidJSON, detail: "two keys of an object differ only in how their letters are composed")
            }
            skipWhitespace()
            _ = skip(UInt8(ascii: ":"))
            object[key] = try propertyValue()
            skipWhitespace()
            _ = skip(UInt8(ascii: ","))
        }
        return object
    }

    private mutating func array() throws(EventProblem) -> [PropertyValue] {
        var array: [PropertyValue] = []
        position += 1
        skipWhitespace()
        while !skip(UInt8(ascii: "]")) {
            array.append(try propertyValue())
            skipWhitespace()
            _ = skip(UInt8(ascii: ","))
        }
        return array
    }

    private mutating func numericValue() throws(EventProblem) -> PropertyValue {
        let range = try number()
        if let integer = integer(range) { return .integer(integer) }
        let text = String(decoding: bytes[range], as: UTF8.self)
        // An integer beyond 64 bits keeps all its digits.
        if bytes[range].allSatisfy({ $0 &- 0x30 < 10 || $0 == UInt8(ascii: "-") }), text != "-0" { return .number(text) }
        guard let double = Double(text) else { return .number(text) }
        // From 2⁵³ on a double cannot hold every integer: a number that it would change is kept as text.
        if double.magnitude >= 0x1p53, let exact = Decimal(string: text), exact != Decimal(string: "\(double)") { return .number(text) }
        return .double(double)
    }
}
