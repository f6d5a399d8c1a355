import HapaxModel

/// A caller that waits for a commit, and for the sequence that it gave. It is resumed once; later results are ignored.
final class CommitWaiter: Sendable {
    private enum State {
        case nobodyYet
        case waiting(CheckedContinuation<Result<Int64?, TrackError>, Never>)
        case resumed(Result<Int64?, TrackError>)
    }

    private let state = Locked(State.nobodyYet)
    private let observer: (@Sendable (Result<Int64?, TrackError>) -> Void)?

    /// - Parameter observer: Called once, by whoever resumes it; for callers that are no task.
    init(_ observer: (@Sendable (Result<Int64?, TrackError>) -> Void)? = nil) {
        self.observer = observer
    }

    func resume(_ result: Result<Int64?, TrackError>) {
        let before: State = state.withLock { state in
            let before = state
            if case .resumed = before { return before }
            state = .resumed(result)
            return before
        }
        switch before {
        case .nobodyYet: observer?(result)
        case .waiting(let continuation): continuation.resume(returning: result)
        case .resumed: break
        }
    }

    /// Whether it has its result.
    var isResumed: Bool { state.withLock { if case .resumed = $0 { true } else { false } } }

    /// The same, but for a caller whose task is cancelled: that one waits no longer, and what it waited for goes on.
    @discardableResult
    func waitUnlessCancelled() async throws(TrackError) -> Int64? {
        let known = await withTaskCancellationHandler {
            await result()
        } onCancel: {
            resume(.failure(.cancelled))
        }
        return try known.get()
    }

    /// For one caller.
    ///
    /// - Returns: The sequence of the event that it waits for; nil if that took none, or it waits for no event.
    @discardableResult
    func wait() async throws(TrackError) -> Int64? { try await result().get() }

    private func result() async -> Result<Int64?, TrackError> {
        await withCheckedContinuation { continuation in
            let known: Result<Int64?, TrackError>? = state.withLock { state in
                if case .resumed(let result) = state { return result }
                state = .waiting(continuation)
                return nil
            }
            if let known { continuation.resume(returning: known) }
        }
    }
}

/// Why a durable call could not promise that its event is durable.
public enum TrackError: Error, Hashable, Sendable {
    /// Refused at intake; it took no sequence and will not be delivered.
    case refused(DropReason)
    /// A commit failed. The event waits at the head and is stored as soon as that is possible, unless the process ends first: to make
    /// sure, call again with the same id, which is to be a derived one. Under any other id the second call is a dead letter `conflict` if a
    /// property has changed meanwhile, a common or automatic one, or an enricher's, included.
    case notStored(StorageFailure)
    /// The quota removed it in the very commit that stored it: it is older than ``QueueQuota/maximumAge``, or, with
    /// ``QueueQuota/Policy/dropOldest``, there was no room for it beside those that were stored with it. It is counted in ``EventClient/Status/dropped`` and
    /// will not be delivered, unless the same event waited before and is being sent just then.
    case removed
    /// The client was shut down before the commit.
    case shutDown
    /// The calling task was cancelled before the commit was known. The event has been taken in and is stored all the same, unless the
    /// process ends or its commits fail first: to make sure, call again with the same id.
    case cancelled
}

extension TrackError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .refused(.mailboxFull): "more events wait to be stored than the mailbox holds"
        case .refused(.quotaFull): "the queue holds as much as its quota allows"
        case .refused(.shutDown), .shutDown: "the client is shut down"
        case .refused(.optedOut): "the user has opted out"
        case .refused(.enricher): "an enricher dropped the event"
        case .refused(.disabled): "events are disabled"
        case .refused(.unreadable): "what the user has agreed to, or whom events concern, cannot be read (see startFailure)"
        case .refused(.invalidID): "an id must have 1 to 200 bytes, none of them U+0000"
        case .removed: "the queue's quota removed the event at once: it is too old, or there was no room for it"
        case .cancelled: "the task was cancelled; the event is stored all the same"
        case .notStored(let failure): "the event could not be stored yet: \(failure)"
        }
    }
}
