/// Whether a request still fits into the time that is left in the background, and how long it may take (R33).
enum BackgroundBudget {
    static let maximumTimeout: Duration = .seconds(10)
    static let minimumTimeout: Duration = .seconds(3)
    /// For recording what was acknowledged, once the answer is there.
    static let reserve: Duration = .seconds(2)

    /// - Returns: The request's timeout; nil if it must not be begun.
    static func timeout(remaining: Duration) -> Duration? {
        let timeout = max(min(maximumTimeout, remaining - reserve), minimumTimeout)
        return remaining >= timeout ? timeout : nil
    }
}
