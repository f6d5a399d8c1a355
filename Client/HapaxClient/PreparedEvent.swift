import HapaxModel

/// An event as the queue takes it.
struct PreparedEvent: Sendable {
    var id: EventID
    var sequence: Int64
    var time: Int64
    var bytes: [UInt8]
    /// Why it can only be a dead letter.
    var problem: EventProblem?
    /// Room that was promised to it at intake.
    var reserved = QueueUsage()
    /// Taken where the bytes were made, which is not where they are committed: storing waits for a disk, encoding for nobody.
    let checkSum: UInt32

    init(
        id: EventID, sequence: Int64, time: Int64, bytes: [UInt8], problem: EventProblem? = nil, reserved: QueueUsage = QueueUsage()
    ) {
        (self.id, self.sequence, self.time, self.bytes) = (id, sequence, time, bytes)
        (self.problem, self.reserved) = (problem, reserved)
        checkSum = CheckSum.crc32(id, bytes)
    }
}
