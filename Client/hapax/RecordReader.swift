/// Reads what an import takes one by one: lines, or the records of a CSV file, which may have several.
struct RecordReader {
    private var lines: LineReader
    private let csv: CSVMapping?
    /// Lines that were read and given to nobody yet.
    private var waiting: ArraySlice<LineReader.Line> = []
    /// Those of a record that goes on.
    private var begun: [LineReader.Line] = []
    private var begunBytes = 0
    private var scan = CSVText.Scan()

    var isWaiting: Bool { lines.isWaiting }

    /// - Parameter csv: Of a CSV file; nil for a file of lines.
    init(_ lines: LineReader, csv: CSVMapping?) {
        (self.lines, self.csv) = (lines, csv)
    }

    /// As ``LineReader/next(waits:)``. If a cell in quotation marks has no end, or one that makes no row of its lines, the line that begins it is
    /// given alone, and the next record begins at the line after it: a stray quotation mark buries no rows.
    mutating func next(waits: Bool = true) throws(LineReader.Failure) -> LineReader.Line? {
        guard let csv else { return try lines.next(waits: waits) }
        while true {
            var found = waiting.popFirst()
            if found == nil { found = try lines.next(waits: waits) }
            guard let line = found else {
                guard !lines.isWaiting, !lines.wasStopped, !begun.isEmpty else { return nil }
                return unclosed()
            }
            scan.read(line.bytes, separator: csv.separator)
            begun.append(line)
            begunBytes += line.bytes.count + 1
            if scan.isOpen, scan.cells <= csv.columns.count, !line.isCut, begunBytes <= LineReader.maximumLineBytes { continue }
            if begun.count == 1, !scan.isOpen { return closed() }
            return isRow(csv) ? closed() : unclosed()
        }
    }

    /// Whether the lines of ``begun`` are one row: no later one of them is a row by itself, which two stray quotation marks would hide in a cell.
    private func isRow(_ csv: CSVMapping) -> Bool {
        guard !scan.isOpen, !scan.isBroken, scan.cells == csv.columns.count else { return false }
        return !begun.dropFirst().contains { csv.isRow($0.bytes) }
    }

    private mutating func closed() -> LineReader.Line {
        defer { (begun, begunBytes, scan) = ([], 0, CSVText.Scan()) }
        var record = begun[0]
        record.bytes = Array(begun.map(\.bytes).joined(separator: [0x0A]))
        record.count = begun.count
        let last = begun[begun.count - 1]
        (record.end, record.isTerminated, record.isCut) = (last.end, last.isTerminated, last.isCut)
        return record
    }

    private mutating func unclosed() -> LineReader.Line {
        defer { (begun, begunBytes, scan) = ([], 0, CSVText.Scan()) }
        waiting = begun[1...] + waiting
        var line = begun[0]
        line.isOpen = true
        return line
    }
}
