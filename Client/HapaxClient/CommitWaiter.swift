import HapaxModel

/// Someone who waits for a commit. Told once; what comes later is ignored.
final class CommitWaiter: Sendable {
    private enum State {
        case nobodyYet
        case waiting(CheckedContinuation<Result<Void, TrackError>, Never>)
        case told(Result<Void, TrackError>)
    }

    private let state = Locked(State.nobodyYet)

    func tell(_ result: Result<Void, TrackError>) {
        let continuation: CheckedContinuation<Result<Void, TrackError>, Never>? = state.withLock { state in
            switch state {
            case .nobodyYet:
                state = .told(result)
                return nil
            case .waiting(let continuation):
                state = .told(result)
                return continuation
            case .told: return nil
            }
        }
        continuation?.resume(returning: result)
    }

    /// For one caller.
    func wait() async throws(TrackError) {
        let result = await withCheckedContinuation { continuation in
            let told: Result<Void, TrackError>? = state.withLock { state in
                if case .told(let result) = state { return result }
                state = .waiting(continuation)
                return nil
            }
            if let told { continuation.resume(returning: told) }
        }
        try result.get()
    }
}

/// Why a durable call could not promise that its event is durable.
public enum TrackError: Error, Hashable, Sendable {
    /// Refused at intake; it took no sequence and will not be delivered.
    case refused(DropReason)
    /// A commit failed. The event waits at the head and is stored as soon as that is possible, unless the process ends first: to make
    /// sure, call again with the same id.
    case notStored(StorageFailure)
    /// The client was shut down before the commit.
    case shutDown
}

extension TrackError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .refused(.mailboxFull): "more events wait to be stored than the mailbox holds"
        case .refused(.quotaFull): "the queue holds as much as its quota allows"
        case .refused(.shutDown), .shutDown: "the client is shut down"
        case .notStored(let failure): "the event could not be stored yet: \(failure)"
        }
    }
}
