import HapaxModel

extension EventClient {
    /// Stores what has been tracked, then uploads until the queue is empty or an attempt fails. A backoff is cut short for one attempt.
    ///
    /// Queues of clients that found this one taken are delivered, too, once this one's is empty. While the app is in the background
    /// this takes time that the system must grant: the report's failure is ``DeliveryFailure/noBackgroundTime`` if it does not.
    public func flush() async -> FlushReport {
        await underAssertion {
            await storeAll()
            return await uploadAll()
        }
    }

    /// The same, but what has not been delivered within `limit` is left. Afterwards nothing more is sent: shut the client down.
    package func finalFlush(within limit: Duration) async -> FlushReport {
        let report = Locked<FlushReport?>(nil)
        let end = CommitWaiter()
        // What hangs is ended at the limit by taking away what it waits for. A salvage of a large file ends by itself, if the process lives.
        let closing = clock.schedule(after: limit) { [transport] in transport.close() }
        let leaving = clock.schedule(after: limit + Self.minimumStoringTime) { end.tell(.success(())) }
        Task {
            await storeAll()
            let whole = await uploadAll()
            report.withLock { $0 = whole }
            end.tell(.success(()))
        }
        try? await end.wait()
        closing.cancel()
        leaving.cancel()
        if let whole = report.withLock({ $0 }) { return whole }
        return FlushReport(delivery.latestState.counts, remaining: remaining, failure: .transport(.aborted))
    }

    /// The event that tells of damage comes when the salvage ends: it is part of what a flush delivers.
    private func storeAll() async {
        await queue.salvage()
        try? await writer.barrier(retrying: true)
    }

    private func uploadAll() async -> FlushReport {
        var state = await delivery.drain()
        // Where the server refuses some of this queue's events, those of the spools can show whether it is they.
        let awaitsWitness = await delivery.awaitsWitness
        if state.failure == nil || awaitsWitness, let adopter {
            let adopted = await adopter.adopt()
            state.counts = state.counts + adopted.counts
            // The end of a spool's session, or its damage, is told by this queue.
            if remaining > 0, awaitsWitness ? delivery.hasWitness : adopted.failure == nil {
                try? await writer.barrier(retrying: true)
                let told = await delivery.drain()
                state.counts = state.counts + told.counts
                state.failure = told.failure
            }
            state.failure = state.failure ?? adopted.failure
        }
        state.counts.deadLettered += queue.takeUnreportedLetters()
        // An empty queue is not all there is: these could not be stored.
        if state.failure == nil, writer.intake.withLock({ $0.uncommitted.events > 0 }) {
            state.failure = writer.lastFailure.map { .queue($0) }
        }
        return FlushReport(state.counts, remaining: remaining, failure: state.failure)
    }

    /// Returns when everything tracked before is durable.
    package func waitUntilStored() async throws(TrackError) {
        try await writer.barrier()
    }

    /// Whether events are uploaded by policy; if not, only ``flush()``, ``dispatchStep()`` and ``shutdown(within:)`` send. Switching it on
    /// uploads now.
    public var uploadsAutomatically: Bool {
        get { scheduler.policy.isAutomatic }
        set { scheduler.setAutomatic(newValue) }
    }

    /// Events stored from which an upload begins; at least 1.
    public var flushBulkSize: Int {
        get { scheduler.policy.bulkSize }
        set { scheduler.change { $0.bulkSize = newValue } }
    }

    /// How often stored events are uploaded. Setting a different value uploads now and restarts the timer; less than 5 s acts as 5 s.
    public var flushInterval: Duration {
        get { scheduler.policy.interval }
        set { scheduler.setInterval(newValue) }
    }

    /// A different one begins with its own ``flushInterval``, as if that had been set.
    public var preset: UploadPreset {
        get { scheduler.policy.preset }
        set { scheduler.setPreset(newValue) }
    }

    /// Names of events that are uploaded as soon as they are stored.
    public var immediateEvents: Set<String> {
        get { scheduler.policy.immediateEvents }
        set { scheduler.change { $0.immediateEvents = newValue } }
    }

    private var remaining: Int { writer.intake.withLock { Int($0.uncommitted.events) } + Int(queue.books.depth) }
}

/// What one ``EventClient/flush()`` saw happen.
public struct FlushReport: Hashable, Sendable {
    /// Stored by the server for the first time.
    public var stored: Int
    /// Stored by the server before: an earlier answer had been lost.
    public var duplicates: Int
    /// Moved to the dead letters, because the server refused them for good or because their bytes changed on the disk. Those that were found
    /// so in a damaged file count in the first report behind that.
    public var deadLettered: Int
    /// Events that still wait in this client's queue or memory; those that are being committed at that moment can count twice.
    public var remaining: Int
    /// Why it ended before the queue was empty.
    public var failure: DeliveryFailure?
}

extension FlushReport {
    init(_ counts: DeliveryCounts, remaining: Int, failure: DeliveryFailure?) {
        self.init(
            stored: counts.stored, duplicates: counts.duplicates, deadLettered: counts.deadLettered, remaining: remaining, failure: failure)
    }
}
