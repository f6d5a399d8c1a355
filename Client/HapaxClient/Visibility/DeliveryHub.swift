import HapaxModel

/// Hands each delivery to every subscriber. Never waits for one, and costs a look at an empty list while there is none.
final class DeliveryHub: Sendable {
    private struct Weak {
        weak var subscription: DeliverySubscription?
    }

    private struct State {
        /// Weak: a subscriber that ends takes its buffer along.
        var subscribers: [Weak] = []
        var hasEnded = false
    }

    private let state = Locked(State())

    /// - Parameter scope: What is reported to it.
    func subscribe(limit: Int, scope: DeliveryScope = .all) -> DeliverySubscription {
        let subscription = DeliverySubscription(limit: limit, scope: scope)
        let hasEnded = state.withLock { state in
            state.subscribers.append(Weak(subscription: subscription))
            return state.hasEnded
        }
        if hasEnded { subscription.end() }
        return subscription
    }

    /// - Parameters:
    ///   - scope: Whom it concerns: all, or also those who want to know only of what this client took itself.
    ///   - deliveries: Asked for only if somebody listens.
    func publish(_ scope: DeliveryScope = .own, _ deliveries: () -> [EventDelivery]) {
        let subscriptions = current.filter { $0.scope == .all || scope == .own }
        guard !subscriptions.isEmpty else { return }
        let deliveries = deliveries()
        for subscription in subscriptions { subscription.publish(deliveries) }
    }

    /// What was published before can still be read.
    func end() {
        state.withLock { $0.hasEnded = true }
        for subscription in current { subscription.end() }
    }

    /// Forgets those that have ended.
    private var current: [DeliverySubscription] {
        state.withLock { state in
            state.subscribers.removeAll { $0.subscription == nil }
            return state.subscribers.compactMap(\.subscription)
        }
    }
}

/// Which events deliveries are of.
enum DeliveryScope: Sendable {
    /// Also those of other clients' queues and of files that were set aside: an id can be another event's there.
    case all
    /// Only those that this client took, now or in an earlier run on its queue.
    case own
}

/// One subscriber's end of the hub.
final class DeliverySubscription: Sendable {
    private struct State {
        var buffer: DeliveryBuffer
        var waiters: [CheckedContinuation<EventDelivery?, Never>] = []
        var hasEnded = false
    }

    let scope: DeliveryScope
    private let state: Locked<State>

    init(limit: Int, scope: DeliveryScope = .all) {
        self.scope = scope
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
