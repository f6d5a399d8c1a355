import HapaxModel

/// What ends a rest, and who is told of one.
extension Delivery {
    func begin(_ kind: DeliveryStateMachine.Rest) {
        if kind != .held { suspects = [] }
        if kind != .paused { awaitsWitness = false }
        // No attempt follows by itself.
        if kind == .drained || kind == .held { isUnanswered.withLock { $0 = false } }
        switch kind {
        case .drained:
            lastFailure = nil
            end(.drained)
        case .held: end(nil)
        case .stopped: end(.stopped)
        case .paused:
            schedule(DeliveryStateMachine.probeInterval)
            end(.paused)
        case .backoff(let failures, let retryAfter):
            schedule(delay(failures, retryAfter))
        }
        rest()
    }

    /// - Parameter ending: nil if there is more to do.
    func end(_ ending: Ending?) {
        self.ending = ending
        endings += 1
        let waiting = endingWaiters
        endingWaiters = []
        for waiter in waiting { waiter.resume(returning: ending) }
    }

    func delay(_ failures: Int, _ retryAfter: Duration?) -> Duration {
        func open(_ randomness: inout some RandomNumberGenerator & Sendable) -> Duration {
            retryPolicy.delay(failures: failures, retryAfter: retryAfter, using: &randomness)
        }
        return open(&randomness)
    }

    func schedule(_ delay: Duration) {
        restNumber += 1
        let number = restNumber
        nextAttempt = clock.unixMilliseconds + Int64(delay / .milliseconds(1))
        timer = clock.schedule(after: delay) { [weak self] in
            Task { [weak self] in await self?.waitEnded(number) }
        }
    }

    func waitEnded(_ number: Int) {
        // A timer that fired while it was being cancelled belongs to an older rest.
        guard number == restNumber, timer != nil else { return }
        // A policy's wish during the rest takes nothing from those who wait for the end.
        isManual = !endingWaiters.isEmpty
        begin(machine.waitEnded())
    }

    func rest() {
        isResting = true
        rests += 1
        wasHeldBy = heldBy
        let waiting = waiters
        waiters = []
        for waiter in waiting { waiter.resume(returning: heldBy) }
    }
}
