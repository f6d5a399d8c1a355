import HapaxModel

/// Performs what ``FlushPolicy`` decides: asks for uploads and keeps the one periodic timer (R21).
final class UploadScheduler: Sendable {
    private let shared: Locked<FlushPolicy>
    private let state = Locked(State())
    private let clock: any ClientClock
    private let depth: @Sendable () -> Int
    private let network: @Sendable () -> NetworkType?
    private let upload: @Sendable () -> Void
    private let ticked: @Sendable () -> Void

    private struct State {
        var timer: (any ScheduledAction)?
        /// Whether there is to be a timer, as in the foreground, if the policy has an interval.
        var wantsTimer = false
        /// Which timer is the current one: an older one that could not be cancelled in time does nothing.
        var generation = 0
        var isStopped = false

        mutating func stopTimer() {
            generation += 1
            timer?.cancel()
            timer = nil
        }
    }

    /// - Parameters:
    ///   - policy: Shared with who asks whether it allows a request; changed only here.
    ///   - depth: Events that could be sent.
    ///   - ticked: Called at each interval, whether or not anything is to be uploaded.
    init(
        policy: Locked<FlushPolicy>, clock: any ClientClock, depth: @escaping @Sendable () -> Int,
        network: @escaping @Sendable () -> NetworkType? = { .wired }, ticked: @escaping @Sendable () -> Void = {},
        upload: @escaping @Sendable () -> Void
    ) {
        shared = policy
        self.clock = clock
        self.depth = depth
        self.network = network
        self.upload = upload
        self.ticked = ticked
    }

    var policy: FlushPolicy { shared.withLock { $0 } }

    func change(_ change: (inout UploadSettings) -> Void) {
        let now = clock.monotonic
        perform(shared.withLock { $0.change(change, now: now) })
    }

    func eventsStored(depth: Int, immediate: Bool) {
        let now = clock.monotonic
        let network = network()
        perform(shared.withLock { $0.eventsStored(depth: depth, immediate: immediate, network: network, now: now) })
    }

    /// Starting again replaces the timer.
    func startTimer() {
        startTimer { _ in true }
    }

    /// - Parameter isDue: Asked under the lock: it may have been stopped or replaced meanwhile.
    private func startTimer(if isDue: (State) -> Bool) {
        let next: (interval: Duration, generation: Int)? = state.withLock { state in
            guard isDue(state) else { return nil }
            state.stopTimer()
            state.wantsTimer = true
            return policy.effectiveInterval.map { ($0, state.generation) }
        }
        guard let (interval, generation) = next else { return }
        let timer = clock.schedule(after: interval) { [weak self] in self?.timerFired(generation) }
        state.withLock { state in
            if state.generation == generation && !state.isStopped { state.timer = timer } else { timer.cancel() }
        }
    }

    /// Until it is started again (R36).
    func stopTimer() {
        state.withLock { state in
            state.wantsTimer = false
            state.stopTimer()
        }
    }

    func stop() {
        state.withLock { state in
            state.isStopped = true
            state.timer?.cancel()
            state.timer = nil
        }
    }

    private func timerFired(_ generation: Int) {
        let now = clock.monotonic
        let depth = depth()
        let network = network()
        let actions: [FlushPolicy.Action]? = state.withLock { state in
            guard state.generation == generation, !state.isStopped else { return nil }
            return shared.withLock { $0.timerFired(depth: depth, network: network, now: now) }
        }
        guard let actions else { return }
        startTimer { $0.generation == generation }
        perform(actions)
        ticked()
    }

    private func perform(_ actions: [FlushPolicy.Action]) {
        for action in actions {
            switch action {
            case .upload: upload()
            case .restartTimer: startTimer { $0.wantsTimer }
            // Unless somebody has switched it on again meanwhile.
            case .stopTimer: if policy.effectiveInterval == nil { state.withLock { $0.stopTimer() } }
            }
        }
    }
}
