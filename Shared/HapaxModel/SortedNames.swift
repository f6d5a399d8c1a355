/// Sorts an object's members by the bytes of their names, so that the same object always gives the same text.
struct SortedNames {
    /// A name; most comparisons need only its prefix.
    struct Name: Comparable, Sendable {
        let text: String
        /// The first eight bytes, padded with zeros.
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
        var value: PropertyValue
    }

    /// Calls `body` for each name in order; of a repeated name the last value counts.
    static func forEach(of properties: some Collection<Properties.Member>, _ body: (Name, PropertyValue) -> Void) {
        withUnsafeTemporaryAllocation(of: Member.self, capacity: properties.count) { buffer in
            var count = 0
            let isShort = properties.count <= 32
            for property in properties {
                let member = Member(name: Name(property.key), value: property.value)
                var place = count
                // For so few members, insertion sort is the fastest.
                if isShort {
                    while place > 0, member.name < buffer[place - 1].name { place -= 1 }
                    let first = buffer.baseAddress.unsafelyUnwrapped
                    (first + place + 1).moveInitialize(from: first + place, count: count - place)
                }
                buffer.initializeElement(at: place, to: member)
                count += 1
            }
            var members = UnsafeMutableBufferPointer(rebasing: buffer[..<count])
            defer { members.deinitialize() }
            // Both ways are stable (https://developer.apple.com/documentation/swift/mutablecollection/sort()): repeated names keep their order.
            if !isShort { members.sort { $0.name < $1.name } }
            for (index, member) in members.enumerated() where index + 1 == count || members[index + 1].name != member.name {
                body(member.name, member.value)
            }
        }
    }
}
