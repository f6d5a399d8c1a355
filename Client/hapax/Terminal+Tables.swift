extension Terminal {
    /// - Parameter texts: So many columns are aligned at their left, the others, which are numbers, at their right.
    static func table(_ rows: [[String]], texts: Int) -> [String] {
        let rows = rows.map { $0.map(printable) }
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        return rows.map { row in
            zip(row, widths).enumerated().map { column, cell in
                let blank = String(repeating: " ", count: cell.1 - cell.0.count)
                return column < texts ? cell.0 + blank : blank + cell.0
            }.joined(separator: "  ")
        }
    }

    static func span(_ milliseconds: Int64?) -> String {
        guard let milliseconds else { return "-" }
        let seconds = (milliseconds + 500) / 1_000
        if milliseconds < 1_000 { return "\(milliseconds) ms" }
        if seconds < 60 { return "\(seconds) s" }
        return seconds < 3_600 ? "\(seconds / 60) m \(seconds % 60) s" : "\(seconds / 3_600) h \(seconds / 60 % 60) m"
    }

    static func percent(_ fraction: Double?) -> String {
        fraction.map { "\(Int(($0 * 1_000).rounded()) / 10).\(Int(($0 * 1_000).rounded()) % 10) %" } ?? ""
    }
}
