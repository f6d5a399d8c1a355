import HapaxModel

/// The expressions in which the two databases differ.
package struct ReportDialect: Sendable {
    /// Whether an event is dated more than a day ahead of its arrival; the condition of the index `events_ahead`.
    var isAhead: StoreSQL
    /// The milliseconds of an `$AppEnd`'s `$event_duration`, each rounded half up; NULL if it is no number of seconds in 0…86,400.
    var duration: StoreSQL
    /// The name of the function that gives the lesser of two values.
    var least: StoreSQL
    /// A column with an instant, as Unix milliseconds.
    var milliseconds: @Sendable (StoreSQL) -> StoreSQL
    /// ``EventID/bucket`` of an event, and its month, as in `2024-11`.
    var bucket: StoreSQL
    var monthOfBucket: StoreSQL
    /// Two columns: what ``rows(_:)`` finds a row by, and the table that holds it.
    var rowKey: StoreSQL
    /// A condition for rows by their keys, of which neighbours should lie together.
    var rows: @Sendable (ArraySlice<String>) -> StoreSQL
    var sorted: @Sendable ([String]) -> [String]
    /// Whether a row can be deleted: the embedded store would give the number of its last one again.
    var isRemovable: StoreSQL
    /// A column with an id, as text; and an id as such a column has it, so that it is found by an index.
    var uuidText: @Sendable (StoreSQL) -> StoreSQL
    var uuid: @Sendable (EventID) -> StoreSQL
    /// Narrows a project's events to those since it was made, where the store knows when that was: there are none before, and the index of arrival
    /// finds them.
    var sinceMade: @Sendable (_ projectID: Int32) -> StoreSQL
    /// What locks the rows of a SELECT; nothing where there is one writer.
    var lock: StoreSQL
    /// Sets of numbers (``SequenceSet``): an aggregate of ranges from their first and last, the union of two (with ``StoredNumbers/maximumRanges``
    /// at most), the difference of two, and one as text.
    var ranges: @Sendable (StoreSQL, StoreSQL) -> StoreSQL
    var union: @Sendable (StoreSQL, StoreSQL) -> StoreSQL
    var minus: @Sendable (StoreSQL, StoreSQL) -> StoreSQL
    var text: @Sendable (StoreSQL) -> StoreSQL
    /// The value of a property (``PropertyLookup``), or NULL; one of ``CanonicalJSON`` to compare it with; and one as its text.
    var value: @Sendable (String) -> StoreSQL
    var valueOf: @Sendable (String) -> StoreSQL
    var textOfValue: @Sendable (StoreSQL) -> StoreSQL
    /// The property `$anonymous_id` as text, or NULL.
    var anonymousID: StoreSQL
    /// The present, which is the store's own where it has a clock; else the given Unix milliseconds.
    var now: @Sendable (Int64) -> StoreSQL
}

/// What reports need of a store.
///
/// Closing a day changes nothing but the tables of the reports, and reads only what cannot change any more (``clock()``) unless it is removed, so
/// reading and writing need not be one transaction. What belongs together is read as of one moment.
package protocol ReportDatabase: Sendable {
    var dialect: ReportDialect { get }

    /// The rows of each statement, as text, all as of one moment, on a connection for people's questions; NULL is nil.
    ///
    /// - Throws: ``StoreError/tooHeavy`` if it takes longer.
    func rows(_ statements: [StoreSQL], until deadline: ContinuousClock.Instant) async throws(StoreError) -> [[[String?]]]

    /// The same for the server's own work, on a connection that people's questions do not wait for.
    func rows(_ statements: [StoreSQL], within time: Duration) async throws(StoreError) -> [[[String?]]]

    /// A person's question row by row, of as many as there are.
    func each(
        _ sql: StoreSQL, until deadline: ContinuousClock.Instant, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError)

    /// Runs all statements in one transaction.
    func write(_ statements: [StoreSQL]) async throws(StoreError)

    /// The store's clock.
    func clock() async throws(StoreError) -> StoreClock

    /// Conditions that together name the rows received in a span of Unix seconds, each for as many rows as one statement should take.
    ///
    /// - Throws: ``StoreError/tooHeavy`` for a question about too many.
    func received(from: Int64, to: Int64, parts: ReportParts) async throws(StoreError) -> [StoreSQL]

    /// Runs `body` unless another server, or another task of this one, is running one.
    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError)
}

extension ReportDatabase {
    package func rows(_ sql: StoreSQL, until deadline: ContinuousClock.Instant) async throws(StoreError) -> [[String?]] {
        try await rows([sql], until: deadline).first ?? []
    }

    /// See ``rows(_:within:)``; as long as it takes.
    package func rows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] {
        try await rows([sql], within: ServerLimits.ownWork).first ?? []
    }

    /// See ``StoreClock/settled``.
    package func settled() async throws(StoreError) -> Int64 { try await clock().settled }
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
package enum ReportParts: Sendable {
    /// One part, however long it takes: for the server's own work that only reads.
    case whole
    /// One part, for a person's question: a span with too many rows is refused.
    case question
    /// Small parts, for a transaction that writes: commits may have to wait for it.
    case small
}
