import HapaxModel

/// What becomes of a client's events, as it happens, for one subscriber.
///
/// A subscription begins when it is asked for (``EventClient/deliveries(bufferLimit:)``), and ends when the client is shut down or released,
/// after what was reported before; when the task that iterates is cancelled; and when nobody holds the sequence or its iterator any more.
/// Iterators of one sequence share what comes: ask the client for another sequence for another subscriber.
public struct EventDeliveries: AsyncSequence, Sendable {
    /// What is reported about one event, or about several.
    public typealias Element = EventDelivery

    /// Deliveries that wait for a subscriber who does not say another limit.
    public static let defaultBufferLimit = 1_024

    let subscription: DeliverySubscription

    /// Reads on where the last iterator of this sequence stopped.
    public func makeAsyncIterator() -> Iterator {
        Iterator(subscription: subscription)
    }

    /// Reads a subscription, one delivery after the other.
    public struct Iterator: AsyncIteratorProtocol {
        let subscription: DeliverySubscription

        /// Waits for the next delivery.
        ///
        /// - Returns: nil when the subscription has ended.
        public mutating func next() async -> EventDelivery? {
            await subscription.next()
        }
    }
}
