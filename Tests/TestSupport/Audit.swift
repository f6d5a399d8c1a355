import HapaxModel

/// Compares what clients were told with what the store holds, once all queues are drained, and lists what breaks a promise.
///
/// A value: tests collect the facts, from files, processes and SQL, and this decides. An empty list is the proof.
package struct Audit: Sendable {
    /// An event as a client or the store knows it.
    package struct Sighting: Hashable, Sendable {
        package var project: String
        package var id: EventID
        package var install: EventID?
        package var sequence: Int64?

        package init(project: String = "demo", id: EventID, install: EventID? = nil, sequence: Int64? = nil) {
            self.project = project
            self.id = id
            self.install = install
            self.sequence = sequence
        }
    }

    /// A durable return of a client: from then on the event must not be lost (I1, I6).
    package typealias Report = Sighting

    /// A row of the store.
    package typealias Row = Sighting

    /// An event that a client keeps aside because it was refused for good.
    package struct DeadLetter: Hashable, Sendable {
        package var id: EventID
        package var install: EventID?
        package var sequence: Int64?
        package var reason: String

        package init(id: EventID, install: EventID? = nil, sequence: Int64? = nil, reason: String) {
            self.id = id
            self.install = install
            self.sequence = sequence
            self.reason = reason
        }

        /// Another content that was refused for an id that is stored; it does not count among the dead (I1).
        var isConflict: Bool { reason == Receipt.Outcome.conflict.rawValue }
    }

    /// A client's own account: tracked = stored + dead + queued (I12).
    package struct Books: Hashable, Sendable {
        package var install: EventID
        package var tracked: Int
        package var stored: Int
        package var dead: Int
        package var queued: Int

        package init(install: EventID, tracked: Int, stored: Int, dead: Int, queued: Int) {
            self.install = install
            self.tracked = tracked
            self.stored = stored
            self.dead = dead
            self.queued = queued
        }
    }

    /// Events, as install and sequence, in the order in which something saw them: the lines of one thread, first uploads. Within each install the
    /// sequence must rise.
    package struct Order: Sendable {
        package var name: String
        package var events: [(EventID, Int64)]

        package init(_ name: String, _ events: [(EventID, Int64)]) {
            self.name = name
            self.events = events
        }
    }

    package var reports: [Report] = []
    package var rows: [Row] = []
    package var deadLetters: [DeadLetter] = []
    package var books: [Books] = []
    package var orders: [Order] = []

    /// Whether events may be stored of which nobody was told: a client that is killed between its commit and its report leaves some. They
    /// must still belong to an install that reported something.
    package var mayHoldUnreported = false

    package init() {}

    /// Everything that breaks a promise, in a fixed order; empty if all is well.
    package var violations: [Violation] {
        lost + storedTwice + inBothPlaces + withoutReason + unexpected + changed + brokenSequences + inversions + wrongBooks
    }
}
