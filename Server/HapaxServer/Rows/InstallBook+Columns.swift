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
            let reportVersion = Self.integer(texts[2]), let begins = Self.integer(texts[4]),
            let stored = texts[5].flatMap({ SequenceSet($0) }),
            let repeated = Self.integer(texts[7]), let isUnknown = Self.truth(texts[8])
        else { return nil }
        (self.created, self.acknowledged, self.reportVersion, self.begins, self.stored) = (
            created, acknowledged, reportVersion, begins, stored
        )
        (self.repeated, self.isUnknown, missingSince) = (repeated, isUnknown, Self.integer(texts[9]))
        // Empty before anything was folded.
        if let text = texts[10], !text.isEmpty {
            let folded = text.split(separator: ",").compactMap { Int64($0) }
            guard folded.count == 4 else { return nil }
            self.folded = Figures(
                given: folded.reduce(0, +), stored: folded[0], duplicates: folded[1], refused: folded[2], discarded: folded[3])
        }
        guard let held = Self.ranges(texts[3]), let fates = Self.fates(texts[6]) else { return nil }
        (self.held, self.fates) = (SequenceSet(held).coarsened(to: Self.maximumRanges), fates)
    }

    /// Reads what ``encodedFates`` has written, or PostgreSQL of it. Each group reads those of its installs, so this is no parser for JSON in general.
    ///
    /// - Returns: nil if somebody has changed it by hand.
    static func fates(_ json: String?) -> [Fate]? {
        guard let json else { return nil }
        guard json != "[]" else { return [] }
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
                    guard case .string(let value) = try? PropertyValue(json: String(decoding: text, as: UTF8.self)) else { return nil }
                    reason = InstallReport.shortened(value)
                }
            case UInt8(ascii: "t"), UInt8(ascii: "f"):
                guard numbers.count == 4, numbers[0] <= numbers[1] else { return nil }
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

    /// As PostgreSQL sends a truth value (`t`) or writes one (`true`), and as SQLite keeps it.
    private static func truth(_ text: String?) -> Bool? {
        switch text {
        case "1", "t", "true": true
        case "0", "f", "false": false
        default: nil
        }
    }

    /// - Returns: nil for a text that is no list of ranges.
    private static func ranges(_ json: String?) -> [ClosedRange<Int64>]? {
        guard let json else { return nil }
        if json == "[]" { return [] }
        guard case .array(let lists) = try? PropertyValue(json: json) else { return nil }
        let ranges = lists.compactMap { list -> ClosedRange<Int64>? in
            guard case .array(let ends) = list, ends.count == 2, case .integer(let first) = ends[0], case .integer(let last) = ends[1],
                first <= last
            else { return nil }
            return first...last
        }
        return ranges.count == lists.count ? ranges : nil
    }
}
