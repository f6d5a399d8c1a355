/// The value of a `Retry-After` field (RFC 9110 §10.2.3): seconds, or a date in the preferred form of §5.6.7.
enum RetryAfter {
    /// - Parameter now: The wall clock in Unix milliseconds, against which a date is read.
    /// - Returns: nil for what cannot be read; zero for a date in the past.
    static func duration(_ text: String, now: Int64) -> Duration? {
        let text = trimmed(text)
        if !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            // More digits than any cap would allow still mean "long".
            return .seconds(text.utf8.count > 9 ? 999_999_999 : Int64(text) ?? 0)
        }
        guard let date = unixSeconds(text) else { return nil }
        return .milliseconds(max(0, date * 1000 - now))
    }

    /// Reads `Sun, 06 Nov 1994 08:49:37 GMT`.
    private static func unixSeconds(_ text: String) -> Int64? {
        let parts = text.split(separator: " ")
        guard parts.count == 6, parts[0].hasSuffix(","), parts[5] == "GMT",
            let day = number(parts[1], 1...31), let month = months.firstIndex(of: String(parts[2])),
            let year = number(parts[3], 1970...9999)
        else { return nil }
        let clock = parts[4].split(separator: ":", omittingEmptySubsequences: false)
        guard clock.count == 3, let hour = number(clock[0], 0...23), let minute = number(clock[1], 0...59),
            let second = number(clock[2], 0...60)
        else { return nil }
        return days(year: year, month: Int64(month) + 1, day: day) * 86_400 + hour * 3_600 + minute * 60 + second
    }

    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    private static func number(_ text: Substring, _ range: ClosedRange<Int64>) -> Int64? {
        guard text.utf8.count <= 4, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let value = Int64(text),
            range.contains(value)
        else { return nil }
        return value
    }

    /// Days since 1970-01-01 in the Gregorian calendar, years counted from March so that the leap day comes last.
    private static func days(year: Int64, month: Int64, day: Int64) -> Int64 {
        let shifted = month > 2 ? year : year - 1
        let era = shifted / 400
        let yearOfEra = shifted - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    private static func trimmed(_ text: String) -> String {
        let isBlank: (Character) -> Bool = { $0 == " " || $0 == "\t" }
        return String(text.drop(while: isBlank).reversed().drop(while: isBlank).reversed())
    }
}
