/// RFC 4180.
package enum CSV {
    package static func text(_ rows: [[String]]) -> [UInt8] {
        var bytes: [UInt8] = []
        for row in rows {
            bytes += row.map(cell).joined(separator: ",").utf8
            bytes += [0x0D, 0x0A]
        }
        return bytes
    }

    /// A cell with text that a client sent, made safe: no control characters for terminals, no line breaks, no formulas for spreadsheets. A number
    /// stays one.
    package static func cell(_ text: String) -> String {
        let isFormula =
            text.unicodeScalars.first.map { ["=", "+", "-", "@"].contains($0) } == true
            && text.wholeMatch(of: /-[0-9.]+(e-?[0-9]+)?/) == nil
        let scalars = text.printable.unicodeScalars.flatMap { $0 == "\"" ? [$0, $0] : [$0] }
        let cell = (isFormula ? "'" : "") + String(String.UnicodeScalarView(scalars))
        return scalars.contains { [",", "\""].contains($0) } ? "\"\(cell)\"" : cell
    }
}
