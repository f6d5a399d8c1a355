import HapaxModel

/// How long something takes, without the time in which it stood still (R53, R54).
///
/// A value. `now` is a reading of a monotonic clock: what people or time servers do to the wall clock does not change a duration.
struct Stopwatch: Sendable {
    private enum State: Hashable {
        case running(since: Duration)
        /// By its user: only they resume it.
        case paused
        /// Because the app went to the background; runs again when the app is active.
        case pausedByBackground
    }

    private var state: State
    private var measured: Duration = .zero

    init(now: Duration) { state = .running(since: now) }

    mutating func pause(now: Duration) { stop(now, .paused) }

    mutating func resume(now: Duration) {
        if case .running = state { return }
        state = .running(since: now)
    }

    /// - Returns: What was measured; it measures no more.
    mutating func end(now: Duration) -> Duration {
        pause(now: now)
        return measured
    }

    mutating func enteredBackground(now: Duration) {
        if case .running = state { stop(now, .pausedByBackground) }
    }

    mutating func becameActive(now: Duration) {
        if state == .pausedByBackground { state = .running(since: now) }
    }

    private mutating func stop(_ now: Duration, _ stopped: State) {
        if case .running(let since) = state { measured += max(now - since, .zero) }
        state = stopped
    }
}

extension Duration {
    /// Seconds, to the millisecond.
    var eventDuration: PropertyValue { .double((self / .milliseconds(1)).rounded() / 1_000) }
}
