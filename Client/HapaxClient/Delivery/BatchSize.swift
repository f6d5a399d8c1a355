import HapaxModel

/// How many events one request holds. It grows as long as the link carries them well within the deadline, and shrinks where it does not, or
/// where something between client and server refuses so large a request.
///
/// Learned for the destination, in memory. It has nothing to do with the search for an event that the server refuses
/// (``DeliveryStateMachine``): no event is suspected because a link is slow.
struct BatchSize: Sendable {
    private(set) var events: Int
    private let maximum: Int
    /// Requests that are to be answered before it grows again, since it had to shrink: else every other request would be too large.
    private var patience = 0

    private static let patience = 16

    /// - Parameters:
    ///   - first: Events of the first request.
    ///   - grows: Whether it may become larger than that.
    init(first: Int, grows: Bool) {
        events = max(first, 1)
        maximum = grows ? max(first, EventLimits.maximumEventsPerBatch) : max(first, 1)
    }

    /// For a request with a shorter deadline than usual, as in the background, in proportion (R33).
    func limit(within timeout: Duration, of usual: Duration) -> Int {
        timeout < usual ? max(Int(Double(events) * (timeout / usual)), 1) : events
    }

    /// A request has been answered with a receipt.
    ///
    /// - Parameter wasFull: Whether it held as many events as it could.
    mutating func answered(after time: Duration, within timeout: Duration, wasFull: Bool) {
        if patience > 0 {
            patience -= 1
        } else if wasFull, time <= timeout / 3 {
            events = min(events * 2, maximum)
        }
    }

    /// A request of so many events was too much.
    ///
    /// - Parameter limit: How many it could hold, which is fewer than usual under a shorter deadline.
    /// - Returns: Whether fewer may pass: false for one event alone.
    mutating func wasTooMuch(_ count: Int, of limit: Int) -> Bool {
        guard count > 1 else { return false }
        events = max(count < limit ? count / 2 : events / 2, 1)
        patience = Self.patience
        return true
    }
}
