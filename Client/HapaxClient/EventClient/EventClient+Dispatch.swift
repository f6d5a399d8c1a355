import HapaxModel

/// What one step of a manual dispatch came to.
public enum DispatchStep: Hashable, Sendable {
    /// Nothing waits, or there is no network: what waits stays.
    case noData
    /// The server has acknowledged a batch; `more` tells whether events are left.
    case good(more: Bool)
    /// Nothing was acknowledged, or not all of it; what was not stays.
    case failed(DeliveryFailure)
}

extension EventClient {
    /// Stores what has been tracked, then sends one request, over any network (R27, R28). A backoff is cut short for it.
    ///
    /// A loop of steps goes on while the answer is `good(more: true)`. Steps less than a minute apart find an event that the server refuses
    /// with its batch; between others it stays first, for an upload to find it. In the background the periodic uploads are suspended anyway;
    /// becoming active restores them (R29).
    public func dispatchStep() async -> DispatchStep {
        await underAssertion { await step() }
    }

    private func step() async -> DispatchStep {
        try? await writer.barrier()
        guard configuration.network() != nil, queue.books.depth > 0 || queue.unsalvagedFiles > 0 else { return .noData }
        let isAsked = Locked(false)
        let state = await delivery.drain {
            isAsked.withLock { isAsked in
                defer { isAsked = true }
                return isAsked ? .unwanted : .granted(timeout: nil)
            }
        }
        if let failure = state.failure { return .failed(failure) }
        let isMoreLeft = queue.books.depth > 0
        // Without an attempt of its own another call has emptied the queue, or tells what was delivered.
        return state.counts.attempts == 0 && !isMoreLeft ? .noData : .good(more: isMoreLeft)
    }

    /// Over which networks events are uploaded without being asked.
    public var flushNetworkPolicy: NetworkPolicy {
        get { scheduler.policy.networkPolicy }
        set { scheduler.change { $0.networkPolicy = newValue } }
    }
}
