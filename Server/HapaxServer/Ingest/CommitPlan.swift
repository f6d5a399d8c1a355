import HapaxModel

/// What remains to be committed of one group, and what the committed parts came to.
///
/// A part that collides with another session is tried again. A part whose data the database refuses is halved until only the culprits are
/// left. A value without I/O.
struct CommitPlan {
    /// The last one is the next.
    private var parts: [StoreGroup]
    private var collisions = 0
    /// What the store had before, with its fingerprint.
    private(set) var found: [EventKey: Int64] = [:]
    /// The records that the store cannot hold, and why.
    private(set) var refused: [EventKey: EventProblem] = [:]
    /// Whether it was committed in parts, which keep no books.
    private(set) var isSplit = false

    init(_ group: StoreGroup) { parts = [group] }

    /// The part to commit now; nil when all is done.
    var next: StoreGroup? { parts.last }

    /// The next part has been committed.
    mutating func committed(_ found: [EventKey: Int64]) {
        parts.removeLast()
        self.found.merge(found) { $1 }
    }

    /// The next part could not be committed.
    ///
    /// - Throws: The error, if neither another try nor a smaller part would help: then nothing is known about the group.
    mutating func failed(_ error: StoreError) throws(StoreError) {
        switch error {
        case .collided where collisions < ServerLimits.collisions: collisions += 1
        case .dataRefused(let state):
            guard let part = parts.popLast(), let culprit = part.records.first else {
                // Without a record to blame the refusal is the store's own trouble, never an event's.
                throw .unavailable("a transaction without events was refused")
            }
            if part.records.count == 1, part.lookups.isEmpty, part.reports.isEmpty {
                refused[culprit.key] = EventProblem(.refusedByStore, detail: "SQLSTATE \(state)")
            } else {
                isSplit = true
                let middle = part.records.count / 2
                parts.append(StoreGroup(records: Array(part.records[middle...]), in: part.batches, horizon: part.horizon))
                parts.append(
                    StoreGroup(
                        records: Array(part.records[..<middle]), in: part.batches, lookups: part.lookups, reports: part.reports,
                        horizon: part.horizon))
            }
        default: throw error
        }
    }
}
