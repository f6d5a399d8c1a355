/// Reads what an import takes one by one: lines, or the records of a CSV file, which may have several.
struct RecordReader {
    private var lines: LineReader
    private let separator: UInt8?
    private var begun: LineReader.Line?

    var isWaiting: Bool { lines.isWaiting }

    /// - Parameter separator: Of the cells of a CSV file; nil for a file of lines.
    init(_ lines: LineReader, separator: UInt8?) {
        (self.lines, self.separator) = (lines, separator)
    }

    /// As ``LineReader/next(waits:)``. A record whose last cell has no end is given at the end of the file, as not terminated.
    mutating func next(waits: Bool = true) throws(LineReader.Failure) -> LineReader.Line? {
        guard let separator else { return try lines.next(waits: waits) }
        while true {
            guard let line = try lines.next(waits: waits) else {
                guard !lines.isWaiting, !lines.wasStopped, var record = begun else { return nil }
                begun = nil
                record.isTerminated = false
                return record
            }
            let isOpen = CSVText.isOpen(after: line.bytes, from: begun != nil, separator: separator)
            let record = begun?.joined(with: line) ?? line
            guard isOpen, line.isTerminated, !record.isCut else {
                begun = nil
                return record
            }
            begun = record
        }
    }
}

extension LineReader.Line {
    fileprivate func joined(with next: Self) -> Self {
        var record = self
        record.bytes += [0x0A] + next.bytes
        record.isCut = isCut || next.isCut || record.bytes.count > LineReader.maximumLineBytes
        (record.end, record.count, record.isTerminated) = (next.end, count + next.count, next.isTerminated)
        return record
    }
}
