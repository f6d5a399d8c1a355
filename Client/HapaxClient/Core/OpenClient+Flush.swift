import HapaxModel

extension OpenClient {
    package func flush(within limit: Duration? = nil) async -> FlushReport {
        let before = delivery.latestState.counts
        let work: Result<FlushReport, DeliveryFailure> = await whileAwaited(within: limit) { [self] isAwaited in
            await underAssertion {
                try? await writer.barrier(retrying: true)
                var report = await upload(upTo: Delivery.Bound(file)) { isAwaited() ? .granted(timeout: nil) : .unwanted }
                if isAwaited() { report.deadLettered += reporter.takeDeadLettersOfIntake() }
                return report
            }
        }
        switch work {
        case .success(let report): return report
        case .failure(let failure): return FlushReport(delivery.latestState.counts - before, remaining: remaining, failure: failure)
        }
    }

    /// Does work that goes on whatever becomes of the calling task.
    ///
    /// - Parameter work: Is given how to find out whether its result is still awaited.
    /// - Returns: What the work came to; ``DeliveryFailure/cancelled`` or ``DeliveryFailure/outOfTime`` if that is not known in time.
    func whileAwaited<Value: Sendable>(
        within limit: Duration? = nil, _ work: @escaping @Sendable (_ isAwaited: @escaping @Sendable () -> Bool) async -> Value
    ) async -> Result<Value, DeliveryFailure> {
        let (end, value) = (CommitWaiter(), Locked<Value?>(nil))
        let timer = limit.map { clock.schedule(after: $0) { end.resume(.success(nil)) } }
        Task {
            let done = await work { !end.isResumed }
            value.withLock { $0 = done }
            end.resume(.success(nil))
        }
        var ending = DeliveryFailure.outOfTime
        do { try await end.waitUnlessCancelled() } catch { ending = .cancelled }
        timer?.cancel()
        guard let value = value.withLock({ $0 }) else { return .failure(ending) }
        return .success(value)
    }

    /// - Parameter bound: What is to be sent; nil for all.
    private func upload(
        upTo bound: Delivery.Bound? = nil, permission: (@Sendable () -> RequestPermission)? = nil
    ) async -> FlushReport {
        var (state, next) = await delivery.drain(upTo: bound, permission: permission)
        if next == .drained || next == .held, isStoring, writer.lastFailure != nil {
            // What was delivered may have made the room that these need.
            try? await writer.barrier(retrying: true)
            let more = await delivery.drain(upTo: bound == nil ? nil : Delivery.Bound(file), permission: permission).state
            state.counts = state.counts + more.counts
            state.failure = more.failure
        }
        // An empty file is not all there is: these could not be stored.
        if state.failure == nil, isStoring {
            state.failure = writer.lastFailure.map { .queue($0) }
        }
        return FlushReport(state.counts, remaining: remaining, failure: state.failure)
    }

    /// The same, then with what others have left in the directory; what has not been delivered within `limit` is left. Afterwards nothing more is
    /// sent: shut the client down.
    ///
    /// - Parameters:
    ///   - leftovers: How long those may take at most.
    ///   - cutsRests: Whether it is tried during a rest as well.
    package func finalFlush(within limit: Duration, leftovers leftoverLimit: Duration? = nil, cutsRests: Bool = true) async -> FinalFlush {
        let result = Locked<FinalFlush?>(nil)
        let end = CommitWaiter()
        // What hangs is ended at the limit by taking away what it waits for.
        let closing = clock.schedule(after: limit) { [transport] in transport.close() }
        let leaving = clock.schedule(after: limit + Self.minimumStoringTime) { end.resume(.success(nil)) }
        Task {
            try? await writer.barrier(retrying: true)
            if !cutsRests, await delivery.isResting {
                let resting = FinalFlush(own: FlushReport(DeliveryCounts(), remaining: remaining, failure: nil))
                result.withLock { $0 = resting }
                return end.resume(.success(nil))
            }
            var whole = FinalFlush(own: await upload())
            if whole.own.failure == nil || whole.own.failure?.isAboutEvents == true {
                let last = clock.monotonic + (leftoverLimit ?? limit)
                whole.leftovers = await leftovers.send(isManual: true) { [clock] in
                    clock.monotonic < last ? .granted(timeout: nil) : .unwanted
                }
            }
            result.withLock { [whole] in $0 = whole }
            end.resume(.success(nil))
        }
        _ = try? await end.wait()
        closing.cancel()
        leaving.cancel()
        if let whole = result.withLock({ $0 }) { return whole }
        return FinalFlush(own: FlushReport(delivery.latestState.counts, remaining: remaining, failure: .transport(.aborted)))
    }

    /// What a command's flush saw happen.
    package struct FinalFlush: Sendable {
        package var own: FlushReport
        /// nil if it did not come to them.
        package var leftovers: Leftovers.Look?
    }

    /// Returns when everything tracked before is durable, or an attempt to make it so has failed: one that waits for the next attempt by a clock
    /// that a test moves would wait for ever.
    package func waitUntilStored() async throws(TrackError) {
        try await writer.barrier(retrying: true)
    }

    /// What waits in the client's file, without what the user's decision deletes; for tests.
    package func waitingIDs() throws -> Set<EventID> {
        try file.decidePending(consent.withLock { $0.current() })
        return Set(try file.events(after: 0, limit: .max).whole.map(\.id))
    }

    package var uploads: UploadSettings { scheduler.policy.settings }

    package func updateUploads(_ change: (inout UploadSettings) -> Void) { scheduler.change(change) }

    var isStoring: Bool { writer.intake.withLock { $0.uncommitted.events > 0 } }

    private var remaining: Int { writer.intake.withLock { Int($0.uncommitted.events) } + Int(file.counters.waiting) }
}

extension FlushReport {
    init(_ counts: DeliveryCounts, remaining: Int, failure: DeliveryFailure?) {
        self.init(
            stored: counts.stored, duplicates: counts.duplicates, deadLettered: counts.deadLettered, remaining: remaining, failure: failure)
    }
}

extension DeliveryFailure {
    /// Whether the server answers, and refuses these events.
    fileprivate var isAboutEvents: Bool {
        if case .status(_, let code?) = self { return RequestProblem.Code(rawValue: code)?.concernsBatch == true }
        return false
    }
}
