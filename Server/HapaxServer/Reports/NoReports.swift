/// What a store has that keeps no reports, such as one that a test made.
package struct NoReports: ReportDatabase {
    package init() {}

    package var dialect: ReportDialect { ReportDialect(isAhead: "false", duration: "NULL", least: "min", milliseconds: { $0 }) }

    package func rows(_ sql: ReportSQL, until deadline: ContinuousClock.Instant) async throws(StoreError) -> [[String?]] { throw .tooHeavy }

    package func rows(_ sql: ReportSQL) async throws(StoreError) -> [[String?]] { throw .tooHeavy }

    package func write(_ statements: [ReportSQL]) async throws(StoreError) {}

    package func settled() async throws(StoreError) -> Int64 { 0 }

    package func received(from: Int64, to: Int64, parts: ReportParts) async throws(StoreError) -> [ReportSQL] { [] }

    package func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) {}
}
