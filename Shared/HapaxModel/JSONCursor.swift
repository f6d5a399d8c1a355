#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Reads JSON (RFC 8259) strictly and byte by byte, without recursion and without building values.
///
/// Positions are indices into `bytes`, which must outlive the cursor. Everything that could later make the database refuse a value is
/// refused here: malformed UTF-8, U+0000, lone surrogates, numbers beyond the limits, nesting beyond the limit.
struct JSONCursor {
    let bytes: UnsafeBufferPointer<UInt8>
    var position: Int

    /// A string's content between its quotes.
    struct Text {
        var range: Range<Int>
        var hasEscapes: Bool
    }

    init(_ bytes: UnsafeBufferPointer<UInt8>, at position: Int = 0) {
        self.bytes = bytes
        self.position = position
    }

    var isAtEnd: Bool { position >= bytes.count }

    /// The byte at the position, or 0 at the end: no token begins with 0.
    @inline(__always)
    var current: UInt8 { position < bytes.count ? bytes[position] : 0 }

    @inline(__always)
    mutating func skipWhitespace() {
        while position < bytes.count {
            let byte = bytes[position]
            guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
            position += 1
        }
    }

    @inline(__always)
    mutating func skip(_ byte: UInt8) -> Bool {
        guard current == byte else { return false }
        position += 1
        return true
    }

    static func invalid(_ detail: String) -> EventProblem { EventProblem(.invalidJSON, detail: detail) }

    // MARK: - Strings

    /// Reads a string whose opening quote is at the position.
    mutating func string() throws(EventProblem) -> Text {
        guard skip(UInt8(ascii: "\"")) else { throw Self.invalid("a string is expected") }
        let start = position
        var hasEscapes = false
        while position < bytes.count {
            let byte = bytes[position]
            if byte == 0x22 {
                position += 1
                return Text(range: start..<position - 1, hasEscapes: hasEscapes)
            } else if byte == 0x5C {
                hasEscapes = true
                try escape()
            } else if byte < 0x20 {
                throw Self.invalid("a control character is not escaped")
            } else if byte < 0x80 {
                position += 1
            } else {
                try multibyteScalar(byte)
            }
        }
        throw Self.invalid("a string does not end")
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

    /// The unescaped bytes of a string that ``string()`` has accepted.
    func unescaped(_ text: Text) -> [UInt8] { withUnescaped(text) { Array($0) } }

    /// The same without an array for them.
    func withUnescaped<Value>(_ text: Text, _ body: (UnsafeBufferPointer<UInt8>) -> Value) -> Value {
        let raw = UnsafeBufferPointer(rebasing: bytes[text.range])
        guard text.hasEscapes else { return body(raw) }
        func unescaped(into buffer: UnsafeMutableBufferPointer<UInt8>) -> Value {
            body(UnsafeBufferPointer(rebasing: buffer[..<unescape(text, into: buffer)]))
        }
        // No escape is shorter than what it stands for. Only a size that the compiler knows is taken from the stack for sure.
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
                if 0xD800...0xDBFF ~= unit, let low = try? codeUnit(at: index) {
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
            // A byte is written with six at most.
            guard expected.count...6 * expected.count ~= text.range.count else { return false }
            return withUnescaped(text) { $0.elementsEqual(expected) }
        }
        return text.range.count == expected.count && bytes[text.range].elementsEqual(expected)
    }

    func string(_ text: Text) -> String {
        text.hasEscapes ? String(decoding: unescaped(text), as: UTF8.self) : String(decoding: bytes[text.range], as: UTF8.self)
    }

    // MARK: - Numbers and words

    /// Reads a number. What is returned is its text; whether it is an integer is ``integer(_:)``'s to say.
    mutating func number() throws(EventProblem) -> Range<Int> {
        let start = position
        _ = skip(UInt8(ascii: "-"))
        if !skip(UInt8(ascii: "0")) { try digits() }
        if skip(UInt8(ascii: ".")) { try digits() }
        var exponent = 0
        let hasExponent = current | 0x20 == UInt8(ascii: "e")
        if hasExponent {
            position += 1
            if !skip(UInt8(ascii: "+")) { _ = skip(UInt8(ascii: "-")) }
            let first = position
            try digits()
            for index in first..<position where exponent <= EventLimits.maximumNumberExponent {
                exponent = exponent * 10 + Int(bytes[index] - 0x30)
            }
        }
        let range = start..<position
        guard range.count <= EventLimits.maximumNumberCharacters else {
            throw EventProblem(
                .invalidNumber,
                detail: "a number has \(range.count) characters, limit \(EventLimits.maximumNumberCharacters)")
        }
        if hasExponent {
            guard exponent <= EventLimits.maximumNumberExponent else {
                throw EventProblem(.invalidNumber, detail: "a number's exponent is beyond \(EventLimits.maximumNumberExponent)")
            }
            guard double(range).isFinite else {
                throw EventProblem(.invalidNumber, detail: "a number is too large for a double")
            }
        }
        return range
    }

    private mutating func digits() throws(EventProblem) {
        let start = position
        while position < bytes.count, bytes[position] &- 0x30 < 10 { position += 1 }
        if position == start { throw Self.invalid("a digit is expected") }
    }

    func double(_ range: Range<Int>) -> Double {
        Double(String(decoding: bytes[range], as: UTF8.self)) ?? .infinity
    }

    /// The value of a number without fraction and exponent, if it fits.
    func integer(_ range: Range<Int>) -> Int64? {
        var index = range.lowerBound
        let negative = bytes[index] == UInt8(ascii: "-")
        if negative { index += 1 }
        var value: Int64 = 0
        while index < range.upperBound {
            let digit = bytes[index] &- 0x30
            guard digit < 10 else { return nil }
            let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, stillTooLarge) = product.subtractingReportingOverflow(Int64(digit))
            if tooLarge || stillTooLarge { return nil }
            value = sum
            index += 1
        }
        if negative { return value }
        return value == .min ? nil : -value
    }

    /// The same by value, however it is written (`12.0`, `1.2e1`).
    func wholeNumber(_ range: Range<Int>) -> Int64? {
        if let number = integer(range) { return number }
        var (value, zeros, exponent, index) = (Int64(0), 0, 0, range.lowerBound)
        let isNegative = bytes[index] == UInt8(ascii: "-")
        func times(_ value: Int64, tens: Int) -> Int64? {
            var value = value
            for _ in 0..<tens where value != 0 {
                let (product, isTooLarge) = value.multipliedReportingOverflow(by: 10)
                if isTooLarge { return nil }
                value = product
            }
            return value
        }
        var isFraction = false
        while index < range.upperBound, bytes[index] | 0x20 != UInt8(ascii: "e") {
            if bytes[index] == UInt8(ascii: ".") { isFraction = true }
            let digit = bytes[index] &- 0x30
            index += 1
            guard digit < 10 else { continue }
            if isFraction { exponent -= 1 }
            zeros += 1
            guard digit > 0 else { continue }
            // Zeros count only once something stands behind them.
            guard let shifted = times(value, tens: zeros) else { return nil }
            let (sum, isTooLarge) = shifted.addingReportingOverflow(Int64(digit))
            if isTooLarge { return nil }
            (value, zeros) = (sum, 0)
        }
        if index < range.upperBound {
            guard let written = Int(String(decoding: bytes[(index + 1)..<range.upperBound], as: UTF8.self)) else { return nil }
            exponent += written
        }
        if value == 0 { return 0 }
        guard (0...18).contains(exponent + zeros), let whole = times(value, tens: exponent + zeros) else { return nil }
        return isNegative ? -whole : whole
    }

    private mutating func word(_ word: StaticString) throws(EventProblem) {
        for offset in 0..<word.utf8CodeUnitCount {
            guard skip(word.utf8Start[offset]) else { throw Self.invalid("a value is expected") }
        }
    }

    // MARK: - Values

    /// Reads one value of any kind and checks all of it.
    ///
    /// - Parameter depth: The nesting the value stands in; an object here would lie at `depth + 1`.
    mutating func value(depth: Int) throws(EventProblem) {
        var stack = NestingStack(depth: depth)
        while true {
            skipWhitespace()
            switch current {
            case UInt8(ascii: "{"):
                position += 1
                try stack.push(isObject: true)
                skipWhitespace()
                if skip(UInt8(ascii: "}")) {
                    stack.pop()
                } else {
                    try key(in: &stack)
                    continue
                }
            case UInt8(ascii: "["):
                position += 1
                try stack.push(isObject: false)
                skipWhitespace()
                if skip(UInt8(ascii: "]")) { stack.pop() } else { continue }
            case UInt8(ascii: "\""): _ = try string()
            case UInt8(ascii: "t"): try word("true")
            case UInt8(ascii: "f"): try word("false")
            case UInt8(ascii: "n"): try word("null")
            case UInt8(ascii: "-"), 0x30...0x39: _ = try number()
            default: throw Self.invalid("a value is expected")
            }
            // A value has ended; close what ends with it.
            while !stack.isEmpty {
                skipWhitespace()
                if skip(UInt8(ascii: ",")) {
                    if stack.isInObject {
                        skipWhitespace()
                        try key(in: &stack)
                    }
                    break
                }
                guard skip(stack.isInObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) else {
                    throw Self.invalid("a comma or an end is expected")
                }
                stack.pop()
            }
            if stack.isEmpty { return }
        }
    }

    /// Goes behind a value that has been checked before, however deep it lies now and however its numbers are written by now.
    ///
    /// - Returns: false if there is none, or no end of it.
    mutating func skipCheckedValue() -> Bool {
        var depth = 0
        while !isAtEnd {
            switch current {
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                position += 1
                continue
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                guard depth > 0 else { return false }
                depth -= 1
                position += 1
            case UInt8(ascii: "\""):
                position += 1
                while !isAtEnd, current != UInt8(ascii: "\"") { position += current == UInt8(ascii: "\\") ? 2 : 1 }
                position = min(position + 1, bytes.count)
            case UInt8(ascii: ","), UInt8(ascii: ":"), 0x20, 0x09, 0x0A, 0x0D:
                guard depth > 0 else { return false }
                position += 1
                continue
            default:
                while !isAtEnd, !Self.endsWord(current) { position += 1 }
            }
            if depth == 0 { return true }
        }
        return false
    }

    /// Whether a number or a word is over.
    private static func endsWord(_ byte: UInt8) -> Bool {
        byte <= 0x20 || byte == UInt8(ascii: ",") || byte == UInt8(ascii: "]") || byte == UInt8(ascii: "}")
    }

    private mutating func key(in stack: inout NestingStack) throws(EventProblem) {
        try stack.countKey()
        _ = try string()
        skipWhitespace()
        guard skip(UInt8(ascii: ":")) else { throw Self.invalid("a colon is expected") }
    }
}

/// The open objects and arrays inside one value: a bit and a key count for each level, without allocation.
private struct NestingStack {
    private let outerDepth: Int
    private var count = 0
    private var objects: UInt64 = 0
    private var keys = InlineKeyCounts()

    init(depth: Int) { outerDepth = depth }

    var isEmpty: Bool { count == 0 }
    var isInObject: Bool { objects & 1 == 1 }

    mutating func push(isObject: Bool) throws(EventProblem) {
        count += 1
        guard outerDepth + count <= EventLimits.maximumDepth else {
            throw EventProblem(.tooDeep, detail: "nesting is deeper than \(EventLimits.maximumDepth)")
        }
        objects = objects << 1 | (isObject ? 1 : 0)
        keys[count - 1] = 0
    }

    mutating func pop() {
        count -= 1
        objects >>= 1
    }

    mutating func countKey() throws(EventProblem) {
        keys[count - 1] += 1
        if Int(keys[count - 1]) > EventLimits.maximumKeysPerObject {
            throw EventProblem(.tooManyKeys, detail: "an object has more than \(EventLimits.maximumKeysPerObject) keys")
        }
    }
}

/// Thirty-two counters of sixteen bits in place.
private struct InlineKeyCounts {
    private var words = (SIMD16<UInt16>(), SIMD16<UInt16>())

    subscript(level: Int) -> UInt16 {
        get { level < 16 ? words.0[level] : words.1[level - 16] }
        set { if level < 16 { words.0[level] = newValue } else { words.1[level - 16] = newValue } }
    }
}
