import HapaxModel
import HapaxServer

/// A reader that finds nothing, for stores that only take events.
package struct NoReader: EventReader {
    package init() {}

    package func event(_ key: EventKey) async throws(StoreError) -> EventRow? { nil }

    package func place(_ key: EventKey) async throws(StoreError) -> EventPosition? { nil }

    package func fingerprints(_ keys: [EventKey], in turn: QuestionTurn) async throws(StoreError) -> [EventKey: Int64] { [:] }

    package func compare(_ records: [EventRecord], in turn: QuestionTurn) async throws(StoreError) -> [Bool?] { records.map { _ in false } }

    package func step(_ query: EventQuery, width: Int, in turn: QuestionTurn) async throws(StoreError) -> EventStep {
        EventStep(events: [], next: nil, isCut: false)
    }

    package func stepForward(
        _ query: EventQuery, width: inout Int, in turn: QuestionTurn
    ) async throws(StoreError) -> ExportStep { ExportStep(events: [], rest: nil) }

    package func countsByName(
        projectID: Int32, received: Range<Int64>, limit: Int, in turn: QuestionTurn
    ) async throws(StoreError) -> NameCounts { NameCounts() }

    package func overview() async throws(StoreError) -> StoreOverview { throw .tooHeavy }

    package func close() async {}
}

/// A database that holds nothing, for the same stores.
package struct NoSQL: SQLStore {
    package init() {}

    package var dialect: Dialect { .sqlite }

    package func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]] {
        guard case .own = purpose else { throw .tooHeavy }
        return statements.map { _ in [] }
    }

    package func each(
        _ sql: StoreSQL, in turn: QuestionTurn, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) { throw .tooHeavy }

    package func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        if case .owner = purpose { throw .notPermitted }
        return []
    }

    package func clock() async throws(StoreError) -> StoreClock { StoreClock(settled: 0, closing: 0) }

    package func received(from: Int64, to: Int64, parts: SpanParts) async throws(StoreError) -> [StoreSQL] { [] }

    package func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) {}

    package func tidy(_ tables: Set<String>) async throws(StoreError) {}

    package func clear(_ buckets: Range<Int32>) async throws(StoreError) {}
}
