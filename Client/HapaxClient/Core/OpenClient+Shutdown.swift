extension OpenClient {
    @discardableResult
    package func shutdown(within limit: Duration) async -> ShutdownReport {
        presence.withLock { $0 = nil }
        lifecycle.withRecord { $0.adapter }?.detach()
        writer.intake.withLock { $0.close() }
        scheduler.stop()
        _ = lifecycle.stopAwaiting()
        let end = CommitWaiter()
        let failure = Locked<DeliveryFailure?>(nil)
        let start = clock.monotonic
        let storingTime = max(limit, Self.minimumStoringTime)
        let uploading = clock.schedule(after: limit) { [transport, delivery, leftovers] in
            transport.close()
            Task {
                await delivery.stop()
                await leftovers.stop()
            }
        }
        let storing = clock.schedule(after: storingTime) { [writer] in writer.giveUp() }
        let leaving = clock.schedule(after: storingTime + Self.closingTime) { end.resume(.success(nil)) }
        Task {
            var (isStored, last) = (false, Delivery.Step?.none)
            repeat {
                isStored = (try? await writer.barrier()) != nil
                if isStored { storing.cancel() }
                // On a full disk it is what makes room.
                let mayDeliver = last.map { $0.next == .drained || $0.failure?.isOfStorage == true } ?? true
                if mayDeliver, clock.monotonic - start < limit { last = await delivery.deliverAll() }
            } while !isStored && !writer.hasGivenUp
            uploading.cancel()
            transport.close()
            await delivery.stop()
            await leftovers.stop()
            let why = last?.failure ?? delivery.latestState.failure
            // What this shutdown cut short itself is no fault of the network's.
            failure.withLock { $0 = why == .transport(.aborted) ? .shutDown : why }
            // What was refused since is counted as well.
            if writer.intake.withLock({ !$0.uncounted.isEmpty }) { try? await writer.barrier(retrying: true) }
            storing.cancel()
            writer.giveUp()
            await closeFile()
            await writer.rests()
            end.resume(.success(nil))
        }
        _ = try? await end.wait()
        leaving.cancel()
        reporter.end()
        // In this order: a commit that ends meanwhile must not move an event from what is still to be counted to what has been.
        let inMemory = writer.intake.withLock { Int($0.uncommitted.events) }
        let counters = file.counters
        let isThere = wasThereAtClose.withLock { $0 } ?? true
        return ShutdownReport(
            stored: isThere ? Int(counters.waiting) : 0, lost: inMemory + (isThere ? 0 : Int(counters.waiting + counters.deadLetters)),
            failure: failure.withLock { $0 }, mayLeaveMore: file.isRecovering)
    }

    /// On a thread that may block: closing waits for a commit that is under way.
    private func closeFile() async {
        await withCheckedContinuation { continuation in
            BlockingExecutor.run("hapax.closing") { [file, wasThereAtClose] in
                // Looked at while it is locked, by the first who closes.
                wasThereAtClose.withLock { known in known = known ?? file.hasFile }
                file.close()
                continuation.resume()
            }
        }
    }

    /// What storing is given at least (R38).
    static let minimumStoringTime: Duration = .milliseconds(500)

    /// What closing is given on top.
    private static let closingTime: Duration = .milliseconds(100)
}

extension DeliveryFailure {
    fileprivate var isOfStorage: Bool { if case .queue = self { true } else { false } }
}
