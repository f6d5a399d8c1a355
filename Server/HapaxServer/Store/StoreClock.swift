/// What a store's clock shows, as far as it is believed. Instants are Unix milliseconds.
package struct StoreClock: Hashable, Sendable {
    /// The settled instant: every event received before it is stored, and none can be received before it any more.
    package var settled: Int64
    /// Days may close, and old months go, up to this instant: what a wrong clock has closed cannot be opened again.
    package var closing: Int64
    /// By how much the clock is ahead of what is believed, in milliseconds; 0 while it is believed.
    package var ahead: Int64 = 0

    package init(settled: Int64, closing: Int64, ahead: Int64 = 0) { (self.settled, self.closing, self.ahead) = (settled, closing, ahead) }
}

/// Decides how far a store's clock is believed: it may grow by no more than time passes, plus minutes. A clock that jumps ahead is believed
/// after an hour, or when somebody accepts it (`hapax-server clock accept`); so is that of a start more than a day after the last mark.
///
/// A value without clock and SQL.
struct ClockTrust: Sendable {
    /// How far a clock may be ahead of the time that has passed, as after a correction.
    static let leeway: Int64 = 5 * 60_000
    /// How long a jump has to last.
    static let patience = Duration.seconds(3_600)
    /// How long a server may have been stopped without doubt about the clock.
    static let longestStop: Int64 = 86_400_000

    /// The latest instant that was believed, and when that was.
    private var believed: Int64
    private var at: ContinuousClock.Instant
    /// What is left of ``leeway``; it grows by a hundredth of the time that passes, since no two clocks run alike.
    private var slack = Self.leeway
    private var doubtedSince: ContinuousClock.Instant?
    private var isStart = true

    /// - Parameters:
    ///   - known: How far days had been closed before the start, in Unix milliseconds; 0 for a new store.
    ///   - clock: What the clock shows now.
    init(known: Int64, clock: Int64, at now: ContinuousClock.Instant) {
        (believed, at) = (known == 0 ? clock : known, now)
    }

    /// - Parameters:
    ///   - clock: What the clock shows, in Unix milliseconds.
    ///   - accepted: What it showed when somebody accepted it; 0 if nobody has.
    mutating func read(_ clock: Int64, accepted: Int64, at now: ContinuousClock.Instant) -> StoreClock {
        let passed = Int64((now - at) / .milliseconds(1))
        let spare = min(slack + passed / 100, Self.leeway)
        let ahead = clock - believed - passed
        let isAccepted = accepted > 0 && clock >= accepted - Self.leeway && clock - accepted <= Int64(Self.patience / .milliseconds(1))
        let isOver = doubtedSince.map { now - $0 >= Self.patience } ?? false
        guard ahead <= (isStart ? Self.longestStop : spare) || isAccepted || isOver else {
            doubtedSince = doubtedSince ?? now
            // After a long stop the clock is most likely right: questions are answered by it, and only what cannot be undone waits.
            return StoreClock(settled: isStart ? clock : believed + passed, closing: believed + passed, ahead: ahead)
        }
        // A clock that has gone back is not believed to the past: it may come again to where it was.
        if clock > believed || isStart {
            slack = ahead > spare ? Self.leeway : min(spare - ahead, Self.leeway)
            (believed, at) = (max(clock, believed), now)
        }
        (doubtedSince, isStart) = (nil, false)
        return StoreClock(settled: clock, closing: clock)
    }
}
