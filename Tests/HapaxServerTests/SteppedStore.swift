import HapaxModel

@testable import HapaxServer

/// A store where something happens between two statements, and whose days close by the test's clock.
struct SteppedStore: SQLStore {
    let base: any SQLStore
    /// Unix seconds; nil for the store's own clock.
    var now: Int64?
    var before: @Sendable (Purpose) async throws(StoreError) -> Void = { (_) throws(StoreError) in }
    /// Runs behind each statement of a question.
    var after: @Sendable (StoreSQL) async throws(StoreError) -> Void = { (_) throws(StoreError) in }
    var beforeChange: @Sendable () async -> Void = {}
    /// Answers statements that belong together as of one moment each: a control.
    var isTorn = false

    var dialect: Dialect { base.dialect }

    func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]] {
        try await before(purpose)
        var rows: [[[String?]]] = []
        for part in isTorn ? statements.map({ [$0] }) : [statements] {
            rows += try await base.ask(part, as: purpose)
            for statement in part { try await after(statement) }
        }
        return rows
    }

    func each(
        _ sql: StoreSQL, in turn: QuestionTurn, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) { try await base.each(sql, in: turn, row) }

    func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        await beforeChange()
        return try await base.change(statements, as: purpose)
    }

    func clock() async throws(StoreError) -> StoreClock {
        var clock = try await base.clock()
        // The test's clock is believed, though the store's own is months away from it.
        if let now { (clock.settled, clock.closing) = (min(clock.settled, now * 1_000), now * 1_000) }
        return clock
    }

    func received(from: Int64, to: Int64, parts: SpanParts) async throws(StoreError) -> [StoreSQL] {
        try await base.received(from: from, to: to, parts: parts)
    }

    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) { try await base.exclusively(body) }
    func tidy(_ tables: Set<String>) async throws(StoreError) { try await base.tidy(tables) }
    func clear(_ buckets: Range<Int32>) async throws(StoreError) { try await base.clear(buckets) }
}
