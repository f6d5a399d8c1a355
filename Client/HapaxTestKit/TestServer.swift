import HapaxClient
import HapaxModel

/// The server of a test: it is in this process, takes what it is sent, and answers as it is told.
public final class TestServer: Sendable {
    package let transport = ScriptedTransport()
    private let accepted = Locked<Set<EventID>>([])

    init() { accepts() }

    /// Events that arrived, those that were sent again included, in order.
    public var received: [TrackedEvent] { transport.batches.flatMap(\.scanned.events).compactMap { TrackedEvent([UInt8]($0.wire)) } }

    /// Stores each event once, and answers the next times that it has it: as at first.
    public func accepts() { transport.script { [self] in .success(receipt($0)) } }

    /// Answers each request with a status, as 503.
    public func fails(_ status: Int) { transport.script { _ in .success(TransportAnswer(status: status)) } }

    /// Cannot be reached.
    public func isAway() { transport.script { _ in .failure(.cannotConnect) } }

    /// Stores what it is sent, and loses its next answers; then it accepts.
    public func loses(answers: Int) {
        let left = Locked(answers)
        transport.script { [self] batch in
            let receipt = receipt(batch)
            let isLost = left.withLock { left in
                left -= 1
                return left >= 0
            }
            return isLost ? .failure(.cut) : .success(receipt)
        }
    }

    /// Refuses every event for good: each becomes a dead letter with this reason.
    public func rejects(_ reason: String = "invalid_properties") {
        transport.script { batch in
            let results = batch.scanned.events.enumerated().map { index, event in
                Receipt.Result(index: index, eventID: event.id, outcome: .rejected, reason: reason)
            }
            let receipt = Receipt(batchID: batch.scanned.envelope.batchID, received: results.count, stored: 0, results: results)
            return .success(TransportAnswer(status: 200, headers: ["content-type": "application/json"], body: receipt.encoded()))
        }
    }

    private func receipt(_ batch: SentBatch) -> TransportAnswer {
        batch.receipt { event in
            guard let id = event.id else { return .rejected }
            return accepted.withLock { $0.insert(id).inserted } ? .stored : .duplicate
        }
    }
}
