/// Those who asked for a pass that goes only as far as they say, request by request. The latest of them is asked.
struct RequestLimits {
    typealias Number = Int

    private struct Limit {
        let number: Number
        let ask: @Sendable () -> RequestPermission
        /// What was said before the pass began, about its first request.
        var first: RequestPermission?
    }

    private var limits: [Limit] = []
    private var added = 0

    var isEmpty: Bool { limits.isEmpty }
    var count: Int { limits.count }

    mutating func add(first: RequestPermission?, _ ask: @escaping @Sendable () -> RequestPermission) -> Number {
        added += 1
        limits.append(Limit(number: added, ask: ask, first: first))
        return added
    }

    /// - Returns: What was said before the pass began, if no request has been made on it.
    @discardableResult
    mutating func remove(_ number: Number) -> RequestPermission? {
        let first = limits.first { $0.number == number }?.first
        limits.removeAll { $0.number == number }
        return first
    }

    /// - Returns: What is said about the next request, and by whom; nil if nobody limits it.
    mutating func permission() -> (RequestPermission, by: Number)? {
        guard let limit = limits.last else { return nil }
        limits[limits.endIndex - 1].first = nil
        return (limit.first ?? limit.ask(), limit.number)
    }
}
