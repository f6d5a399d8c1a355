/// A hash of an event's values, not of how they are written: tells whether two events with one id are the same event.
///
/// Name, distinct_id and the JSON value of `properties` take part. Time, sequence and install do not: if a client lost its clock or its queue
/// and sends the same event again, that is a duplicate, not a conflict. The hash costs more than all other work on an event, so it is used only
/// for events that come again in other bytes (``ScannedEvent/fingerprint``). It is never stored.
///
/// It is compared only between two events under one id of one project, so a sender that constructs a collision deceives only itself.
package struct ValueHash: Hashable, Sendable {
    package let value: UInt64

    /// The seeds of the kinds of value, so that the text "1" and the number 1 differ.
    private enum Kind: UInt64 {
        case null = 0
        case bool = 1
        case number = 2
        case text = 3
        case array = 4
        case member = 5
        case object = 6
        case event = 7
    }

    /// - Parameters:
    ///   - name: Unescaped UTF-8.
    ///   - distinctID: Unescaped UTF-8.
    ///   - properties: A JSON object that ``EventScanner`` has accepted.
    package init(name: ArraySlice<UInt8>, distinctID: ArraySlice<UInt8>, properties: ArraySlice<UInt8>) {
        let whom = XXH64.hash(Self.hash(text: name), Self.hash(text: distinctID), seed: Kind.event.rawValue)
        value = XXH64.hash(whom, Self.hash(json: properties), seed: Kind.event.rawValue)
    }

    /// The same for one value alone: equal values have equal hashes, however they are written.
    ///
    /// - Parameter json: A JSON value that ``EventScanner`` has accepted as part of an event.
    package static func hash(json: ArraySlice<UInt8>) -> UInt64 {
        json.withUnsafeBufferPointer { bytes in
            var walk = Walk(bytes)
            return walk.value()
        }
    }

    package static func hash(text: ArraySlice<UInt8>) -> UInt64 {
        text.withUnsafeBytes { XXH64.hash($0, seed: Kind.text.rawValue) }
    }

    /// One pass over JSON that has been checked: at most ``EventLimits/maximumDepth`` deep, so that recursion is safe.
    private struct Walk {
        private var cursor: JSONCursor
        private let repeatedKeys = RepeatedKeys()
        /// A crafted body can hold very many empty objects, so they must be cheap.
        private static let emptyObject = XXH64.hash(0, 0, seed: Kind.object.rawValue)
        /// The members of all open objects, those of the innermost last.
        private var members: [(key: UInt64, value: UInt64)] = []

        init(_ bytes: UnsafeBufferPointer<UInt8>) {
            cursor = JSONCursor(bytes)
            members.reserveCapacity(32)
        }

        mutating func value() -> UInt64 {
            cursor.skipWhitespace()
            switch cursor.current {
            case UInt8(ascii: "{"): return object()
            case UInt8(ascii: "["): return array()
            case UInt8(ascii: "\""): return text(cursor.checkedString())
            case UInt8(ascii: "n"): return word(4, XXH64.hash(0, 0, seed: Kind.null.rawValue))
            case UInt8(ascii: "t"): return word(4, XXH64.hash(1, 0, seed: Kind.bool.rawValue))
            case UInt8(ascii: "f"): return word(5, XXH64.hash(0, 0, seed: Kind.bool.rawValue))
            default: return number()
            }
        }

        private mutating func word(_ length: Int, _ hash: UInt64) -> UInt64 {
            cursor.position += length
            return hash
        }

        private func text(_ text: JSONCursor.Text) -> UInt64 {
            cursor.hash(text, seed: Kind.text.rawValue)
        }

        private mutating func array() -> UInt64 {
            var hash: UInt64 = 0
            cursor.position += 1
            cursor.skipWhitespace()
            while !cursor.skip(UInt8(ascii: "]")) {
                hash = XXH64.hash(hash, value(), seed: Kind.array.rawValue)
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ","))
            }
            return XXH64.hash(hash, 0, seed: Kind.array.rawValue)
        }

        /// A sum, so that the order of members does not matter; of repeated keys the last one counts.
        private mutating func object() -> UInt64 {
            let first = members.count
            cursor.position += 1
            cursor.skipWhitespace()
            while !cursor.skip(UInt8(ascii: "}")) {
                cursor.skipWhitespace()
                let key = text(cursor.checkedString())
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ":"))
                members.append((key, value()))
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ","))
            }
            if members.count == first { return Self.emptyObject }
            defer { members.removeLast(members.count - first) }
            var (sum, count) = (UInt64(0), UInt64(members.count - first))
            for member in members[first...] { sum &+= XXH64.hash(member.key, member.value, seed: Kind.member.rawValue) }
            repeatedKeys.search(members.count - first, hash: { members[first + $0].key }) { place in
                let member = members[first + place]
                sum &-= XXH64.hash(member.key, member.value, seed: Kind.member.rawValue)
                count -= 1
            }
            return XXH64.hash(sum, count, seed: Kind.object.rawValue)
        }

        /// By value: sign, significant digits and exponent of ten, so that 1, 1.0 and 10e-1 are equal, and −0 is 0.
        private mutating func number() -> UInt64 {
            // ``EventLimits/maximumNumberCharacters`` plus eight. Only a size that the compiler knows is certain to be allocated on the stack.
            withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 72) { buffer in
                // The first byte is the sign, digits follow, then the exponent as four bytes, least significant first.
                var count = 1
                buffer[0] = cursor.skip(UInt8(ascii: "-")) ? 1 : 0
                var exponent: Int32 = 0
                var isFraction = false
                while true {
                    let byte = cursor.current
                    if byte == UInt8(ascii: ".") {
                        isFraction = true
                    } else if byte &- 0x30 < 10 {
                        if isFraction { exponent &-= 1 }
                        if count > EventLimits.maximumNumberCharacters {
                            // No number that has been checked is this long.
                            exponent &+= 1
                        } else if count > 1 || byte != 0x30 {
                            buffer[count] = byte
                            count += 1
                        }
                    } else {
                        break
                    }
                    cursor.position += 1
                }
                if cursor.current | 0x20 == UInt8(ascii: "e") {
                    cursor.position += 1
                    let isNegative = cursor.skip(UInt8(ascii: "-"))
                    _ = cursor.skip(UInt8(ascii: "+"))
                    var written: Int32 = 0
                    while cursor.current &- 0x30 < 10 {
                        written = written &* 10 &+ Int32(cursor.current &- 0x30)
                        cursor.position += 1
                    }
                    exponent = isNegative ? exponent &- written : exponent &+ written
                }
                while count > 1, buffer[count - 1] == 0x30 {
                    count -= 1
                    exponent += 1
                }
                if count == 1 { (buffer[0], exponent) = (0, 0) }
                for shift in 0..<4 { buffer[count + shift] = UInt8(truncatingIfNeeded: exponent >> Int32(8 * shift)) }
                return XXH64.hash(
                    UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(buffer)[..<(count + 4)]), seed: Kind.number.rawValue)
            }
        }
    }
}
