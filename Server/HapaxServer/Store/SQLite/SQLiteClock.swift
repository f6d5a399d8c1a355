import HapaxModel

/// The embedded store's clock, which gives each event its `received_at`. It never goes back: rows are numbered in the order of that instant.
final class SQLiteClock: Sendable {
    private let currentTime: @Sendable () -> Int64
    private let uptime: @Sendable () -> ContinuousClock.Instant
    private let state: Locked<(last: Int64, accepted: Int64, trust: ClockTrust)>

    /// - Parameters:
    ///   - last: The latest instant that the store has given or counted up to, in Unix milliseconds.
    ///   - known: See ``ClockTrust``.
    init(
        last: Int64, known: Int64, accepted: Int64, currentTime: @escaping @Sendable () -> Int64,
        uptime: @escaping @Sendable () -> ContinuousClock.Instant
    ) {
        (self.currentTime, self.uptime) = (currentTime, uptime)
        state = Locked((last, accepted, ClockTrust(known: known, clock: currentTime(), at: uptime())))
    }

    /// Somebody has said that the clock was right when it showed this, in Unix milliseconds.
    func accept(_ shown: Int64) { state.withLock { $0.accepted = shown } }

    /// No event is received before the settled instant any more.
    func read() -> StoreClock {
        state.withLock { state in
            var clock = state.trust.read(currentTime(), accepted: state.accepted, at: uptime())
            state.last = max(state.last, clock.settled)
            clock.settled = state.last
            return clock
        }
    }
}
