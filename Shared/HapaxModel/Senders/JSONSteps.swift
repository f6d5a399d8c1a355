/// Steps over JSON that nobody has checked, without recursion: finds where members and values begin and end, and nothing else. Strings end as they
/// do for ``JSONCursor`` and brackets pair by kind, so that no part that is copied elsewhere can leave its place there.
struct JSONSteps {
    let bytes: UnsafeBufferPointer<UInt8>
    var position: Int

    /// Deeper values are stepped over by ``LenientScan``, which keeps a list of what is open; events may be ``EventLimits/maximumDepth`` deep.
    private static let maximumDepth = 64

    init(_ bytes: UnsafeBufferPointer<UInt8>, at position: Int = 0) {
        (self.bytes, self.position) = (bytes, position)
    }

    /// Where a text begins that may have a byte order mark in front.
    static func startOfText(_ bytes: UnsafeBufferPointer<UInt8>) -> Int { bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? 3 : 0 }

    var isAtEnd: Bool { position >= bytes.count }

    /// The byte at the position, or 0 at the end.
    @inline(__always)
    var current: UInt8 { position < bytes.count ? bytes[position] : 0 }

    @inline(__always)
    mutating func skipWhitespace() {
        // Nearly all senders write none.
        guard current <= 0x20 else { return }
        var cursor = JSONCursor(bytes, at: position)
        cursor.skipWhitespace()
        position = cursor.position
    }

    @inline(__always)
    mutating func skip(_ byte: UInt8) -> Bool {
        guard current == byte else { return false }
        position += 1
        return true
    }

    /// - Returns: nil if no string begins here, or it does not end.
    mutating func string() -> JSONCursor.Text? {
        guard skip(UInt8(ascii: "\"")) else { return nil }
        let start = position
        var cursor = JSONCursor(bytes, at: start)
        var hasEscapes = false
        while true {
            cursor.skipPlainText()
            guard !cursor.isAtEnd else { return nil }
            switch cursor.current {
            case UInt8(ascii: "\""):
                position = cursor.position + 1
                return JSONCursor.Text(range: start..<cursor.position, hasEscapes: hasEscapes)
            case UInt8(ascii: "\\"):
                hasEscapes = true
                cursor.position += 2
            default: cursor.position += 1
            }
        }
    }

    /// - Returns: The range of a value of any kind; nil if none begins here, or it does not end.
    mutating func value() -> Range<Int>? {
        let start = position
        // A bit for each open bracket, 1 for an object's; the innermost lowest.
        var (kinds, depth) = (UInt64(0), 0)
        while !isAtEnd {
            switch current {
            case UInt8(ascii: "\""): if string() == nil { return nil }
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                guard depth < Self.maximumDepth else {
                    guard let end = LenientScan(bytes).endOfValue(from: start) else { return nil }
                    position = end
                    return start..<end
                }
                kinds = kinds << 1 | (current == UInt8(ascii: "{") ? 1 : 0)
                depth += 1
                position += 1
                continue
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                guard depth > 0, kinds & 1 == (current == UInt8(ascii: "}") ? 1 : 0) else { return nil }
                kinds >>= 1
                depth -= 1
                position += 1
            case UInt8(ascii: ","), UInt8(ascii: ":"), 0x20, 0x09, 0x0A, 0x0D:
                guard depth > 0 else { return nil }
                position += 1
                continue
            default:
                // A word, of whatever bytes: the scanner refuses what is none.
                repeat { position += 1 } while !isAtEnd && !Self.endsWord(current)
            }
            if depth == 0 { return start..<position }
        }
        return nil
    }

    private static func endsWord(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x20, 0x09, 0x0A, 0x0D, UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "\""), UInt8(ascii: "{"), UInt8(ascii: "}"),
            UInt8(ascii: "["),
            UInt8(ascii: "]"):
            true
        default: false
        }
    }

    /// One member of an object.
    struct Member {
        /// From the opening quotation mark of the key to the end of the value.
        var range: Range<Int>
        var key: JSONCursor.Text
        var value: Range<Int>
    }

    /// Steps over an object.
    ///
    /// - Returns: false if none begins here, or it cannot be stepped over.
    @inline(__always)
    mutating func object<State>(_ state: inout State, _ visit: (inout State, Member) -> Void) -> Bool {
        guard skip(UInt8(ascii: "{")) else { return false }
        skipWhitespace()
        if skip(UInt8(ascii: "}")) { return true }
        repeat {
            skipWhitespace()
            let start = position
            guard let key = string() else { return false }
            skipWhitespace()
            guard skip(UInt8(ascii: ":")) else { return false }
            skipWhitespace()
            guard let value = value() else { return false }
            visit(&state, Member(range: start..<position, key: key, value: value))
            skipWhitespace()
        } while skip(UInt8(ascii: ","))
        return skip(UInt8(ascii: "}"))
    }
}
