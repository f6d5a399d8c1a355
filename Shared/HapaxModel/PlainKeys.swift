/// Rewrites an object whose keys are repeated or escaped, so that every store reads it alike: each key once, with its last value, and with
/// only the escapes that JSON requires.
package enum PlainKeys {
    /// - Parameter object: A JSON object that ``EventScanner`` has accepted, so at most ``EventLimits/maximumDepth`` deep.
    /// - Returns: The object itself if its keys are plain already; else one of the same value, in which scalar values are spelled as before.
    package static func plain(_ object: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        object.withUnsafeBufferPointer { bytes -> [UInt8]? in
            var look = Look(bytes)
            look.value()
            guard look.hasEscapes || look.hasRepeats else { return nil }
            var rewrite = Rewrite(bytes, hasRepeats: look.hasRepeats)
            rewrite.value()
            return rewrite.result
        }.map { $0[...] } ?? object
    }

    /// Finds out whether there is anything to rewrite, which is rare.
    private struct Look {
        private(set) var hasEscapes = false
        private(set) var hasRepeats = false
        private var cursor: JSONCursor
        /// The hashes of the keys of all open objects, those of the innermost last.
        private var keys: [UInt64] = []
        private let repeatedKeys = RepeatedKeys()

        init(_ bytes: UnsafeBufferPointer<UInt8>) {
            cursor = JSONCursor(bytes)
            keys.reserveCapacity(64)
        }

        mutating func value() {
            cursor.skipWhitespace()
            switch cursor.current {
            case UInt8(ascii: "{"):
                let first = keys.count
                cursor.position += 1
                cursor.skipWhitespace()
                while !cursor.skip(UInt8(ascii: "}")) {
                    cursor.skipWhitespace()
                    let key = cursor.checkedString()
                    if key.hasEscapes { hasEscapes = true }
                    keys.append(cursor.hash(key, seed: 0))
                    cursor.skipWhitespace()
                    _ = cursor.skip(UInt8(ascii: ":"))
                    endElement()
                }
                if keys.count > first + 1, !hasRepeats {
                    repeatedKeys.search(keys.count - first, hash: { keys[first + $0] }) { _ in hasRepeats = true }
                }
                keys.removeLast(keys.count - first)
            case UInt8(ascii: "["):
                cursor.position += 1
                cursor.skipWhitespace()
                while !cursor.skip(UInt8(ascii: "]")) { endElement() }
            default: cursor.skipCheckedScalar()
            }
        }

        /// Reads a value, and the comma behind it if there is one.
        private mutating func endElement() {
            value()
            cursor.skipWhitespace()
            _ = cursor.skip(UInt8(ascii: ","))
            cursor.skipWhitespace()
        }
    }

    /// One pass: each byte is read and written once, and moved once more for each object around it in which a key is repeated.
    private struct Rewrite: ~Copyable {
        private var cursor: JSONCursor
        private var writer: JSONWriter
        /// When an object ends: where its members were written, each with its comma, that a later member of the same key replaces. The object's
        /// last member is never among them.
        private var replaced: [Range<Int>] = []
        /// The members of all open objects, those of the innermost last: the key's hash, and where the member was written.
        private var members: [(key: UInt64, written: Range<Int>)] = []
        private let hasRepeats: Bool
        private let repeatedKeys = RepeatedKeys()

        init(_ bytes: UnsafeBufferPointer<UInt8>, hasRepeats: Bool) {
            self.hasRepeats = hasRepeats
            cursor = JSONCursor(bytes)
            writer = JSONWriter(capacity: bytes.count + 16)
        }

        var result: [UInt8] { writer.bytes }

        mutating func value() {
            cursor.skipWhitespace()
            let start = cursor.position
            switch cursor.current {
            case UInt8(ascii: "{"): object()
            case UInt8(ascii: "["): array()
            default:
                cursor.skipCheckedScalar()
                writer.raw(UnsafeBufferPointer(rebasing: cursor.bytes[start..<cursor.position]))
            }
        }

        private mutating func object() {
            let first = members.count
            writer.byte(UInt8(ascii: "{"))
            var isAtEnd = beginsEmpty(UInt8(ascii: "}"))
            while !isAtEnd {
                let start = writer.count
                cursor.skipWhitespace()
                let key = cursor.checkedString()
                cursor.withUnescaped(key) { writer.string($0) }
                writer.byte(UInt8(ascii: ":"))
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ":"))
                value()
                isAtEnd = ends(UInt8(ascii: "}"))
                if hasRepeats { members.append((cursor.hash(key, seed: 0), start..<writer.count)) }
            }
            guard members.count > first else { return }
            repeatedKeys.search(members.count - first, hash: { members[first + $0].key }) { replaced.append(members[first + $0].written) }
            members.removeLast(members.count - first)
            guard !replaced.isEmpty else { return }
            replaced.sort { $0.lowerBound < $1.lowerBound }
            writer.remove(replaced)
            replaced.removeAll(keepingCapacity: true)
        }

        private mutating func array() {
            writer.byte(UInt8(ascii: "["))
            var isAtEnd = beginsEmpty(UInt8(ascii: "]"))
            while !isAtEnd {
                value()
                isAtEnd = ends(UInt8(ascii: "]"))
            }
        }

        private mutating func beginsEmpty(_ end: UInt8) -> Bool {
            cursor.position += 1
            cursor.skipWhitespace()
            guard cursor.skip(end) else { return false }
            writer.byte(end)
            return true
        }

        /// Writes the comma or the closing bracket, and returns whether the element was the last one.
        private mutating func ends(_ end: UInt8) -> Bool {
            cursor.skipWhitespace()
            let isLast = cursor.skip(end)
            if !isLast { _ = cursor.skip(UInt8(ascii: ",")) }
            writer.byte(isLast ? end : UInt8(ascii: ","))
            return isLast
        }
    }
}

extension JSONCursor {
    /// The hash of a string's unescaped bytes, the same however it is escaped.
    func hash(_ text: Text, seed: UInt64) -> UInt64 {
        withUnescaped(text) { XXH64.hash(UnsafeRawBufferPointer($0), seed: seed) }
    }

    /// Steps over a string that has been checked before.
    @inline(__always)
    mutating func checkedString() -> Text {
        position += 1
        let start = position
        var hasEscapes = false
        while true {
            skipPlainText()
            guard !isAtEnd, current != UInt8(ascii: "\"") else { break }
            if current == UInt8(ascii: "\\") {
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
