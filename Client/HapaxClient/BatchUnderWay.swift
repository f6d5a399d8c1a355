/// What a queue remembers of the batch that is being sent, until its outcome comes.
struct BatchUnderWay: Sendable {
    private var rows: ClosedRange<Int64>?
    /// Its rows that were discarded meanwhile: their outcome finds nothing to settle.
    private(set) var gone: Set<Int64> = []
    /// What its envelope says of the queue's ``QueueBooks/drops``.
    private(set) var reported: [String: Int64] = [:]

    mutating func sent(_ rows: ClosedRange<Int64>?, reporting reported: [String: Int64]) {
        self.rows = rows
        self.reported = reported
        gone = []
    }

    mutating func discarded(_ row: Int64) {
        if rows?.contains(row) == true { gone.insert(row) }
    }
}
