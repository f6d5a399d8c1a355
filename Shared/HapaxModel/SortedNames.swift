/// The names of an object's members in the order of their bytes: the same object is always the same text.
struct SortedNames {
    /// A name that mostly compares by one number.
    struct Name: Comparable, Sendable {
        let text: String
        /// The first eight bytes, or fewer with zeros behind.
        private let prefix: UInt64

        init(_ text: String) {
            var text = text
            prefix = text.withUTF8 { bytes in
                if bytes.count >= 8 { return UInt64(bigEndian: UnsafeRawBufferPointer(bytes).loadUnaligned(as: UInt64.self)) }
                var prefix: UInt64 = 0
                for index in 0..<8 { prefix = prefix << 8 | (index < bytes.count ? UInt64(bytes[index]) : 0) }
                return prefix
            }
            self.text = text
        }

        static func < (left: Name, right: Name) -> Bool {
            if left.prefix != right.prefix { return left.prefix < right.prefix }
            return left.precedes(right)
        }

        private func precedes(_ other: Name) -> Bool {
            var (text, otherText) = (text, other.text)
            return text.withUTF8 { left in
                otherText.withUTF8 { right in left.lexicographicallyPrecedes(right) }
            }
        }

        static func == (left: Name, right: Name) -> Bool {
            left.prefix == right.prefix && left.text == right.text
        }
    }

    private struct Member {
        var name: Name
        var index: Properties.Index
    }

    static func forEach(of properties: Properties, _ body: (Name, Properties.Index) -> Void) {
        withUnsafeTemporaryAllocation(of: Member.self, capacity: properties.count) { buffer in
            var count = 0
            var index = properties.startIndex
            while index != properties.endIndex {
                let member = Member(name: Name(properties[index].key), index: index)
                // Few enough, mostly, that putting each in its place beats anything cleverer.
                if properties.count <= 32 {
                    var place = count
                    while place > 0, member.name < buffer[place - 1].name { place -= 1 }
                    let first = buffer.baseAddress.unsafelyUnwrapped
                    (first + place + 1).moveInitialize(from: first + place, count: count - place)
                    (first + place).initialize(to: member)
                } else {
                    buffer.initializeElement(at: count, to: member)
                }
                count += 1
                properties.formIndex(after: &index)
            }
            var members = UnsafeMutableBufferPointer(rebasing: buffer[..<count])
            defer { members.deinitialize() }
            if properties.count > 32 { members.sort { $0.name < $1.name } }
            for member in members { body(member.name, member.index) }
        }
    }
}
