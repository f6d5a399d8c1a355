/// Reads CSV (RFC 4180): cells between separators, one record on a line, or on several where a cell in quotation marks holds ends of lines.
enum CSVText {
    private static let quote = UInt8(ascii: "\"")

    /// How far a record has come, line by line.
    struct Scan {
        private enum Place { case beforeCell, bare, quoted, afterQuote }

        private var place = Place.beforeCell
        private(set) var cells = 1
        /// Text follows a cell's closing quotation mark.
        private(set) var isBroken = false

        /// Whether its lines so far end inside a cell in quotation marks: the record goes on in the next line.
        var isOpen: Bool { place == .quoted && !isBroken }

        mutating func read(_ line: [UInt8], separator: UInt8) {
            for (index, byte) in line.enumerated() {
                switch (place, byte) {
                case (.beforeCell, quote): place = .quoted
                case (.quoted, quote): place = .afterQuote
                case (.quoted, _): break
                // Of a doubled one the second opens again what the first has closed.
                case (.afterQuote, quote): place = .quoted
                case (_, separator): (place, cells) = (.beforeCell, cells + 1)
                case (.afterQuote, _): if byte != 0x0D || index < line.count - 1 { isBroken = true }
                default: place = .bare
                }
            }
        }
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

    /// What a line before the columns' names says the separator is, as `sep=;`.
    static func namedSeparator(_ line: [UInt8]) -> UInt8? {
        let start = Array("sep=".utf8)
        guard line.count == start.count + 1, Array(line.prefix(start.count)).map({ $0 | 0x20 }) == start.map({ $0 | 0x20 }) else {
            return nil
        }
        return line.last
    }

    /// Which of the usual separators a file's first line has most of; a comma if it has none.
    static func separator(of header: [UInt8]) -> UInt8 {
        let counts = [",", ";", "\t", "|"].map {
            (separator: UInt8(ascii: $0), count: cells(of: header[...], separator: UInt8(ascii: $0))?.count ?? 0)
        }
        return counts.max { $0.count < $1.count }.map { $0.count > counts[0].count ? $0.separator : counts[0].separator }
            ?? counts[0].separator
    }
}
