/// Rewrites an object whose keys are repeated or escaped, so that every store reads it alike: each key once, the last one's value, written
/// with no more escapes than JSON asks for.
package enum PlainKeys {
    /// - Parameter object: A JSON object that ``EventScanner`` has accepted, so at most ``EventLimits/maximumDepth`` deep.
    /// - Returns: An object of the same value; what stands in it beside keys is as it was written.
    package static func rewritten(_ object: ArraySlice<UInt8>) -> [UInt8] {
        object.withUnsafeBufferPointer { bytes in
            var cursor = JSONCursor(bytes)
            return value(&cursor)
        }
    }

    /// Each byte is read once, however deep it lies.
    private static func value(_ cursor: inout JSONCursor) -> [UInt8] {
        cursor.skipWhitespace()
        let start = cursor.position
        switch cursor.current {
        case UInt8(ascii: "{"):
            var members: [(key: [UInt8], value: [UInt8])] = []
            forEachElement(&cursor, end: UInt8(ascii: "}")) { cursor in
                let key = cursor.unescaped(cursor.checkedString())
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ":"))
                members.append((key, value(&cursor)))
            }
            return object(members, capacity: cursor.position - start)
        case UInt8(ascii: "["):
            var bytes = [UInt8(ascii: "[")]
            forEachElement(&cursor, end: UInt8(ascii: "]")) { cursor in
                if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
                bytes += value(&cursor)
            }
            return bytes + [UInt8(ascii: "]")]
        default:
            cursor.skipCheckedScalar()
            return Array(cursor.bytes[start..<cursor.position])
        }
    }

    private static func object(_ members: [(key: [UInt8], value: [UInt8])], capacity: Int) -> [UInt8] {
        let last = Dictionary(members.enumerated().map { ($0.element.key, $0.offset) }, uniquingKeysWith: { $1 })
        var writer = JSONWriter(capacity: capacity + 16)
        writer.raw("{")
        var isFirst = true
        for (index, member) in members.enumerated() where last[member.key] == index {
            if !isFirst { writer.raw(",") }
            isFirst = false
            writer.string(String(decoding: member.key, as: UTF8.self))
            writer.raw(":")
            writer.raw(member.value)
        }
        writer.raw("}")
        return writer.bytes
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

    /// Steps over a string, a number or a word that has been checked before.
    mutating func skipCheckedScalar() {
        if current == UInt8(ascii: "\"") {
            _ = checkedString()
        } else {
            // A number or a word ends where none of its characters follow.
            while !isAtEnd, !Self.endsToken(current) { position += 1 }
        }
    }

    private static func endsToken(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: ","), UInt8(ascii: "}"), UInt8(ascii: "]"), 0x20, 0x0A, 0x0D, 0x09: true
        default: false
        }
    }
}
