/// When an event happened, as SDKs write it. Nothing is guessed and no clock is corrected.
enum SenderTime {
    /// - Parameter text: ISO 8601: a day, `T` or a blank, a time to the minute or finer, and `Z`, an offset, or nothing for UTC. Or 13 digits: Unix milliseconds.
    /// - Returns: Unix milliseconds, rounded down; nil if it is none, or outside the years 1970 to 9999.
    static func milliseconds(_ text: UnsafeBufferPointer<UInt8>) -> Int64? {
        var reader = Reader(text: text)
        if text.count == 13, let instant = reader.number(13) { return instant }
        reader.position = 0
        guard let year = reader.number(4), reader.skip("-"), let month = reader.number(2), reader.skip("-"), let day = reader.number(2),
            reader.skip("T") || reader.skip("t") || reader.skip(" "), let hour = reader.number(2), hour < 24, reader.skip(":"),
            let minute = reader.number(2), minute < 60, let date = CalendarDay(year: Int(year), month: Int(month), day: Int(day))
        else { return nil }
        var milliseconds: Int64 = 0
        if reader.skip(":") {
            guard let second = reader.number(2), second < 60 else { return nil }
            milliseconds = second * 1_000
            if reader.skip(".") || reader.skip(",") {
                guard let fraction = reader.fraction() else { return nil }
                milliseconds += fraction
            }
        }
        guard let offset = reader.offset(), reader.isAtEnd else { return nil }
        let instant = Int64(date.daysSince1970) * 86_400_000 + (hour * 60 + minute - offset) * 60_000 + milliseconds
        return (0...EventLimits.maximumTime).contains(instant) ? instant : nil
    }

    /// - Parameter number: A decimal number without an exponent, in seconds if it is below 10¹¹, else in milliseconds.
    /// - Returns: Unix milliseconds, rounded down; nil if it is none.
    static func milliseconds(decimal number: UnsafeBufferPointer<UInt8>) -> Int64? {
        var reader = Reader(text: number)
        let digits = number.prefix { $0 &- 0x30 < 10 }.count
        guard digits <= 15, let whole = reader.number(digits) else { return nil }
        let fraction = reader.skip(".") ? reader.fraction() : 0
        guard let fraction, reader.isAtEnd else { return nil }
        let instant = whole < 100_000_000_000 ? whole * 1_000 + fraction : whole
        return (0...EventLimits.maximumTime).contains(instant) ? instant : nil
    }

    private struct Reader {
        let text: UnsafeBufferPointer<UInt8>
        var position = 0

        var isAtEnd: Bool { position == text.count }

        mutating func skip(_ character: Unicode.Scalar) -> Bool {
            guard position < text.count, text[position] == UInt8(ascii: character) else { return false }
            position += 1
            return true
        }

        mutating func number(_ digits: Int) -> Int64? {
            guard position + digits <= text.count else { return nil }
            var number: Int64 = 0
            for _ in 0..<digits {
                let digit = text[position] &- 0x30
                guard digit < 10 else { return nil }
                number = number * 10 + Int64(digit)
                position += 1
            }
            return number
        }

        /// Whole milliseconds of a fraction of a second.
        mutating func fraction() -> Int64? {
            var (milliseconds, digits) = (Int64(0), 0)
            while position < text.count, text[position] &- 0x30 < 10 {
                if digits < 3 { milliseconds = milliseconds * 10 + Int64(text[position] - 0x30) }
                digits += 1
                position += 1
            }
            guard digits > 0 else { return nil }
            for _ in digits..<max(digits, 3) { milliseconds *= 10 }
            return milliseconds
        }

        /// In minutes.
        mutating func offset() -> Int64? {
            if isAtEnd || skip("Z") || skip("z") { return 0 }
            let isWest = skip("-")
            guard isWest || skip("+"), let hours = number(2), hours < 24 else { return nil }
            _ = skip(":")
            let minutes = isAtEnd ? 0 : number(2)
            guard let minutes, minutes < 60 else { return nil }
            return (isWest ? -1 : 1) * (hours * 60 + minutes)
        }
    }
}
