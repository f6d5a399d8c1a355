import HapaxModel

/// The duration of a session from its `$AppEnd`, computed as exactly as by PostgreSQL's `numeric`: a double would round some halves down.
enum SessionDuration {
    private static let longestMilliseconds: Int64 = 86_400_000

    /// - Parameter properties: Of an `$AppEnd`; a JSON object that ``EventScanner`` has accepted.
    /// - Returns: `$event_duration` in milliseconds, rounded half up; nil if it is no number of seconds in 0…86,400.
    static func milliseconds(_ properties: ArraySlice<UInt8>) -> Int64? {
        guard var text = PropertyLookup.value(of: "$event_duration", in: properties) else { return nil }
        let isNegative = text.first == UInt8(ascii: "-")
        if isNegative { text = text.dropFirst() }
        guard let first = text.first, first &- 0x30 < 10 else { return nil }
        // The number as its significant digits times a power of ten.
        let mantissa = text.prefix { $0 | 0x20 != UInt8(ascii: "e") }
        var exponent = Int(String(decoding: text.dropFirst(mantissa.count + 1), as: UTF8.self)) ?? 0
        if let point = mantissa.firstIndex(of: UInt8(ascii: ".")) { exponent -= mantissa.endIndex - point - 1 }
        let digits = mantissa.filter { $0 != UInt8(ascii: ".") }.drop { $0 == 0x30 }
        if digits.isEmpty { return 0 }
        // How many digits the number has before the point when it is written in milliseconds.
        let whole = digits.count + exponent + 3
        guard !isNegative, whole <= 8 else { return nil }
        guard whole >= 0 else { return 0 }
        let before = digits.prefix(whole).reduce(0) { $0 * 10 + Int64($1 - 0x30) }
        let scaled = (digits.count..<max(whole, digits.count)).reduce(before) { sum, _ in sum * 10 }
        let behind = digits.dropFirst(whole)
        guard scaled < longestMilliseconds || (scaled == longestMilliseconds && behind.allSatisfy { $0 == 0x30 }) else { return nil }
        return scaled + (behind.first ?? 0x30 >= 0x35 ? 1 : 0)
    }
}
