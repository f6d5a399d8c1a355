extension EventClient {
    /// Refuses new events, stores those it has, uploads while time is left, and closes the queue.
    ///
    /// Uploading goes on, backoff after backoff, until the client's file is empty, the time is over, or the server refuses for a reason that time
    /// does not change (a wrong key).
    ///
    /// Call it once, last. What is on disk is sent by any other client on this directory. What is stuck at the limit, as a commit on a disk that
    /// hangs, is left behind and ends by itself: then the file stays locked until it has. Cancelling the task changes nothing; calling it
    /// again with less time does.
    ///
    /// - Parameter limit: For all of it; storing has at least 500 ms, and closing 100 ms more. Zero stores without uploading.
    @discardableResult
    public func shutdown(within limit: Duration) async -> ShutdownReport {
        lifecycle.withRecord { $0.adapter }?.detach()
        writer.intake.withLock { $0.close() }
        scheduler.stop()
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
        let leaving = clock.schedule(after: storingTime + Self.closingTime) { end.tell(.success(nil)) }
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
            end.tell(.success(nil))
        }
        _ = try? await end.wait()
        leaving.cancel()
        reporter.end()
        // In this order: a commit that ends meanwhile must not move an event from what is still to be counted to what has been.
        let inMemory = writer.intake.withLock { Int($0.uncommitted.events) }
        let counters = file.counters
        let isThere = wasThereAtClose.withLock { $0 } ?? true
        return ShutdownReport(
            stored: isThere ? Int(counters.waiting) : 0, lost: inMemory + (isThere ? 0 : Int(counters.waiting + counters.letters)),
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

/// What was left when a client was shut down.
public struct ShutdownReport: Hashable, Sendable {
    /// Events in this client's file, on disk; any other client on this directory sends them.
    public var stored: Int
    /// Events that could not be stored, because commits failed until the end, or that were in files that somebody has deleted, dead letters
    /// included. Those of a commit that is still stuck at the limit count: it may succeed later.
    public var lost: Int
    /// Why the latest attempt to deliver failed; nil if it did not, or if none was made.
    public var failure: DeliveryFailure?
    /// Whether there may be events on disk that ``stored`` does not count: in a damaged file of which not everything has been recovered yet
    /// (``EventClient/Status/damage``).
    public var mayLeaveMore = false
}

extension DeliveryFailure {
    fileprivate var isOfStorage: Bool { if case .queue = self { true } else { false } }
}
