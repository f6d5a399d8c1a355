/// How much more each project may send now. A balance of events fills by the project's limit each second, up to a few seconds' worth. A request
/// is let in while the balance is above zero and may take it below, by a second's worth at most: no burst locks a project out for longer.
///
/// A value without clock or lock. Events are charged once they have been scanned and the balance has been asked again, so of requests that come
/// at the same time one takes it below zero.
struct RateLimits {
    private struct Balance {
        var events: Double
        var at: ContinuousClock.Instant
    }

    private var balances: [Int32: Balance] = [:]

    /// - Parameter limit: Events a second.
    /// - Returns: How long the project has to wait; nil if a request is let in.
    mutating func wait(_ project: Int32, limit: Int, _ now: ContinuousClock.Instant) -> Duration? {
        let balance = balance(project, limit, now)
        balances[project] = balance
        return balance.events > 0 ? nil : .seconds((1 - balance.events) / Double(limit))
    }

    mutating func charge(_ project: Int32, _ events: Int, limit: Int, _ now: ContinuousClock.Instant) {
        var balance = balance(project, limit, now)
        balance.events = max(balance.events - Double(events), -Double(limit))
        balances[project] = balance
    }

    private func balance(_ project: Int32, _ limit: Int, _ now: ContinuousClock.Instant) -> Balance {
        let most = Double(limit) * (ServerLimits.rateBurst / .seconds(1))
        guard let known = balances[project] else { return Balance(events: most, at: now) }
        return Balance(events: min(most, known.events + Double(limit) * ((now - known.at) / .seconds(1))), at: now)
    }
}
