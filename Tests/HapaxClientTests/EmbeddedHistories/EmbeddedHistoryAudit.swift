import HapaxModel

@testable import HapaxClient

/// What was promised in a history, and what there is at its end.
struct EmbeddedHistoryAudit: Sendable {
    /// Reported durable.
    var promised: Set<EventID>
    /// Reported as not taken.
    var refused: Set<EventID>
    /// Purged, or taken back with a copy: nothing is promised any more.
    var excused: Set<EventID>
    /// What the ends of clients reported as lost.
    var lost: Int
    var isDamaged: Bool
    /// Whether a quota may have removed events.
    var discards: Bool
    /// Whether a copy took the queue's place: numbers come again then, and what was counted behind the copy is not (I7).
    var isTakenBack: Bool

    var stored: Set<EventID>
    var deadLetters: Set<EventID>
    /// What the server saw that must not be: other bytes under an id, a number of two events.
    var complaints: [String]
    /// The properties of each `$QueueDamaged`.
    var damage: [String]
    /// Events that had been stored, by reason; of what queue and server know the greater count.
    var dropped: [String: Int64]
    var status: EventClient.Status
    /// Of the last flush, with a server that takes everything.
    var flush: FlushReport
    /// Behind that.
    var holdsMore: Bool

    enum Violation: Hashable {
        /// More than anybody knows of.
        case missing(Int, counted: Int, lost: Int)
        case missingForNoReason(Int)
        case refusedAndThere(Int)
        case unbalanced
        case undelivered
        case complaint(String)
    }

    private var missing: Int { promised.subtracting(stored).subtracting(deadLetters).subtracting(excused).count }

    var violations: [Violation] {
        var violations: [Violation] = isTakenBack ? [] : complaints.map { .complaint($0) }
        if flush.failure != nil || flush.remaining > 0 || holdsMore { violations.append(.undelivered) }
        if !status.isBalanced { violations.append(.unbalanced) }
        let refusedAndThere = refused.intersection(stored.union(deadLetters)).count
        if refusedAndThere > 0 { violations.append(.refusedAndThere(refusedAndThere)) }
        let counted = Int(dropped.values.reduce(0, +))
        // One damaged file is told of without the number that nobody knows.
        let isUnknown = damage.contains { !$0.contains(#""$lost":"#) }
        let isCounted = !isTakenBack || !discards && !isDamaged
        if missing > counted + lost, !isUnknown, isCounted { violations.append(.missing(missing, counted: counted, lost: lost)) }
        if missing > 0, !isDamaged, !discards, lost == 0 { violations.append(.missingForNoReason(missing)) }
        return violations
    }
}

extension EmbeddedHistoryAudit: CustomStringConvertible {
    var description: String {
        "\(promised.count) promised, \(stored.count) stored, \(deadLetters.count) letters, \(missing) missing, \(dropped) dropped, \(damage)"
    }
}
