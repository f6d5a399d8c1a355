import HapaxModel

/// What a queue remembers of the batch that is being sent, until its outcome comes.
struct BatchUnderWay: Sendable {
    private var rows: ClosedRange<Int64>?
    /// Its rows that were discarded meanwhile: their outcome finds nothing to settle.
    private(set) var gone: Set<Int64> = []
    /// What it says of the queue's ``QueueBooks/drops``.
    private(set) var envelope = EventBatch.Envelope()

    mutating func sent(_ rows: ClosedRange<Int64>?, in envelope: EventBatch.Envelope) {
        self.rows = rows
        self.envelope = envelope
        gone = []
    }

    mutating func discarded(_ row: Int64) {
        if rows?.contains(row) == true { gone.insert(row) }
    }
}
