import HapaxModel

/// An event as the store takes it: encoded once, before its commit, which gives it its sequence.
struct PreparedEvent: Sendable {
    var id: EventID
    var time: Int64
    /// As it will travel, without its sequence.
    let bytes: [UInt8]
    /// Why it can only be a dead letter.
    var problem: EventProblem?
    /// Taken while the user's consent was pending: behind which decision (``KeptConsent/number``).
    var pending: Int64?
    /// Room that was promised to it at intake.
    var reserved = QueueUsage()
    /// Taken where the bytes were made, which is not where they are committed: storing waits for a disk, encoding for nobody.
    let payloadSum: UInt32

    init(id: EventID, time: Int64, bytes: [UInt8], problem: EventProblem? = nil, pending: Int64? = nil, reserved: QueueUsage = QueueUsage())
    {
        (self.id, self.time, self.bytes, self.pending, self.reserved) = (id, time, bytes, pending, reserved)
        payloadSum = RowCheckSum.ofPayload(bytes)
        let hasRoom = bytes.count + OutgoingEvent.addedBytes <= EventLimits.maximumEventBytes
        self.problem = problem ?? (hasRoom ? nil : Self.tooLarge(bytes.count))
    }

    /// What the sequence adds counts as well: the server looks at what arrives.
    private static func tooLarge(_ count: Int) -> EventProblem {
        EventProblem(
            .eventTooLarge,
            detail: "the event is \(count) bytes, limit \(EventLimits.maximumEventBytes - OutgoingEvent.addedBytes)")
    }

    private static let namedDifferences = 5
    private static let nameCharacters = 60

    static func conflict(_ differences: [String]) -> (reason: String, detail: String) {
        let more = differences.count - namedDifferences
        let names = differences.prefix(namedDifferences).map { String($0.prefix(nameCharacters)) } + (more > 0 ? ["\(more) more"] : [])
        return (Receipt.Outcome.conflict.rawValue, "another event waits under this id: it differs in " + names.joined(separator: ", "))
    }
}
