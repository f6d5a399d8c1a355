/// Reads CSV (RFC 4180): cells between separators, one record on a line, or on several where a cell in quotation marks holds ends of lines.
enum CSVText {
    private static let quote = UInt8(ascii: "\"")

    /// Whether a line ends inside a cell in quotation marks, so that its record goes on in the next line.
    ///
    /// - Parameter isOpen: Whether the line before did.
    static func isOpen(after line: [UInt8], from isOpen: Bool, separator: UInt8) -> Bool {
        var (isQuoted, beginsCell) = (isOpen, !isOpen)
        for byte in line {
            if isQuoted {
                // Of a doubled one the second opens again what the first has closed.
                if byte == quote { (isQuoted, beginsCell) = (false, true) }
            } else if byte == quote, beginsCell {
                isQuoted = true
            } else {
                beginsCell = byte == separator
            }
        }
        return isQuoted
    }

    /// - Returns: nil if text follows a cell's closing quotation mark, or one is missing.
    static func cells(of record: ArraySlice<UInt8>, separator: UInt8) -> [[UInt8]]? {
        var cells: [[UInt8]] = []
        var rest = record
        while true {
            var cell: [UInt8] = []
            if rest.first == quote {
                rest.removeFirst()
                while true {
                    guard let end = rest.firstIndex(of: quote) else { return nil }
                    cell += rest[..<end]
                    rest = rest[(end + 1)...]
                    guard rest.first == quote else { break }
                    cell.append(quote)
                    rest.removeFirst()
                }
                guard rest.isEmpty || rest.first == separator else { return nil }
            } else {
                cell += rest.prefix { $0 != separator }
                rest = rest.dropFirst(cell.count)
            }
            cells.append(cell)
            guard !rest.isEmpty else { return cells }
            rest.removeFirst()
        }
    }

    /// Which of the usual separators a file's first line has most of; a comma if it has none.
    static func separator(of header: [UInt8]) -> UInt8 {
        let counts = [",", ";", "\t"].map {
            (separator: UInt8(ascii: $0), count: cells(of: header[...], separator: UInt8(ascii: $0))?.count ?? 0)
        }
        return counts.max { $0.count < $1.count }.map { $0.count > counts[0].count ? $0.separator : counts[0].separator }
            ?? counts[0].separator
    }
}
