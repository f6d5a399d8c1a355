import HapaxModel

/// What the cells of a table's columns were taken for, and what somebody should know of that before the next table.
struct CSVFindings: Sendable {
    private struct Counts: Sendable {
        var numbers = 0
        var truths = 0
        var texts = 0
        /// Of the texts, those that are objects of JSON.
        var objects = 0
        /// Of the texts, those that are a number where decimals follow a comma.
        var commas = 0
    }

    private var columns: [String: Counts] = [:]
    /// Events whose time is still to come.
    var future = 0

    mutating func add(_ value: PropertyValue, of column: String) {
        switch value {
        case .number: columns[column, default: Counts()].numbers += 1
        case .bool: columns[column, default: Counts()].truths += 1
        case .string(let text):
            columns[column, default: Counts()].texts += 1
            if Self.hasDecimalComma(text) { columns[column, default: Counts()].commas += 1 }
            guard text.first == "{", case .object? = try? PropertyValue(json: text) else { return }
            columns[column, default: Counts()].objects += 1
        default: break
        }
    }

    static func += (left: inout CSVFindings, right: CSVFindings) {
        left.future += right.future
        left.columns.merge(right.columns) {
            Counts(
                numbers: $0.numbers + $1.numbers, truths: $0.truths + $1.truths, texts: $0.texts + $1.texts,
                objects: $0.objects + $1.objects, commas: $0.commas + $1.commas)
        }
    }

    private static func hasDecimalComma(_ text: String) -> Bool {
        let parts = text.split(separator: ",", omittingEmptySubsequences: false)
        return parts.count == 2 && !parts[1].isEmpty && parts[1].utf8.allSatisfy { $0 &- 0x30 < 10 }
            && parts[0].first.map { $0 == "-" || $0.isNumber } ?? false && parts[0].dropFirst().allSatisfy { $0 == "." || $0.isNumber }
    }

    /// For people, a line each.
    var warnings: [String] {
        var lines: [String] = []
        for (column, counts) in columns.sorted(by: { $0.key < $1.key }) {
            let kinds = [(counts.numbers, "number"), (counts.truths, "truth value"), (counts.texts, "text")].filter { $0.0 > 0 }
            if counts.commas > 0 {
                let texts = counts.commas == 1 ? "1 text looks like a number" : "\(counts.commas) texts look like numbers"
                lines.append(
                    "column \(column): \(texts) with a decimal comma, stored as text: --decimal-comma takes such cells for numbers")
            } else if kinds.count > 1 {
                let texts = kinds.map { "\($0.0) \($0.1)\($0.0 == 1 ? "" : "s")" }.joined(separator: ", ")
                lines.append("column \(column): \(texts); --text \(column) keeps them alike")
            } else if counts.texts > 0, counts.objects == counts.texts {
                lines.append(
                    "column \(column) holds nothing but objects of JSON, which are stored as texts: --json-column \(column) takes them as they are"
                )
            }
        }
        if future > 0 {
            lines.append("\(future) \(future == 1 ? "row lies" : "rows lie") in the future: are the times right?")
        }
        return lines
    }
}
