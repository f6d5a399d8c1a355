import HapaxModel

/// What ``OpenClient/flushNextBatch()`` came to.
package enum BatchFlush: Hashable, Sendable {
    /// Nothing waits, or there is no network: what waits stays.
    case noData
    /// The server has acknowledged a batch; `more`: whether events are left.
    case good(more: Bool)
    /// Nothing was acknowledged, or not all of it; what was not stays.
    case failed(DeliveryFailure)
}

extension OpenClient {
    /// Stores what has been tracked, then sends one request, over any network (R27, R28). A backoff is cut short for it.
    ///
    /// A loop of calls goes on while the answer is `good(more: true)`. Calls less than a minute apart find an event that the server refuses
    /// with its batch; between others it stays first, for an upload to find it. In the background the periodic uploads are suspended anyway;
    /// becoming active restores them (R29).
    ///
    /// Returns at once when the calling task is cancelled, with ``DeliveryFailure/cancelled``; the request goes on and is settled.
    package func flushNextBatch() async -> BatchFlush {
        let work: Result<BatchFlush, DeliveryFailure> = await whileAwaited { [self] isAwaited in
            await underAssertion { await sendNextBatch(isAwaited) }
        }
        switch work {
        case .success(let batch): return batch
        case .failure(let failure): return .failed(failure)
        }
    }

    private func sendNextBatch(_ isAwaited: @escaping @Sendable () -> Bool) async -> BatchFlush {
        try? await writer.barrier()
        guard isAwaited(), configuration.network() != nil else { return .noData }
        while true {
            let step = await delivery.step(file, isManual: true)
            if step.counts.attempts > 0 || step.next != .more {
                if let failure = step.failure { return .failed(failure) }
                // What could not be stored waits as well.
                if step.counts.attempts == 0, isStoring, let failure = writer.lastFailure { return .failed(.queue(failure)) }
                return step.counts.attempts == 0 ? .noData : .good(more: file.counters.sendable > 0)
            }
        }
    }
}
