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
            guard byte <= 0x20, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
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

    // MARK: - Values

    /// Reads one value of any kind and checks all of it.
    ///
    /// - Parameter depth: The depth of what encloses the value; an object here is at `depth + 1`.
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
            // Close the objects and arrays that end after the value.
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

    /// Skips a value that has been checked before. Applies no limits: it may be nested deeper now, or PostgreSQL has rewritten its numbers.
    ///
    /// - Returns: false if no value begins here, or its end is missing.
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
    /// Of the innermost level.
    private var keys: UInt16 = 0
    private var outerKeys = InlineKeyCounts()

    init(depth: Int) { outerDepth = depth }

    var isEmpty: Bool { count == 0 }
    var isInObject: Bool { objects & 1 == 1 }

    mutating func push(isObject: Bool) throws(EventProblem) {
        count += 1
        guard outerDepth + count <= EventLimits.maximumDepth else {
            throw EventProblem(.tooDeep, detail: "nesting is deeper than \(EventLimits.maximumDepth)")
        }
        objects = objects << 1 | (isObject ? 1 : 0)
        outerKeys[count - 1] = keys
        keys = 0
    }

    mutating func pop() {
        count -= 1
        objects >>= 1
        keys = outerKeys[count]
    }

    mutating func countKey() throws(EventProblem) {
        keys += 1
        if Int(keys) > EventLimits.maximumKeysPerObject {
            throw EventProblem(.tooManyKeys, detail: "an object has more than \(EventLimits.maximumKeysPerObject) keys")
        }
    }
}

/// Thirty-two counters of sixteen bits, without allocation.
private struct InlineKeyCounts {
    private var words = (SIMD16<UInt16>(), SIMD16<UInt16>())

    subscript(level: Int) -> UInt16 {
        get { level < 16 ? words.0[level] : words.1[level - 16] }
        set { if level < 16 { words.0[level] = newValue } else { words.1[level - 16] = newValue } }
    }
}
