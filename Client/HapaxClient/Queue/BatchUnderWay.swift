import HapaxModel

/// What a queue remembers of the batch that is being sent, and of those before it that were read from the head on, until their outcome comes.
struct BatchUnderWay: Sendable {
    private var rows: ClosedRange<Int64>?
    /// Their rows that were discarded meanwhile: their outcome finds nothing to settle.
    private(set) var gone: Set<Int64> = []
    /// What it says of the queue's ``QueueBooks/drops``.
    private(set) var envelope = EventBatch.Envelope()

    mutating func sent(_ batch: ClosedRange<Int64>?, skipping: Int, in envelope: EventBatch.Envelope) {
        self.envelope = envelope
        if skipping == 0 { (rows, gone) = (nil, []) }
        guard let batch else { return }
        rows = rows.map { min($0.lowerBound, batch.lowerBound)...max($0.upperBound, batch.upperBound) } ?? batch
    }

    mutating func discarded(_ row: Int64) {
        if rows?.contains(row) == true { gone.insert(row) }
    }

    /// How many of the oldest are still to be skipped: what is discarded are the oldest.
    func left(of skipping: Int) -> Int { max(skipping - gone.count, 0) }
}
