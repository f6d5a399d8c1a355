import HapaxModel

/// An event as the queue takes it.
struct PreparedEvent: Sendable {
    var id: EventID
    /// nil if its id waited already when it was taken: then it is stored only if that event is gone or is another one.
    var sequence: Int64?
    var time: Int64
    var bytes: [UInt8]
    /// Why it can only be a dead letter.
    var problem: EventProblem?
    /// Whether it became a dead letter because another event waits under its id.
    var isConflict = false
    /// Room that was promised to it at intake.
    var reserved = QueueUsage()
    /// Taken where the bytes were made, which is not where they are committed: storing waits for a disk, encoding for nobody.
    let checkSum: UInt32

    init(
        id: EventID, sequence: Int64?, time: Int64, bytes: [UInt8], problem: EventProblem? = nil, reserved: QueueUsage = QueueUsage()
    ) {
        (self.id, self.sequence, self.time, self.bytes) = (id, sequence, time, bytes)
        (self.problem, self.reserved) = (problem, reserved)
        checkSum = CheckSum.crc32(id, bytes)
    }

    /// Whose it is, see ``WaitingRow``: without a sequence of this queue it is nobody's.
    var install: [UInt8]? { sequence == nil ? [] : nil }

    /// What it says among the dead letters; nil if it is none.
    var letter: (reason: String, detail: String)? {
        if let problem { return (problem.reason.rawValue, problem.detail) }
        return isConflict ? Self.conflict : nil
    }

    static let conflict = (reason: Receipt.Outcome.conflict.rawValue, detail: "another content waits under this id")
}
