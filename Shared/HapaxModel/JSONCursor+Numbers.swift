extension JSONCursor {
    /// Reads a number and returns the range of its text; ``integer(_:)`` tells whether it is an integer.
    mutating func number() throws(EventProblem) -> Range<Int> {
        let start = position
        _ = skip(UInt8(ascii: "-"))
        if !skip(UInt8(ascii: "0")) { try digits() }
        if skip(UInt8(ascii: ".")) { try digits() }
        var exponent = 0
        let hasExponent = current | 0x20 == UInt8(ascii: "e")
        if hasExponent {
            position += 1
            if !skip(UInt8(ascii: "+")) { _ = skip(UInt8(ascii: "-")) }
            let first = position
            try digits()
            for index in first..<position where exponent <= EventLimits.maximumNumberExponent {
                exponent = exponent * 10 + Int(bytes[index] - 0x30)
            }
        }
        let range = start..<position
        guard range.count <= EventLimits.maximumNumberCharacters else {
            throw EventProblem(
                .invalidNumber,
                detail: "a number has \(range.count) characters, limit \(EventLimits.maximumNumberCharacters)")
        }
        if hasExponent {
            guard exponent <= EventLimits.maximumNumberExponent else {
                throw EventProblem(.invalidNumber, detail: "a number's exponent is beyond \(EventLimits.maximumNumberExponent)")
            }
            guard double(range).isFinite else {
                throw EventProblem(.invalidNumber, detail: "a number is too large for a double")
            }
        }
        return range
    }

    private mutating func digits() throws(EventProblem) {
        let start = position
        while position < bytes.count, bytes[position] &- 0x30 < 10 { position += 1 }
        if position == start { throw Self.invalid("a digit is expected") }
    }

    func double(_ range: Range<Int>) -> Double {
        Double(String(decoding: bytes[range], as: UTF8.self)) ?? .infinity
    }

    /// The value of a number; nil if it has a fraction or an exponent, or exceeds 64 bits.
    func integer(_ range: Range<Int>) -> Int64? {
        var index = range.lowerBound
        let negative = bytes[index] == UInt8(ascii: "-")
        if negative { index += 1 }
        var value: Int64 = 0
        while index < range.upperBound {
            let digit = bytes[index] &- 0x30
            guard digit < 10 else { return nil }
            let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, stillTooLarge) = product.subtractingReportingOverflow(Int64(digit))
            if tooLarge || stillTooLarge { return nil }
            value = sum
            index += 1
        }
        if negative { return value }
        return value == .min ? nil : -value
    }

    /// The same for a whole number in any form (`12.0`, `1.2e1`).
    func wholeNumber(_ range: Range<Int>) -> Int64? {
        if let number = integer(range) { return number }
        var (value, zeros, exponent, index) = (Int64(0), 0, 0, range.lowerBound)
        let isNegative = bytes[index] == UInt8(ascii: "-")
        func times(_ value: Int64, tens: Int) -> Int64? {
            var value = value
            for _ in 0..<tens where value != 0 {
                let (product, isTooLarge) = value.multipliedReportingOverflow(by: 10)
                if isTooLarge { return nil }
                value = product
            }
            return value
        }
        var isFraction = false
        while index < range.upperBound, bytes[index] | 0x20 != UInt8(ascii: "e") {
            if bytes[index] == UInt8(ascii: ".") { isFraction = true }
            let digit = bytes[index] &- 0x30
            index += 1
            guard digit < 10 else { continue }
            if isFraction { exponent -= 1 }
            zeros += 1
            guard digit > 0 else { continue }
            // Zeros multiply the value only before another digit; trailing ones join the exponent.
            guard let shifted = times(value, tens: zeros) else { return nil }
            let (sum, isTooLarge) = shifted.addingReportingOverflow(Int64(digit))
            if isTooLarge { return nil }
            (value, zeros) = (sum, 0)
        }
        if index < range.upperBound {
            guard let written = Int(String(decoding: bytes[(index + 1)..<range.upperBound], as: UTF8.self)) else { return nil }
            exponent += written
        }
        if value == 0 { return 0 }
        guard (0...18).contains(exponent + zeros), let whole = times(value, tens: exponent + zeros) else { return nil }
        return isNegative ? -whole : whole
    }

    mutating func word(_ word: StaticString) throws(EventProblem) {
        for offset in 0..<word.utf8CodeUnitCount {
            guard skip(word.utf8Start[offset]) else { throw Self.invalid("a value is expected") }
        }
    }
}
