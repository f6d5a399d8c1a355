import HapaxModel

/// Hands each delivery to every subscriber. Never waits for one, and costs a look at an empty list while there is none.
final class DeliveryHub: Sendable {
    private struct Weak {
        weak var subscription: DeliverySubscription?
    }

    private struct State {
        /// Weak: a subscriber who is gone takes its buffer along.
        var subscribers: [Weak] = []
        var hasEnded = false
    }

    private let state = Locked(State())

    func subscribe(limit: Int) -> DeliverySubscription {
        let subscription = DeliverySubscription(limit: limit)
        let hasEnded = state.withLock { state in
            state.subscribers.append(Weak(subscription: subscription))
            return state.hasEnded
        }
        if hasEnded { subscription.end() }
        return subscription
    }

    /// - Parameter deliveries: Asked for only if somebody listens.
    func publish(_ deliveries: () -> [EventDelivery]) {
        let subscriptions = current
        guard !subscriptions.isEmpty else { return }
        let deliveries = deliveries()
        for subscription in subscriptions { subscription.publish(deliveries) }
    }

    /// What was published before can still be read.
    func end() {
        state.withLock { $0.hasEnded = true }
        for subscription in current { subscription.end() }
    }

    /// Forgets those who are gone.
    private var current: [DeliverySubscription] {
        state.withLock { state in
            state.subscribers.removeAll { $0.subscription == nil }
            return state.subscribers.compactMap(\.subscription)
        }
    }
}

/// One subscriber's end of the hub.
final class DeliverySubscription: Sendable {
    private struct State {
        var buffer: DeliveryBuffer
        var waiters: [CheckedContinuation<EventDelivery?, Never>] = []
        var hasEnded = false
    }

    private let state: Locked<State>

    init(limit: Int) {
        state = Locked(State(buffer: DeliveryBuffer(limit: limit)))
    }

    func publish(_ deliveries: [EventDelivery]) {
        let told = state.withLock { state -> [(CheckedContinuation<EventDelivery?, Never>, EventDelivery)] in
            if state.hasEnded { return [] }
            for delivery in deliveries { state.buffer.append(delivery) }
            var told: [(CheckedContinuation<EventDelivery?, Never>, EventDelivery)] = []
            while let waiter = state.waiters.first, let delivery = state.buffer.take() {
                state.waiters.removeFirst()
                told.append((waiter, delivery))
            }
            return told
        }
        for (waiter, delivery) in told { waiter.resume(returning: delivery) }
    }

    func next() async -> EventDelivery? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let (mayGoOn, delivery) = state.withLock { state -> (Bool, EventDelivery?) in
                    let delivery = state.buffer.take()
                    if delivery == nil && !state.hasEnded {
                        state.waiters.append(continuation)
                        return (false, nil)
                    }
                    return (true, delivery)
                }
                if mayGoOn { continuation.resume(returning: delivery) }
            }
        } onCancel: {
            end()
        }
    }

    func end() {
        let waiting = state.withLock { state in
            state.hasEnded = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiting { waiter.resume(returning: nil) }
    }
}
