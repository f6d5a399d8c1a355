/// When the log is to say that the server refuses a client for a reason that time does not change: at first, then once an hour, and once when it
/// is over.
///
/// A value. Times are readings of a monotonic clock.
struct RefusalEpisode: Sendable {
    /// Each kind of refusal since the server last accepted something, and when it was last said.
    private var said: [DeliveryFailure: Duration] = [:]

    static let interval: Duration = .seconds(3_600)

    /// - Returns: Whether it is to be said.
    mutating func refused(_ failure: DeliveryFailure, now: Duration) -> Bool {
        if let last = said[failure], now - last < Self.interval { return false }
        said[failure] = now
        return true
    }

    /// - Returns: Whether this ends one.
    mutating func accepted() -> Bool {
        defer { said = [:] }
        return !said.isEmpty
    }
}
