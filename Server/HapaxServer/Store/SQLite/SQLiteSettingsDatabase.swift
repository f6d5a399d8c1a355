import Foundation
import GRDB
import HapaxModel

/// Projects and keys in the embedded store.
struct SQLiteSettingsDatabase: SettingsDatabase {
    let reader: SQLiteReader
    /// nil beside a running server, whose file nobody else writes to.
    let writer: DatabaseQueue?

    var dialect: ReportDialect { SQLiteReports.dialect }

    func rows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] {
        let (text, arguments) = sql.forSQLite
        return try await reader.read { db in try db.texts(text, arguments) }
    }

    func slowRows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] { try await rows(sql) }

    func note(_ statement: StoreSQL) async throws(StoreError) { _ = try await change([statement]) }

    func change(_ statements: [StoreSQL]) async throws(StoreError) -> [[String?]] {
        guard let writer else { throw .notPermitted }
        do {
            return try await writer.write { db in
                try statements.reduce([]) { _, statement in
                    let (text, arguments) = statement.forSQLite
                    return try db.texts(text, arguments)
                }
            }
        } catch {
            throw SQLiteEventStore.translated(error)
        }
    }
}

extension SQLiteSettingsDatabase {
    /// Deleted content is overwritten at once (``SQLiteEventStore``), and the log is emptied every few seconds.
    func tidy(_ tables: Set<String>) async throws(StoreError) {}

    /// In short transactions, because commits wait for each. The latest row stays as a tombstone, so that its number is not given again.
    func clear(_ buckets: Range<Int32>) async throws(StoreError) {
        guard let writer else { throw .notPermitted }
        let end = Data(EventID.least(of: buckets.upperBound).bytes)
        var next: Data? = Data()
        do {
            while let start = next {
                next = try await writer.write { db in
                    // Ids without a day lie between the others, by chance.
                    let rows = try Row.fetchAll(
                        db,
                        sql: """
                            SELECT row, event_id FROM events WHERE event_id >= ? AND event_id < ? AND hapax_bucket(event_id) >= 0
                              AND row < (SELECT max(row) FROM events) ORDER BY event_id LIMIT \(Tombstone.rowsAtOnce)
                            """, arguments: [start, end])
                    let keys = rows.map { "\($0[0] as Int64)" }[...]
                    let statements = StoredNumbers.remove(dialect.rows(keys), dialect) + ["DELETE FROM events WHERE \(dialect.rows(keys))"]
                    for statement in statements {
                        let (text, arguments) = statement.forSQLite
                        try db.execute(sql: text, arguments: arguments)
                    }
                    return rows.count < Tombstone.rowsAtOnce ? nil : rows.last.map { $0[1] }
                }
            }
        } catch {
            throw SQLiteEventStore.translated(error)
        }
        let latest: StoreSQL =
            "row = (SELECT max(row) FROM events) AND hapax_bucket(event_id) >= 0 AND hapax_bucket(event_id) < \(buckets.upperBound)"
        _ = try await change(StoredNumbers.remove(latest, dialect) + [Tombstone.bury(latest)])
    }
}

extension StoreSQL {
    var forSQLite: (sql: String, arguments: StatementArguments) {
        let (text, values) = rendered { "?\($0)" }
        let arguments: [any DatabaseValueConvertible] = values.map { value in
            switch value {
            case .integer(let number): number
            case .text(let text): text
            case .instant(let milliseconds): milliseconds
            }
        }
        return (text, StatementArguments(arguments))
    }
}

extension Database {
    /// The rows of one statement as texts; NULL is nil.
    func texts(_ sql: String, _ arguments: StatementArguments) throws -> [[String?]] {
        try texts(try makeStatement(sql: sql), arguments)
    }

    func texts(_ statement: Statement, _ arguments: StatementArguments) throws -> [[String?]] {
        try Row.fetchAll(statement, arguments: arguments).map { row in
            row.databaseValues.map(Self.text)
        }
    }

    static func text(_ value: DatabaseValue) -> String? {
        value.isNull ? nil : String.fromDatabaseValue(value) ?? Int64.fromDatabaseValue(value).map { "\($0)" }
    }
}
