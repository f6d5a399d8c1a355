/// What one subscriber has not taken yet: the newest deliveries up to a limit, and how many older ones had to go.
struct DeliveryBuffer: Sendable {
    private(set) var deliveries: [EventDelivery] = []
    /// Where the oldest one is: room before it is given back once it is as much as the limit.
    private var first = 0
    private var missed = 0
    private let limit: Int

    init(limit: Int) {
        self.limit = max(limit, 1)
    }

    mutating func append(_ delivery: EventDelivery) {
        if deliveries.count - first == limit {
            first += 1
            missed += 1
        }
        if first >= limit {
            deliveries.removeFirst(first)
            first = 0
        }
        deliveries.append(delivery)
    }

    /// In order; what is missing is older than all that is left.
    mutating func take() -> EventDelivery? {
        if missed > 0 {
            defer { missed = 0 }
            return .missed(missed)
        }
        guard first < deliveries.count else { return nil }
        defer { first += 1 }
        return deliveries[first]
    }
}
