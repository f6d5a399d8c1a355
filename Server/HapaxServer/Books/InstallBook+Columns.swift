import Foundation
import HapaxModel

/// A book as both databases keep it.
extension InstallBook {
    /// All but `gone` and `refused`, which are the install's own words.
    static let columns = [
        "created", "acknowledged", "word", "held", "begins", "stored", "fates", "repeated", "is_unknown", "missing_since", "folded",
    ]

    /// - Parameter texts: As ``columns``, instants in Unix milliseconds.
    init?(_ texts: ArraySlice<String?>) {
        let texts = Array(texts)
        guard texts.count == Self.columns.count, let created = Self.integer(texts[0]), let acknowledged = Self.integer(texts[1]),
            let word = Self.integer(texts[2]), let begins = Self.integer(texts[4]), let stored = texts[5].flatMap({ SequenceSet($0) }),
            let repeated = Self.integer(texts[7])
        else { return nil }
        (self.created, self.acknowledged, self.word, self.begins, self.stored) = (created, acknowledged, word, begins, stored)
        (self.repeated, isUnknown, missingSince) = (repeated, ["1", "true"].contains(texts[8]), Self.integer(texts[9]))
        let folded = (texts[10] ?? "").split(separator: ",").compactMap { Int64($0) }
        if folded.count == 4 {
            self.folded = Figures(
                given: folded.reduce(0, +), stored: folded[0], duplicates: folded[1], refused: folded[2], discarded: folded[3])
        }
        held = SequenceSet(
            Self.lists(texts[3]).compactMap { list in
                guard list.count == 2, case .integer(let first) = list[0], case .integer(let last) = list[1], first <= last else {
                    return nil
                }
                return first...last
            })
        fates = Self.fates(texts[6])
    }

    /// Reads what ``encodedFates`` has written, or PostgreSQL of it. Each group reads those of its installs, so this is no parser for JSON in general.
    static func fates(_ json: String?) -> [Fate] {
        guard let json, json != "[]" else { return [] }
        let bytes = Array(json.utf8)
        var (fates, numbers, place): ([Fate], [Int64], Int) = ([], [], 1)
        var (reason, token) = ("", bytes[0..<0])
        while place < bytes.count {
            switch bytes[place] {
            case UInt8(ascii: "0")...UInt8(ascii: "9"):
                var number: Int64 = 0
                while place < bytes.count, bytes[place] &- 0x30 < 10, number < Int64.max / 10 {
                    number = number * 10 + Int64(bytes[place] - 0x30)
                    place += 1
                }
                numbers.append(number)
                continue
            case UInt8(ascii: "\""):
                let start = place
                place += 1
                while place < bytes.count, bytes[place] != UInt8(ascii: "\"") { place += bytes[place] == UInt8(ascii: "\\") ? 2 : 1 }
                let text = bytes[start..<min(place + 1, bytes.count)]
                // Most are the same as the one before.
                if text != token {
                    token = text
                    guard case .string(let value) = try? PropertyValue(json: String(decoding: text, as: UTF8.self)) else { return fates }
                    reason = value
                }
            case UInt8(ascii: "t"), UInt8(ascii: "f"):
                guard numbers.count == 4, numbers[0] <= numbers[1] else { return fates }
                fates.append(
                    Fate(
                        sequences: numbers[0]...numbers[1], reason: reason, isOfClient: bytes[place] == UInt8(ascii: "t"),
                        first: numbers[2],
                        last: numbers[3]))
                numbers = []
                place += 3
            default: break
            }
            place += 1
        }
        return fates
    }

    var encodedFolded: String { "\(folded.stored),\(folded.duplicates),\(folded.refused),\(folded.discarded)" }

    var encodedFates: [UInt8] {
        var writer = JSONWriter()
        writer.list(fates) { writer, fate in
            writer.raw("[")
            for (index, number) in [fate.sequences.lowerBound, fate.sequences.upperBound, fate.first, fate.last].enumerated() {
                if index > 0 { writer.raw(",") }
                writer.integer(number)
            }
            writer.raw(",")
            writer.string(fate.reason)
            writer.raw(fate.isOfClient ? ",true]" : ",false]")
        }
        return writer.bytes
    }

    private static func integer(_ text: String?) -> Int64? { text.flatMap { Int64($0) } }

    private static func lists(_ json: String?) -> [[PropertyValue]] {
        guard let json, json != "[]", case .array(let lists) = try? PropertyValue(json: json) else { return [] }
        return lists.compactMap { if case .array(let list) = $0 { list } else { nil } }
    }
}
