extension JSONCursor {
    /// Reads a string whose opening quote is at the position.
    mutating func string() throws(EventProblem) -> Text {
        guard skip(UInt8(ascii: "\"")) else { throw Self.invalid("a string is expected") }
        let start = position
        var hasEscapes = false
        while true {
            skipPlainText()
            switch current {
            case UInt8(ascii: "\""):
                position += 1
                return Text(range: start..<position - 1, hasEscapes: hasEscapes)
            case UInt8(ascii: "\\"):
                hasEscapes = true
                try escape()
            case 0x80...: try multibyteScalar(current)
            default: throw Self.invalid(isAtEnd ? "a string does not end" : "a control character is not escaped")
            }
        }
    }

    /// Goes to the next byte that is a quote, a backslash, a control character or not ASCII, eight bytes at a time.
    @inline(__always)
    mutating func skipPlainText() {
        let raw = UnsafeRawBufferPointer(bytes)
        while position + 8 <= raw.count {
            let stops = Self.stops(in: UInt64(littleEndian: raw.loadUnaligned(fromByteOffset: position, as: UInt64.self)))
            guard stops == 0 else {
                position += stops.trailingZeroBitCount / 8
                return
            }
            position += 8
        }
        while position < raw.count, Self.stops(in: UInt64(raw[position]) | 0x2020_2020_2020_2000) == 0 { position += 1 }
    }

    /// Finds the bytes of a word that end plain text. Each subtraction sets the highest bit of an ASCII byte that is below what is subtracted; its borrow
    /// may set that of a byte above, too, so that only the lowest bit is to be believed. A byte that is not ASCII has that bit itself.
    ///
    /// - Returns: The highest bit of the first such byte, and some above it; 0 if there is none.
    @inline(__always)
    private static func stops(in word: UInt64) -> UInt64 {
        let (ones, highest) = (0x0101_0101_0101_0101 as UInt64, 0x8080_8080_8080_8080 as UInt64)
        let (quotes, backslashes) = (word ^ (ones &* 0x22), word ^ (ones &* 0x5C))
        return ((quotes &- ones) | (backslashes &- ones) | (word &- ones &* 0x20) | word) & highest
    }

    /// The well-formed sequences of Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
    private mutating func multibyteScalar(_ lead: UInt8) throws(EventProblem) {
        let malformed = EventProblem(.invalidUTF8, detail: "a string is not well-formed UTF-8")
        let length: Int
        var second: ClosedRange<UInt8> = 0x80...0xBF
        switch lead {
        case 0xC2...0xDF: length = 2
        case 0xE0: (length, second) = (3, 0xA0...0xBF)
        case 0xED: (length, second) = (3, 0x80...0x9F)
        case 0xE1...0xEF: length = 3
        case 0xF0: (length, second) = (4, 0x90...0xBF)
        case 0xF4: (length, second) = (4, 0x80...0x8F)
        case 0xF1...0xF3: length = 4
        default: throw malformed
        }
        guard bytes.count - position >= length, second.contains(bytes[position + 1]) else { throw malformed }
        for offset in 2..<max(length, 2) where bytes[position + offset] & 0xC0 != 0x80 { throw malformed }
        position += length
    }

    private mutating func escape() throws(EventProblem) {
        guard bytes.count - position >= 2 else { throw Self.invalid("a string does not end") }
        switch bytes[position + 1] {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            position += 2
        case UInt8(ascii: "u"):
            let unit = try codeUnit(at: position)
            position += 6
            switch unit {
            case 0: throw EventProblem(.nulCharacter, detail: "a string holds U+0000")
            case 0xD800...0xDBFF:
                guard current == UInt8(ascii: "\\"), let low = try? codeUnit(at: position), 0xDC00...0xDFFF ~= low else {
                    throw EventProblem(.loneSurrogate, detail: "a surrogate escape stands alone")
                }
                position += 6
            case 0xDC00...0xDFFF: throw EventProblem(.loneSurrogate, detail: "a surrogate escape stands alone")
            default: break
            }
        default: throw Self.invalid("a string holds an unknown escape")
        }
    }

    /// The four hexadecimal digits of the `\u` escape that begins at `start`.
    private func codeUnit(at start: Int) throws(EventProblem) -> UInt32 {
        guard bytes.count - start >= 6, bytes[start + 1] == UInt8(ascii: "u") else { throw Self.invalid("a \\u escape is cut") }
        var unit: UInt32 = 0
        for index in start + 2..<start + 6 {
            let digit: UInt8
            switch bytes[index] {
            case 0x30...0x39: digit = bytes[index] - 0x30
            case 0x61...0x66: digit = bytes[index] - 0x61 + 10
            case 0x41...0x46: digit = bytes[index] - 0x41 + 10
            default: throw Self.invalid("a \\u escape is not hexadecimal")
            }
            unit = unit << 4 | UInt32(digit)
        }
        return unit
    }

    /// The unescaped bytes of a string that ``string()`` has accepted, or that only ends (``JSONSteps/string()``): then what no escape is may be missing.
    func unescaped(_ text: Text) -> [UInt8] { withUnescaped(text) { Array($0) } }

    /// The same without allocating an array.
    func withUnescaped<Value>(_ text: Text, _ body: (UnsafeBufferPointer<UInt8>) -> Value) -> Value {
        let raw = UnsafeBufferPointer(rebasing: bytes[text.range])
        guard text.hasEscapes else { return body(raw) }
        func unescaped(into buffer: UnsafeMutableBufferPointer<UInt8>) -> Value {
            body(UnsafeBufferPointer(rebasing: buffer[..<unescape(text, into: buffer)]))
        }
        // Unescaping never makes a text longer. Only a size that the compiler knows is certain to be allocated on the stack.
        guard raw.count > 256 else { return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 256) { unescaped(into: $0) } }
        return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: raw.count) { unescaped(into: $0) }
    }

    /// - Returns: How many bytes were written.
    private func unescape(_ text: Text, into result: UnsafeMutableBufferPointer<UInt8>) -> Int {
        var count = 0
        func append(_ byte: UInt8) {
            result[count] = byte
            count += 1
        }
        var index = text.range.lowerBound
        while index < text.range.upperBound {
            guard bytes[index] == UInt8(ascii: "\\") else {
                append(bytes[index])
                index += 1
                continue
            }
            let kind = bytes[index + 1]
            if kind == UInt8(ascii: "u"), let unit = try? codeUnit(at: index) {
                index += 6
                var scalar = unit
                // A pair, as in each text that was checked; of others half a pair is nothing.
                if 0xD800...0xDBFF ~= unit, index + 6 <= text.range.upperBound, bytes[index] == UInt8(ascii: "\\"),
                    let low = try? codeUnit(at: index), 0xDC00...0xDFFF ~= low
                {
                    index += 6
                    scalar = 0x10000 + (unit - 0xD800) << 10 + (low - 0xDC00)
                }
                if let scalar = Unicode.Scalar(scalar) { for byte in UTF8.encode(scalar) ?? .init() { append(byte) } }
                continue
            }
            index += 2
            switch kind {
            case UInt8(ascii: "b"): append(0x08)
            case UInt8(ascii: "f"): append(0x0C)
            case UInt8(ascii: "n"): append(0x0A)
            case UInt8(ascii: "r"): append(0x0D)
            case UInt8(ascii: "t"): append(0x09)
            default: append(kind)
            }
        }
        return count
    }

    func equals(_ text: Text, _ other: StaticString) -> Bool {
        let expected = UnsafeBufferPointer(start: other.utf8Start, count: other.utf8CodeUnitCount)
        if text.hasEscapes {
            // An escape takes at most six bytes for one byte.
            guard expected.count...6 * expected.count ~= text.range.count else { return false }
            return withUnescaped(text) { $0.elementsEqual(expected) }
        }
        return text.range.count == expected.count
            && expected.indices.allSatisfy { bytes[text.range.lowerBound &+ $0] == expected[$0] }
    }

    func string(_ text: Text) -> String {
        text.hasEscapes ? String(decoding: unescaped(text), as: UTF8.self) : String(decoding: bytes[text.range], as: UTF8.self)
    }
}
