/// Named stopwatches for how long things take (R53, R54).
///
/// A value. `now` is a reading of a monotonic clock: what people or time servers do to the wall clock does not change a duration.
struct EventTimers: Sendable {
    private enum State: Hashable {
        case running(since: Duration)
        /// By its user: only they resume it.
        case paused
        /// Because the app went to the background; runs again when the app is active.
        case pausedByBackground
    }

    private struct Timer {
        var measured: Duration = .zero
        var state: State
    }

    private var timers: [String: Timer] = [:]

    /// Timers at one time; more are not started.
    static let maximumTimers = 1_000

    /// A timer of that name begins again at zero.
    ///
    /// - Returns: Whether there was room for it.
    mutating func start(_ name: String, now: Duration) -> Bool {
        guard timers[name] != nil || timers.count < Self.maximumTimers else { return false }
        timers[name] = Timer(state: .running(since: now))
        return true
    }

    mutating func pause(_ name: String, now: Duration) {
        pause(name, now: now, to: .paused)
    }

    mutating func resume(_ name: String, now: Duration) {
        guard let timer = timers[name] else { return }
        if case .running = timer.state { return }
        timers[name]?.state = .running(since: now)
    }

    /// - Returns: What was measured; nil if there is no such timer.
    mutating func end(_ name: String, now: Duration) -> Duration? {
        pause(name, now: now, to: .paused)
        return timers.removeValue(forKey: name)?.measured
    }

    mutating func enteredBackground(now: Duration) {
        for name in timers.keys {
            if case .running? = timers[name]?.state { pause(name, now: now, to: .pausedByBackground) }
        }
    }

    mutating func becameActive(now: Duration) {
        for (name, timer) in timers where timer.state == .pausedByBackground { timers[name]?.state = .running(since: now) }
    }

    private mutating func pause(_ name: String, now: Duration, to state: State) {
        guard var timer = timers[name] else { return }
        if case .running(let since) = timer.state { timer.measured += max(now - since, .zero) }
        timer.state = state
        timers[name] = timer
    }
}
