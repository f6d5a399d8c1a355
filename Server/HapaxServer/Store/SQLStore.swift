import HapaxModel

/// What a statement is for: that decides which connection it uses, and how long it may take.
package enum Purpose: Sendable {
    /// A person's question, in its turn.
    case question(QuestionTurn)
    /// What the server itself has to know within seconds: keys, projects, the horizon, the clock. No list and no search uses this connection. Of events
    /// it must not ask: it does not wait for a month that is being made, and would miss its rows.
    case own
    /// A search through many rows, for an erasure or a figure.
    case search(within: Duration)
    /// Closing days.
    case closing
    /// Changing what all servers share, under the role that owns the tables; a question under it may take as long as there are rows.
    case owner
}

/// The turn of a person's question: a connection that is its own meanwhile, and the time until which it has to be answered.
package struct QuestionTurn: Sendable {
    /// Below ``connections``.
    package var connection = 0
    package var deadline: ContinuousClock.Instant
    /// Whether nobody waits for the answer any more. A question looks a few times a second, and ends then as if its time were over.
    package var hasLeft: @Sendable () -> Bool = { false }

    static let connections = ServerLimits.heavyReads + ServerLimits.exportReads + ServerLimits.dryRuns

    var left: Duration { deadline - .now }

    package init(connection: Int = 0, deadline: ContinuousClock.Instant, hasLeft: @escaping @Sendable () -> Bool = { false }) {
        (self.connection, self.deadline, self.hasLeft) = (connection, deadline, hasLeft)
    }

    /// The same with an earlier end.
    func ending(by other: ContinuousClock.Instant) -> QuestionTurn {
        QuestionTurn(connection: connection, deadline: min(deadline, other), hasLeft: hasLeft)
    }

    /// For who asks one question at a time.
    package init(within time: Duration) { self.init(deadline: .now + time) }
}

/// SQL on what is stored, of every kind but commits and lists of events (``EventReader``): for reports, books, keys, erasures and what is shown of them.
///
/// Closing a day changes nothing but the tables of the reports, and reads only what cannot change any more (``clock()``) unless it is removed, so
/// reading and writing need not be one transaction. What belongs together is read as of one moment.
package protocol SQLStore: Sendable {
    var dialect: Dialect { get }

    /// The rows of each statement, as text, all as of one moment; NULL is nil.
    ///
    /// - Throws: ``StoreError/tooHeavy`` if it takes longer than its purpose may.
    func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]]

    /// A person's question row by row, of as many as there are.
    func each(
        _ sql: StoreSQL, in turn: QuestionTurn, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError)

    /// Runs all statements in one transaction.
    ///
    /// - Returns: The rows of the last statement.
    /// - Throws: ``StoreError/notPermitted`` for a purpose that only reads, and if the server has no role that owns the tables.
    @discardableResult
    func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]]

    /// The same for a change that may turn out to be none: `isMade` says after the statements whether it is one.
    func change(_ statements: [StoreSQL], as purpose: Purpose, isMade: StoreSQL) async throws(StoreError)

    /// The store's clock.
    func clock() async throws(StoreError) -> StoreClock

    /// Conditions that together name the rows received in a span of Unix seconds, each for as many rows as one statement should take.
    ///
    /// - Throws: ``StoreError/tooHeavy`` for a question about too many.
    func received(from: Int64, to: Int64, parts: SpanParts) async throws(StoreError) -> [StoreSQL]

    /// Runs `body` unless another server, or another task of this one, is running one.
    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError)

    /// Gives back the space that changed rows have left in these tables, so that it is not kept in them any more.
    func tidy(_ tables: Set<String>) async throws(StoreError)

    /// Removes the events with ids of some days, below which there are none any more. The horizon is at their end already.
    func clear(_ buckets: Range<Int32>) async throws(StoreError)
}

extension SQLStore {
    package func ask(_ sql: StoreSQL, as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        try await ask([sql], as: purpose).first ?? []
    }

    package func change(_ statements: [StoreSQL], as purpose: Purpose, isMade: StoreSQL) async throws(StoreError) {
        try await change(statements, as: purpose)
    }

    /// See ``StoreClock/settled``.
    package func settled() async throws(StoreError) -> Int64 { try await clock().settled }

    /// Changes as the owner what locks rows that groups lock, too, in whatever order: who collides with a group tries again.
    func changeInTurn(_ statements: [StoreSQL]) async throws(StoreError) -> [[String?]] {
        for _ in 0..<ServerLimits.collisions {
            do throws(StoreError) { return try await change(statements, as: .owner) } catch {
                guard error == .collided else { throw error }
            }
        }
        return try await change(statements, as: .owner)
    }
}

/// Lets one task of this process at a time through. A database's advisory lock belongs to a connection, which all tasks share.
final class ExclusiveTurn: Sendable {
    private let isTaken = Locked(false)

    func run(_ body: () async throws(StoreError) -> Void) async throws(StoreError) {
        let isOurs = isTaken.withLock { taken in
            defer { taken = true }
            return !taken
        }
        guard isOurs else { return }
        defer { isTaken.withLock { $0 = false } }
        try await body()
    }
}

/// How large a part of a span may be.
package enum SpanParts: Sendable {
    /// One part, however long it takes: for the server's own work that only reads.
    case whole
    /// One part, for a person's question: a span with too many rows is refused.
    case question
    /// Small parts, for a transaction that writes: commits may have to wait for it.
    case small
}
