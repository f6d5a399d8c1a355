/// One text for each JSON value, however it is written: `1.0` and `10e-1` are `1`; members stand in the order of PostgreSQL's `jsonb` (shorter
/// names first, then by their bytes), strings have the escapes that it writes, and there is no white space. Equal texts are equal values.
package enum CanonicalJSON {
    /// - Parameter json: A JSON value that ``EventScanner`` has accepted as part of an event; of repeated keys the last one counts.
    package static func text(_ json: ArraySlice<UInt8>) -> [UInt8] {
        json.withUnsafeBufferPointer { bytes in
            var walk = Walk(cursor: JSONCursor(bytes))
            return walk.value()
        }
    }

    private static let plainDigits = 40

    /// One pass over checked JSON, at most ``EventLimits/maximumDepth`` deep, so that recursion is safe.
    private struct Walk {
        var cursor: JSONCursor

        mutating func value() -> [UInt8] {
            cursor.skipWhitespace()
            switch cursor.current {
            case UInt8(ascii: "{"): return object()
            case UInt8(ascii: "["): return array()
            case UInt8(ascii: "\""): return CanonicalJSON.string(cursor.unescaped(cursor.checkedString()))
            case UInt8(ascii: "n"), UInt8(ascii: "t"), UInt8(ascii: "f"):
                let start = cursor.position
                _ = cursor.skipCheckedValue()
                return Array(cursor.bytes[start..<cursor.position])
            default: return number()
            }
        }

        private mutating func array() -> [UInt8] {
            var parts: [[UInt8]] = []
            cursor.position += 1
            cursor.skipWhitespace()
            while !cursor.skip(UInt8(ascii: "]")) {
                parts.append(value())
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ","))
                cursor.skipWhitespace()
            }
            return Array("[".utf8) + parts.joined(separator: Array(",".utf8)) + Array("]".utf8)
        }

        private mutating func object() -> [UInt8] {
            var members: [[UInt8]: [UInt8]] = [:]
            cursor.position += 1
            cursor.skipWhitespace()
            while !cursor.skip(UInt8(ascii: "}")) {
                let name = cursor.unescaped(cursor.checkedString())
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ":"))
                members[name] = value()
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ","))
                cursor.skipWhitespace()
            }
            let sorted = members.sorted { left, right in
                left.key.count != right.key.count ? left.key.count < right.key.count : left.key.lexicographicallyPrecedes(right.key)
            }
            let parts = sorted.map { CanonicalJSON.string($0.key) + Array(":".utf8) + $0.value }
            return Array("{".utf8) + parts.joined(separator: Array(",".utf8)) + Array("}".utf8)
        }

        /// Without zeros that say nothing or a minus before 0; beyond ``plainDigits`` with an exponent, so that few bytes do not become many.
        private mutating func number() -> [UInt8] {
            let isNegative = cursor.skip(UInt8(ascii: "-"))
            var (digits, point, isFraction) = ([UInt8](), 0, false)
            while true {
                let byte = cursor.current
                if byte == UInt8(ascii: ".") {
                    isFraction = true
                } else if byte &- 0x30 < 10 {
                    digits.append(byte)
                    if !isFraction { point += 1 }
                } else {
                    break
                }
                cursor.position += 1
            }
            if cursor.current | 0x20 == UInt8(ascii: "e") {
                cursor.position += 1
                let isSmaller = cursor.skip(UInt8(ascii: "-"))
                _ = cursor.skip(UInt8(ascii: "+"))
                var exponent = 0
                while cursor.current &- 0x30 < 10 {
                    exponent = min(exponent * 10 + Int(cursor.current - 0x30), EventLimits.maximumNumberExponent)
                    cursor.position += 1
                }
                point += isSmaller ? -exponent : exponent
            }
            let leading = digits.prefix { $0 == 0x30 }.count
            digits.removeFirst(leading)
            point -= leading
            while digits.last == 0x30 { digits.removeLast() }
            if digits.isEmpty { return [0x30] }
            let sign = isNegative ? [UInt8(ascii: "-")] : []
            if max(point, digits.count) - min(point, 0) > CanonicalJSON.plainDigits {
                return sign + digits + Array("e\(point - digits.count)".utf8)
            }
            if point < 0 { digits = Array(repeating: 0x30, count: -point) + digits }
            let whole = point <= 0 ? [0x30] : Array(digits.prefix(point)) + Array(repeating: 0x30, count: max(point - digits.count, 0))
            let fraction = digits.dropFirst(max(point, 0))
            return sign + whole + (fraction.isEmpty ? [] : [UInt8(ascii: ".")] + fraction)
        }
    }

    /// - Parameter text: Unescaped UTF-8.
    package static func string(_ text: [UInt8]) -> [UInt8] {
        var result: [UInt8] = [0x22]
        result.reserveCapacity(text.count + 2)
        for byte in text {
            switch byte {
            case 0x22, 0x5C: result += [0x5C, byte]
            case 0x08: result += Array(#"\b"#.utf8)
            case 0x09: result += Array(#"\t"#.utf8)
            case 0x0A: result += Array(#"\n"#.utf8)
            case 0x0C: result += Array(#"\f"#.utf8)
            case 0x0D: result += Array(#"\r"#.utf8)
            case 0..<0x20:
                let digit = byte & 0xF
                result += Array(#"\u00"#.utf8) + [byte >> 4 + 0x30, digit < 10 ? 0x30 + digit : 0x57 + digit]
            default: result.append(byte)
            }
        }
        result.append(0x22)
        return result
    }
}
