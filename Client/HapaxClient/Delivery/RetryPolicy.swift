/// How long to wait after failures in a row: exponential with full jitter, a cap, and the server's own wish as a minimum (I16).
///
/// A value; randomness comes from the caller.
package struct RetryPolicy: Sendable, Hashable {
    /// The upper end of the first wait; it doubles with each failure in a row.
    var base: Duration
    /// No wait is longer, whatever the server asks for.
    var cap: Duration

    static let delivery = RetryPolicy(base: .seconds(1), cap: .seconds(300))

    /// For a commit that failed: a full disk that has room again should be noticed soon.
    static let storage = RetryPolicy(base: .milliseconds(200), cap: .seconds(5))

    /// For a client that could not start: a process before lets go of the queue, a disk has room again.
    package static let start = RetryPolicy(base: .seconds(1), cap: .seconds(60))

    /// Beyond this the cap rules anyway, and the shift below stays far from overflow.
    private static let maximumDoublings = 20

    /// - Parameters:
    ///   - failures: Failures in a row, from 1.
    ///   - retryAfter: What the server asked for; raises the wait, at most to the cap.
    package func delay(failures: Int, retryAfter: Duration? = nil, using randomness: inout some RandomNumberGenerator) -> Duration {
        let doublings = min(max(failures - 1, 0), Self.maximumDoublings)
        let ceiling = min(base * (1 << doublings), cap)
        let jitter = Double.random(in: 0..<1, using: &randomness)
        // Full jitter, but never nothing: a server that refuses at once must not be asked again at once.
        let floor = base / 10
        guard let retryAfter, retryAfter > .zero else { return max(ceiling * jitter, floor) }
        // On top, so that clients that were all given the same time do not come back together. A time near the cap leaves room for that.
        let wish = min(retryAfter, cap - cap / 5)
        let room = cap - wish
        return wish + max((wish < retryAfter ? room : min(ceiling, room)) * jitter, min(floor, room))
    }
}
