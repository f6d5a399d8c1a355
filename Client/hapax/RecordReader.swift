/// Reads what an import takes one by one: lines, or the records of a CSV file, which may have several.
struct RecordReader {
    private var lines: LineReader
    private let separator: UInt8?
    /// Lines that were read and given to nobody yet.
    private var waiting: ArraySlice<LineReader.Line> = []
    /// Those of a record that goes on.
    private var begun: [LineReader.Line] = []
    private var begunBytes = 0

    var isWaiting: Bool { lines.isWaiting }

    /// - Parameter separator: Of the cells of a CSV file; nil for a file of lines.
    init(_ lines: LineReader, separator: UInt8?) {
        (self.lines, self.separator) = (lines, separator)
    }

    /// As ``LineReader/next(waits:)``. If a cell has no end in the file, or in as many bytes as a line may have, the line that begins it is given
    /// alone, and the next record begins behind it: somebody's quotation mark buries no rows.
    mutating func next(waits: Bool = true) throws(LineReader.Failure) -> LineReader.Line? {
        guard let separator else { return try lines.next(waits: waits) }
        while true {
            var found = waiting.popFirst()
            if found == nil { found = try lines.next(waits: waits) }
            guard let line = found else {
                guard !lines.isWaiting, !lines.wasStopped, !begun.isEmpty else { return nil }
                return unclosed()
            }
            let isOpen = CSVText.isOpen(after: line.bytes, from: !begun.isEmpty, separator: separator)
            guard isOpen || !begun.isEmpty else { return line }
            begun.append(line)
            begunBytes += line.bytes.count + 1
            guard isOpen else { return closed() }
            if line.isCut || begunBytes > LineReader.maximumLineBytes { return unclosed() }
        }
    }

    private mutating func closed() -> LineReader.Line {
        defer { (begun, begunBytes) = ([], 0) }
        var record = begun[0]
        record.bytes = Array(begun.map(\.bytes).joined(separator: [0x0A]))
        record.count = begun.count
        let last = begun[begun.count - 1]
        (record.end, record.isTerminated, record.isCut) = (last.end, last.isTerminated, last.isCut)
        return record
    }

    private mutating func unclosed() -> LineReader.Line {
        defer { (begun, begunBytes) = ([], 0) }
        waiting = begun[1...] + waiting
        var line = begun[0]
        line.isOpen = true
        return line
    }
}
