extension EventClient {
    /// Refuses new events, stores those it has, uploads while time is left, and closes the queue.
    ///
    /// Uploading goes on, backoff after backoff, until the queue is empty, the time is over, or the server refuses for a reason that time
    /// does not change (a wrong key). Queues of clients that found this one taken come last.
    ///
    /// Call it once, last. What is on disk is sent by the next client on this directory. What is stuck at the limit, as a commit behind
    /// another process's lock, is left behind and ends by itself: then the queue stays locked until it has. Cancelling the task changes
    /// nothing; calling it again with less time does.
    ///
    /// - Parameter limit: For all of it; storing has at least 500 ms, and closing 100 ms more. Zero stores without uploading.
    @discardableResult
    public func shutdown(within limit: Duration) async -> ShutdownReport {
        lifecycle.withRecord { $0.adapter }?.detach()
        writer.intake.withLock { $0.close() }
        scheduler.stop()
        let end = CommitWaiter()
        let failure = Locked<DeliveryFailure?>(nil)
        // What is believed if the disk hangs.
        let left = Locked((file: EventQueue.FileState.there, aside: 0, mayBeMore: true))
        let look: @Sendable (EventQueue.FileState) -> Void = { [queue] file in
            let aside = file == .gone ? queue.lostAside : 0
            let mayBeMore = queue.isSpool || aside == nil || queue.directory.holdsMore
            left.withLock { $0 = (file, aside ?? 0, mayBeMore) }
        }
        let start = clock.monotonic
        let storingTime = max(limit, Self.minimumStoringTime)
        let uploading = clock.schedule(after: limit) { [transport, delivery, adopter] in
            transport.close()
            Task {
                await delivery.stop()
                await adopter?.stop()
            }
        }
        let storing = clock.schedule(after: storingTime) { [writer, queue, fileAtClose] in
            writer.giveUp()
            BlockingExecutor.run("hapax.look") { look(fileAtClose.withLock { $0 } ?? queue.fileState) }
        }
        let leaving = clock.schedule(after: storingTime + Self.closingTime) { end.tell(.success(())) }
        Task {
            var adopted: DeliveryFailure?
            var (isStored, mayDeliver) = (false, true)
            repeat {
                isStored = (try? await writer.barrier()) != nil
                if isStored { storing.cancel() }
                // On a full disk it is what makes room.
                if mayDeliver, clock.monotonic - start < limit { (adopted, mayDeliver) = await deliverAll() }
            } while !isStored && !writer.hasGivenUp
            uploading.cancel()
            transport.close()
            await delivery.stop()
            await adopter?.stop()
            let last = await delivery.state.failure ?? adopted
            // What this shutdown cut short itself is no fault of the network's.
            failure.withLock { $0 = last == .transport(.aborted) ? .shutDown : last }
            // What was refused since is counted as well.
            if writer.intake.withLock({ !$0.uncounted.isEmpty }) { try? await writer.barrier(retrying: true) }
            storing.cancel()
            writer.giveUp()
            await closeQueue(then: look)
            await writer.rests()
            end.tell(.success(()))
        }
        try? await end.wait()
        leaving.cancel()
        reporter.end()
        // In this order: a commit that ends meanwhile must not move an event from what is still to be counted to what has been.
        let inMemory = writer.intake.withLock { Int($0.uncommitted.events) }
        let books = queue.books
        let (waiting, letters) = (Int(books.depth), Int(books.letters))
        let (file, aside, mayBeMore) = left.withLock { $0 }
        return ShutdownReport(
            stored: file == .there ? waiting : 0, lost: inMemory + (file == .gone ? waiting + letters + aside : 0),
            failure: failure.withLock { $0 },
            mayLeaveMore: mayBeMore)
    }

    /// - Returns: Why the spools could not be delivered, if it came to them; and whether the server may be asked again (I16).
    private func deliverAll() async -> (failure: DeliveryFailure?, mayGoOn: Bool) {
        let ending = await delivery.deliverAll()
        // Where the server refuses some of this queue's events, those of the spools can show whether it is they.
        let awaitsWitness = await delivery.awaitsWitness
        guard ending == .drained || awaitsWitness else { return (nil, false) }
        let failure = await adopter?.adopt(persistently: true).failure
        if awaitsWitness {
            guard delivery.hasWitness, await delivery.deliverAll() == .drained else { return (nil, false) }
        }
        if case .queue? = failure { return (failure, true) }
        return (failure, failure == nil)
    }

    /// On a thread that may block: closing waits for a commit that is under way.
    private func closeQueue(then closed: @escaping @Sendable (EventQueue.FileState) -> Void) async {
        await withCheckedContinuation { continuation in
            BlockingExecutor.run("hapax.closing") { [queue, fileAtClose] in
                // Looked at while it is locked, by the first who closes: afterwards another client may deliver and remove it.
                let file = fileAtClose.withLock { known in
                    let file = known ?? queue.fileState
                    known = file
                    return file
                }
                if !queue.isSpool || !queue.removeIfEmpty() { queue.close() }
                closed(file)
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
    /// Events in this queue, on disk; the next client on this directory sends them.
    public var stored: Int
    /// Events that could not be stored, because commits failed until the end, or that were in files that somebody has deleted, dead letters
    /// included. Those of a commit that is still stuck at the limit count: it may succeed later.
    public var lost: Int
    /// Why the latest attempt to deliver failed; nil if it did not, or if none was made.
    public var failure: DeliveryFailure?
    /// Whether there may be events on disk that ``stored`` does not count: in a damaged file that could not be salvaged yet
    /// (``Status/damage``), or in queues beside this one, which other processes may work on; so for every client that found the queue taken.
    /// True as well if there was no time to look.
    public var mayLeaveMore = false
}
