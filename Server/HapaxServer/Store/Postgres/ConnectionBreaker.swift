import HapaxModel

/// Decides when to connect to a lost database again: all sessions of a server together at most every 100 ms to 1 s, with jitter, so that
/// neither a thousand requests nor many servers connect at once (I16).
///
/// A value without clock and randomness.
struct ConnectionBreaker {
    static let shortestWait = Duration.milliseconds(100)
    static let longestWait = Duration.seconds(1)

    private var failures = 0
    /// No session connects before this; nil while the database counts as reachable.
    private var next: ContinuousClock.Instant?

    /// Whether a session may connect now. While the database is lost, one session tries at a time: the others wait until its attempt has ended
    /// or the shortest wait has passed.
    mutating func mayConnect(_ now: ContinuousClock.Instant) -> Bool {
        guard let next else { return true }
        guard next <= now else { return false }
        self.next = now + Self.shortestWait
        return true
    }

    mutating func connected() {
        failures = 0
        next = nil
    }

    /// - Parameter jitter: 0…1.
    mutating func failed(_ now: ContinuousClock.Instant, jitter: Double) {
        let wait = min(Self.shortestWait * (1 << min(failures, 4)), Self.longestWait)
        failures += 1
        // The jitter spreads the servers; no wait is below the shortest.
        next = max(next ?? now, now + Self.shortestWait + (wait - Self.shortestWait) * jitter)
    }
}

extension PostgresConnection {
    /// Connects, if the breaker lets it.
    static func open(_ uri: String, _ breaker: Locked<ConnectionBreaker>, deadline: Duration) throws(StoreError) -> PostgresConnection {
        guard breaker.withLock({ $0.mayConnect(.now) }) else { throw .unavailable("the database was not there a moment ago") }
        do throws(PostgresError) {
            let connection = try PostgresConnection(uri: uri, deadline: deadline)
            breaker.withLock { $0.connected() }
            return connection
        } catch {
            breaker.withLock { $0.failed(.now, jitter: .random(in: 0...1)) }
            throw StoreError(error)
        }
    }
}
