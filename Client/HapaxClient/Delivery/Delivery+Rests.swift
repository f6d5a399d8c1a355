import HapaxModel
import Logging

/// What a failure is followed by: a rest, in which nothing is sent that nobody asks for.
extension Delivery {
    /// Whether a policy may not send, because of this client's failures or another's to the same server.
    var isResting: Bool {
        let now = parts.clock.reading
        if now.monotonic < notBefore { return true }
        guard let pause = parts.pause.current(now: now.unixMilliseconds), pause.until > now.unixMilliseconds else { return false }
        if timer == nil { schedule(.milliseconds(pause.until - now.unixMilliseconds), from: now) }
        return true
    }

    /// Returns when the rest is over, or there is no reason for it any more.
    func restEnds() async {
        guard timer != nil else { return }
        let end = CommitWaiter()
        rests.append(end)
        _ = try? await end.wait()
    }

    func endRests() {
        for end in rests { end.resume(.success(nil)) }
        rests = []
    }

    func backingOff(_ step: Step, _ retryAfter: Duration? = nil) -> Step {
        var step = step
        failures = max(failures, parts.pause.current(now: parts.clock.unixMilliseconds)?.failures ?? 0) + 1
        func open(_ randomness: inout some RandomNumberGenerator & Sendable) -> Duration {
            parts.retryPolicy.delay(failures: failures, retryAfter: retryAfter, using: &randomness)
        }
        step.next = .wait(open(&randomness))
        return step
    }

    func conclude(_ step: inout Step, isOwn: Bool, _ file: QueueFile) {
        switch step.next {
        case .more:
            if step.failure == nil, step.counts.attempts > 0 { answered(file) }
            if step.failure != nil || step.counts.attempts > 0 { note(step, isOwn) }
            return
        case .drained:
            if step.failure == nil, isOwn { lastFailure = nil }
        case .wait(let delay), .pause(let delay):
            note(step, isOwn)
            // Another file's trouble is its own.
            if !isOwn, case .queue? = step.failure { break }
            // One reading, and the timer last: whenever it fires, what it ends is over.
            let now = parts.clock.reading
            notBefore = now.monotonic + delay
            if case .queue? = step.failure {
            } else {
                parts.pause.set(DestinationPause.Pause(until: now.unixMilliseconds(after: delay), failures: failures))
            }
            schedule(delay, from: now)
        case .onlyHeld:
            // Others may come meanwhile, and are sent at once.
            note(step, isOwn)
            if isOwn { schedule(DeliveryStateMachine.probeInterval, from: parts.clock.reading) }
            return
        case .held: return
        case .denied, .stopped: break
        }
        machine(of: file) { $0.rested() }
    }

    private func note(_ step: Step, _ isOwn: Bool) {
        if let failure = step.failure {
            // That we ended an attempt ourselves says less than why the one before failed.
            if failure == .transport(.aborted), lastFailure != nil { return }
            parts.notes.failed(failure, step.detail, now: parts.clock.unixMilliseconds)
            log(failure, step)
        }
        if isOwn { lastFailure = step.failure }
        lastDetail = step.detail
    }

    private func log(_ failure: DeliveryFailure, _ step: Step) {
        var metadata: Logger.Metadata = ["hapax.failure": "\(failure)"]
        metadata["hapax.detail"] = step.detail.map { "\($0)" }
        if case .pause = step.next, failure.isOfServer, refusals.refused(failure, now: parts.clock.monotonic) {
            metadata["hapax.server"] = "\(parts.endpoint.baseURL)"
            metadata["hapax.key"] = "\(parts.endpoint.keyBeginning)"
            parts.logger?.error(
                "The server refuses what this client sends, for a reason that time does not change: events wait on disk", metadata: metadata
            )
        } else if case .onlyHeld = step.next, case .status(_, nil) = failure, detours.refused(failure, now: parts.clock.monotonic) {
            parts.logger?.warning(
                "Something between this client and the server refuses an event: it waits and is tried again, the others are sent",
                metadata: metadata)
        } else {
            parts.logger?.info("Upload failed", metadata: metadata)
        }
    }

    private func answered(_ file: QueueFile) {
        if refusals.accepted() { parts.logger?.notice("The server accepts this client's events again") }
        failures = 0
        notBefore = .zero
        timer?.cancel()
        timer = nil
        nextAttempt = nil
        endRests()
        let isNews = parts.pause.set(nil)
        // While an event does not pass people are to see why, whatever else does.
        if file.counters.held == 0, !machine(of: file, { $0.blocksAny }) { parts.notes.succeeded(isNews: isNews) }
    }

    private func schedule(_ delay: Duration, from now: ClockReading) {
        timer?.cancel()
        guard !isStopped else { return }
        timerNumber += 1
        let number = timerNumber
        nextAttempt = now.unixMilliseconds(after: delay)
        timer = parts.clock.schedule(after: delay) { [weak self] in
            Task { [weak self] in await self?.waitEnded(number) }
        }
    }

    private func waitEnded(_ number: Int) {
        // A timer that fired while it was being cancelled belongs to an older rest.
        guard number == timerNumber, timer != nil else { return }
        timer = nil
        nextAttempt = nil
        notBefore = .zero
        endRests()
        uploadWanted()
    }
}
