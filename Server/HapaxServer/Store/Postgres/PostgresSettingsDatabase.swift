import HapaxModel

/// Projects and keys in PostgreSQL: read in the session for short questions, changed in one of the admin role.
struct PostgresSettingsDatabase: SettingsDatabase {
    let administration: PostgresAdministration
    let changes: PostgresUpkeep
    let upkeep: PostgresUpkeep

    var dialect: ReportDialect { PostgresReports.dialect }

    func rows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] {
        let (text, values) = sql.forPostgres
        return try await administration.query(text, values)
    }

    func slowRows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] { try await upkeep.rows(sql.forPostgres) }

    func note(_ statement: StoreSQL) async throws(StoreError) {
        let (text, values) = statement.forPostgres
        _ = try await administration.query(text, values, isRepeatable: false)
    }

    func change(_ statements: [StoreSQL]) async throws(StoreError) -> [[String?]] {
        try await changes.change(statements.map(\.forPostgres))
    }

    func tidy(_ tables: Set<String>) async throws(StoreError) { try await upkeep.vacuum(tables.sorted()) }

    func clear(_ buckets: Range<Int32>) async throws(StoreError) { try await upkeep.clear(buckets) }
}

extension StoreSQL {
    var forPostgres: (sql: String, parameters: [String]) {
        let (text, values) = rendered { "$\($0)" }
        let parameters = values.map { value in
            switch value {
            case .integer(let number): "\(number)"
            case .text(let text): text
            case .instant(let milliseconds): Timestamp(clampingUnixMilliseconds: milliseconds).description
            }
        }
        return (text, parameters)
    }
}
