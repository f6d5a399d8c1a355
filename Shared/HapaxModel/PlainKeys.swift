/// Rewrites an object whose keys are repeated or escaped, so that every store reads it alike: each key once, the last one's value, written
/// with no more escapes than JSON asks for.
package enum PlainKeys {
    /// - Parameter object: A JSON object that ``EventScanner`` has accepted, so at most ``EventLimits/maximumDepth`` deep.
    /// - Returns: An object of the same value; what stands in it beside keys is as it was written.
    package static func rewritten(_ object: ArraySlice<UInt8>) -> [UInt8] {
        object.withUnsafeBufferPointer { bytes in
            var cursor = JSONCursor(bytes)
            var writer = JSONWriter(capacity: bytes.count + 16)
            copyValue(&cursor, &writer)
            return writer.bytes
        }
    }

    private static func copyValue(_ cursor: inout JSONCursor, _ writer: inout JSONWriter) {
        cursor.skipWhitespace()
        switch cursor.current {
        case UInt8(ascii: "{"): copyObject(&cursor, &writer)
        case UInt8(ascii: "["):
            writer.raw("[")
            var isFirst = true
            forEachElement(&cursor, end: UInt8(ascii: "]")) { cursor in
                if !isFirst { writer.raw(",") }
                isFirst = false
                copyValue(&cursor, &writer)
            }
            writer.raw("]")
        default:
            let start = cursor.position
            cursor.skipCheckedValue()
            writer.raw(UnsafeBufferPointer(rebasing: cursor.bytes[start..<cursor.position]))
        }
    }

    private static func copyObject(_ cursor: inout JSONCursor, _ writer: inout JSONWriter) {
        var members: [(key: [UInt8], value: JSONCursor)] = []
        forEachElement(&cursor, end: UInt8(ascii: "}")) { cursor in
            let key = cursor.unescaped(cursor.checkedString())
            cursor.skipWhitespace()
            _ = cursor.skip(UInt8(ascii: ":"))
            cursor.skipWhitespace()
            members.append((key, cursor))
            cursor.skipCheckedValue()
        }
        let last = Dictionary(members.enumerated().map { ($0.element.key, $0.offset) }, uniquingKeysWith: { $1 })
        writer.raw("{")
        var isFirst = true
        for (index, member) in members.enumerated() where last[member.key] == index {
            if !isFirst { writer.raw(",") }
            isFirst = false
            writer.string(String(decoding: member.key, as: UTF8.self))
            writer.raw(":")
            var value = member.value
            copyValue(&value, &writer)
        }
        writer.raw("}")
    }

    private static func forEachElement(_ cursor: inout JSONCursor, end: UInt8, _ body: (inout JSONCursor) -> Void) {
        cursor.position += 1
        cursor.skipWhitespace()
        while !cursor.skip(end) {
            cursor.skipWhitespace()
            body(&cursor)
            cursor.skipWhitespace()
            _ = cursor.skip(UInt8(ascii: ","))
        }
    }
}

extension JSONCursor {
    /// Steps over a string that has been checked before.
    @inline(__always)
    mutating func checkedString() -> Text {
        position += 1
        let start = position
        var hasEscapes = false
        while position < bytes.count, bytes[position] != 0x22 {
            if bytes[position] == 0x5C {
                hasEscapes = true
                position += 1
            }
            position += 1
        }
        position += 1
        return Text(range: start..<position - 1, hasEscapes: hasEscapes)
    }

    /// Steps over a value that has been checked before.
    mutating func skipCheckedValue() {
        var depth = 0
        repeat {
            switch current {
            case UInt8(ascii: "\""): _ = checkedString()
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                position += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                depth -= 1
                position += 1
            case UInt8(ascii: ","), UInt8(ascii: ":"), 0x20, 0x0A, 0x0D, 0x09: position += 1
            default:
                // A number or a word ends where none of its characters follow.
                while current != 0, !Self.endsToken(current) { position += 1 }
            }
        } while depth > 0 && !isAtEnd
    }

    private static func endsToken(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: ","), UInt8(ascii: "}"), UInt8(ascii: "]"), 0x20, 0x0A, 0x0D, 0x09: true
        default: false
        }
    }
}
