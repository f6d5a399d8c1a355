/// What goes wrong for a while is logged twice: when it begins and when it is over.
///
/// A value. Times are readings of a monotonic clock.
struct Episodes: Sendable {
    /// What goes wrong, and why; a reason is one of this library's own.
    struct Kind: Hashable, Sendable, Comparable {
        enum Trouble: Int, Hashable, Sendable { case drop, deadLetter }

        var trouble: Trouble
        var reason: String

        static func < (left: Kind, right: Kind) -> Bool { (left.trouble.rawValue, left.reason) < (right.trouble.rawValue, right.reason) }
    }

    private var open: [Kind: (last: Duration, events: Int)] = [:]

    /// It is over when it has not happened for so long.
    static let quietTime: Duration = .seconds(60)

    /// - Returns: Whether it begins with this.
    mutating func happened(_ kind: Kind, events: Int, now: Duration) -> Bool {
        let before = open[kind]
        open[kind] = (now, (before?.events ?? 0) + events)
        return before == nil
    }

    /// - Returns: What is over, with how many events it concerned.
    mutating func ended(now: Duration) -> [(kind: Kind, events: Int)] {
        guard !open.isEmpty else { return [] }
        let over = open.filter { now - $0.value.last >= Self.quietTime }
        for kind in over.keys { open[kind] = nil }
        return over.map { (kind: $0.key, events: $0.value.events) }.sorted { $0.kind < $1.kind }
    }
}
