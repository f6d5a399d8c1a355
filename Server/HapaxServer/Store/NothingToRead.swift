import HapaxModel

/// A reader that finds nothing, for stores that only take events, such as those of tests.
package struct NoReader: EventReader {
    package init() {}

    package func event(_ key: EventKey) async throws(StoreError) -> EventRow? { nil }

    package func place(_ key: EventKey) async throws(StoreError) -> EventPosition? { nil }

    package func fingerprints(_ keys: [EventKey]) async throws(StoreError) -> [EventKey: Int64] { [:] }

    package func compare(_ records: [EventRecord]) async throws(StoreError) -> [Bool?] { records.map { _ in false } }

    package func step(_ query: EventQuery, width: Int, until deadline: ContinuousClock.Instant) async throws(StoreError) -> EventStep {
        EventStep(events: [], next: nil, isCut: false)
    }

    package func stepForward(
        _ query: EventQuery, width: inout Int, until deadline: ContinuousClock.Instant
    ) async throws(StoreError) -> ExportStep { ExportStep(events: [], rest: nil) }

    package func countsByName(
        projectID: Int32, received: Range<Int64>, limit: Int, until deadline: ContinuousClock.Instant
    ) async throws(StoreError) -> NameCounts { NameCounts() }

    package func overview() async throws(StoreError) -> StoreOverview {
        StoreOverview(version: "", bytes: 0, isEstimated: false, parts: [], monthsAhead: nil)
    }

    package func close() async {}
}

/// Reports that hold nothing, for the same stores.
package struct NoReports: ReportDatabase {
    package init() {}

    package var dialect: ReportDialect { SQLiteReports.dialect }

    package func rows(_ statements: [StoreSQL], until deadline: ContinuousClock.Instant) async throws(StoreError) -> [[[String?]]] {
        throw .tooHeavy
    }

    package func rows(_ statements: [StoreSQL], within time: Duration) async throws(StoreError) -> [[[String?]]] { throw .tooHeavy }

    package func each(
        _ sql: StoreSQL, until deadline: ContinuousClock.Instant, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) { throw .tooHeavy }

    package func write(_ statements: [StoreSQL]) async throws(StoreError) {}

    package func clock() async throws(StoreError) -> StoreClock { StoreClock(settled: 0, closing: 0) }

    package func received(from: Int64, to: Int64, parts: ReportParts) async throws(StoreError) -> [StoreSQL] { [] }

    package func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) {}
}

/// Settings that hold nothing, for the same stores.
package struct NoSettings: SettingsDatabase {
    package init() {}

    package var dialect: ReportDialect { NoReports().dialect }

    package func rows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] { [] }
    package func slowRows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] { [] }

    package func note(_ statement: StoreSQL) async throws(StoreError) {}

    package func change(_ statements: [StoreSQL]) async throws(StoreError) -> [[String?]] { throw .notPermitted }

    package func tidy(_ tables: Set<String>) async throws(StoreError) {}

    package func clear(_ buckets: Range<Int32>) async throws(StoreError) {}
}
