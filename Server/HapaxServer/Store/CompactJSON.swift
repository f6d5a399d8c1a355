import HapaxModel

enum CompactJSON {
    /// Shortens a stored JSON value so that it can be sent again: PostgreSQL adds white space and writes `1e300` out in digits, which could
    /// break the limits. Numbers stay as they are unless they, or the whole value, break a limit.
    ///
    /// - Parameter json: JSON that ``EventScanner` has accepted, in whatever form.
    static func rewritten(_ json: [UInt8]) -> [UInt8] {
        let result = rewritten(json, keeping: EventLimits.maximumNumberCharacters)
        return result.count <= maximumBytes ? result : rewritten(json, keeping: 3)
    }

    /// The bytes of properties that always fit into an event, however long its other fields are.
    private static let maximumBytes = EventLimits.maximumEventBytes - 1_024

    /// - Parameter characters: A longer number gets an exponent if that makes it shorter.
    private static func rewritten(_ json: [UInt8], keeping characters: Int) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(json.count)
        var rest = json[...]
        while let byte = rest.first {
            switch byte {
            case 0x20, 0x09, 0x0A, 0x0D: rest = rest.dropFirst()
            case UInt8(ascii: "\""):
                var end = rest.startIndex + 1
                while end < rest.endIndex, rest[end] != UInt8(ascii: "\"") { end += rest[end] == UInt8(ascii: "\\") ? 2 : 1 }
                result += rest[...min(end, rest.endIndex - 1)]
                rest = rest[min(end + 1, rest.endIndex)...]
            case UInt8(ascii: "-"), 0x30...0x39:
                let number = rest.prefix { $0 == 0x2B || $0 == 0x2D || $0 == 0x2E || $0 | 0x20 == 0x65 || $0 &- 0x30 < 10 }
                result += number.count > characters ? shortest(number) : number
                rest = rest[number.endIndex...]
            default:
                result.append(byte)
                rest = rest.dropFirst()
            }
        }
        return result
    }

    /// The same number with an exponent if that is shorter.
    private static func shortest(_ number: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        guard !number.contains(where: { $0 | 0x20 == 0x65 }) else { return number }
        let sign = number.prefix { $0 == UInt8(ascii: "-") }
        let magnitude = number.dropFirst(sign.count)
        let point = magnitude.firstIndex(of: UInt8(ascii: ".")) ?? magnitude.endIndex
        var digits = Array(magnitude.filter { $0 != UInt8(ascii: ".") }.drop { $0 == 0x30 })
        var exponent = -max(0, magnitude.endIndex - point - 1)
        while digits.count > 1, digits.last == 0x30 {
            digits.removeLast()
            exponent += 1
        }
        let short = digits.isEmpty ? sign + [0x30] : sign + digits + Array("e\(exponent)".utf8)
        return short.count >= number.count ? number : short
    }
}
