/// Why an attempt to deliver did not settle its batch. Nothing was removed.
///
/// Holds neither payload nor key; its description may be logged.
public enum DeliveryFailure: Error, Hashable, Sendable {
    /// No complete answer: the server may have stored the batch all the same.
    case transport(TransportFailure)
    /// A status other than 2xx; `code` is the problem's name if the answer is one of our server's refusals.
    case status(Int, code: String?)
    /// A 2xx that is not the receipt of the batch that was sent: a captive portal, a cut body, counts that do not add up.
    case notAReceipt(status: Int)
    /// The receipt asks to send some events again.
    case askedToRetry(events: Int)
    /// The queue could not be read, or what was settled could not be recorded.
    case queue(StorageFailure)
    /// The app is in the background, and the system grants no time for a request, or too little (R31, R33).
    case noBackgroundTime
    /// The user has not yet agreed to what is sent (``Consent/pending``).
    case consentPending
    /// The queue is not open (``EventClient/startFailure``), or the client has no configuration.
    case notOpen
    /// The client is shut down, or was while this was under way.
    case shutDown
    /// The task that asked for it was cancelled. What was under way goes on; the next report has its outcome.
    case cancelled
    /// The limit of ``EventClient/flush(within:)`` has passed; as for ``cancelled``.
    case outOfTime
}

extension DeliveryFailure {
    /// With what the server said of it.
    package func described(_ detail: String?) -> String {
        if case .status = self, let detail { "\(self): \(detail)" } else { "\(self)" }
    }
}

extension DeliveryFailure: CustomStringConvertible {
    public var description: String {
        switch self {
        case .transport(let failure): "no answer: \(failure)"
        case .status(let status, let code?): "the server answered \(status) (\(code))"
        case .status(let status, nil): "status \(status), not an answer of an ingest server"
        case .notAReceipt(let status): "status \(status) without the batch's receipt"
        case .askedToRetry(let events): "the server asks to send \(events) events again"
        case .queue(let failure): "the queue: \(failure)"
        case .noBackgroundTime: "the app is in the background and has no time for a request"
        case .consentPending: "the user's consent is pending"
        case .notOpen: "the queue is not open"
        case .shutDown: "the client is shut down"
        case .cancelled: "the task that asked for it was cancelled"
        case .outOfTime: "the time for it is over"
        }
    }
}
