import HapaxModel

/// How a table writes its times, as `dd.MM.yyyy HH:mm`: letters for digits, all else as it stands.
struct DateFormat: Hashable {
    private enum Part: Hashable {
        /// A letter, and how many digits there are at least and at most.
        case number(Character, ClosedRange<Int>)
        case half
        case text(Character)
    }

    let pattern: String
    private let parts: [Part]

    /// - Returns: nil unless it has a year, a month and a day, each once, and no other letters than those of ``help``.
    init?(_ pattern: String) {
        var (parts, seen, rest) = ([Part](), Set<Character>(), pattern[...])
        while let letter = rest.first {
            let run = rest.prefix { $0 == letter }
            rest = rest.dropFirst(letter.isLetter ? run.count : 1)
            guard letter.isLetter else {
                parts.append(.text(letter))
                continue
            }
            guard seen.insert(letter).inserted else { return nil }
            switch (letter, run.count) {
            case ("y", 4): parts.append(.number(letter, 4...4))
            case ("M", 1...2), ("d", 1...2), ("H", 1...2), ("h", 1...2): parts.append(.number(letter, run.count...2))
            case ("y", 2), ("m", 2), ("s", 2): parts.append(.number(letter, 2...2))
            case ("a", 1): parts.append(.half)
            // Of ISO 8601, between day and time.
            case ("T", 1): parts.append(.text(letter))
            default: return nil
            }
        }
        guard seen.isSuperset(of: "yMd"), seen.isDisjoint(with: "Hh") || seen.contains("m") else { return nil }
        guard seen.contains("h") == seen.contains("a"), !(seen.contains("h") && seen.contains("H")) else { return nil }
        (self.pattern, self.parts) = (pattern, parts)
    }

    static let help = "yyyy or yy, MM or M, dd or d, HH or H with mm and ss, or h with mm and a"

    /// What ``ISOTime`` reads; nil if the text is not in this form.
    func iso(_ text: String) -> String? {
        var (numbers, rest, isAfternoon) = ([Character: Int](), text[...], false)
        for part in parts {
            switch part {
            case .text(let letter):
                guard rest.first == letter else { return nil }
                rest.removeFirst()
            case .half:
                guard ["AM", "PM"].contains(rest.prefix(2).uppercased()) else { return nil }
                isAfternoon = rest.first?.uppercased() == "P"
                rest = rest.dropFirst(2)
            case .number(let letter, let count):
                let digits = rest.prefix(count.upperBound).prefix { $0.isASCII && $0.isNumber }
                guard digits.count >= count.lowerBound, let number = Int(digits) else { return nil }
                numbers[letter] = number
                rest = rest.dropFirst(digits.count)
            }
        }
        guard rest.isEmpty, var year = numbers["y"] else { return nil }
        if year < 100 { year += 2_000 }
        func two(_ letter: Character) -> String { String("\(100 + (numbers[letter] ?? 0))".dropFirst()) }
        let day = "\(year)-\(two("M"))-\(two("d"))"
        if let hour = numbers["h"] {
            guard (1...12).contains(hour) else { return nil }
            numbers["H"] = hour % 12 + (isAfternoon ? 12 : 0)
        }
        return numbers["H"] == nil ? day : day + "T\(two("H")):\(two("m")):\(two("s"))"
    }
}
