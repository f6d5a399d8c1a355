import Foundation
import GRDB
import HapaxModel

/// SQL in the embedded store. Reads do not hold up commits, and each write is short, because commits wait for it.
final class SQLiteSQLStore: SQLStore {
    private let reader: SQLiteReader
    /// nil beside a running server, whose file nobody else writes to.
    private let server: (writer: DatabaseQueue, clock: SQLiteClock)?
    private let turn = ExclusiveTurn()

    /// Rows that one writing transaction covers, which takes some 20 ms.
    private static let foldedRows: Int64 = 20_000
    /// Rows that one question may scan, about as many as ten seconds allow.
    private static let readRows: Int64 = 8_000_000

    init(reader: SQLiteReader, server: (writer: DatabaseQueue, clock: SQLiteClock)? = nil) { (self.reader, self.server) = (reader, server) }

    var dialect: Dialect { .sqlite }

    func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]] {
        // One look of the reader is one transaction.
        let look: @Sendable (Database) throws -> [[[String?]]] = { db in try statements.map { try db.texts($0) } }
        switch purpose {
        case .question(let turn): return try await reader.read(in: turn, look)
        case .search(let time): return try await reader.read(in: QuestionTurn(within: time), look)
        case .closing: return try await reader.read(in: QuestionTurn(within: ServerLimits.ownWork), look)
        case .own, .owner: return try await reader.read(look)
        }
    }

    func each(
        _ sql: StoreSQL, in turn: QuestionTurn, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) {
        let (text, arguments) = sql.forSQLite
        try await reader.read(in: turn) { db in
            let found = try Row.fetchCursor(db, sql: text, arguments: arguments)
            while let next = try found.next() { row(next.databaseValues.map(Database.text)) }
        }
    }

    func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        try await write { db in try statements.reduce([]) { _, statement in try db.texts(statement) } }
    }

    private func write<Value: Sendable>(_ body: @escaping @Sendable (Database) throws -> Value) async throws(StoreError) -> Value {
        guard let server else { throw .notPermitted }
        do { return try await server.writer.write(body) } catch { throw SQLiteEventStore.translated(error) }
    }

    /// Waits for the commits before it; those after it are not received earlier.
    func clock() async throws(StoreError) -> StoreClock {
        guard let clock = server?.clock else { throw .notPermitted }
        return try await write { db in
            clock.accept(try Int64.fetchOne(db, sql: "SELECT accepted FROM clock") ?? 0)
            return clock.read()
        }
    }

    /// Rows are numbered by arrival, so each condition is a span of row numbers.
    func received(from: Int64, to: Int64, parts: SpanParts) async throws(StoreError) -> [StoreSQL] {
        guard from < to else { return [] }
        let rows = try await reader.rows(receivedFrom: from, to: to)
        let size: Int64
        switch parts {
        case .small: size = Self.foldedRows
        case .whole, .question:
            size = max(rows.upperBound - rows.lowerBound, 1)
            if parts == .question, size > Self.readRows { throw .tooHeavy }
        }
        return stride(from: rows.lowerBound, to: rows.upperBound, by: Int64.Stride(size)).map { first in
            "row >= \(first) AND row < \(min(first + size, rows.upperBound))"
        }
    }

    /// The file has one server, of which several tasks may ask.
    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) { try await turn.run(body) }

    /// Deleted content is overwritten at once (``SQLiteEventStore``), and the log is emptied every few seconds.
    func tidy(_ tables: Set<String>) async throws(StoreError) {}

    /// In short transactions, because commits wait for each. The latest row stays as a tombstone, so that its number is not given again.
    func clear(_ buckets: Range<Int32>) async throws(StoreError) {
        let end = Data(EventID.least(of: buckets.upperBound).bytes)
        var next: Data? = Data()
        while let start = next {
            next = try await write { [dialect] db in
                // Ids without a day lie between the others, by chance.
                let rows = try Row.fetchAll(
                    db,
                    sql: """
                        SELECT row, event_id FROM events WHERE event_id >= ? AND event_id < ? AND hapax_bucket(event_id) >= 0
                          AND row < (SELECT max(row) FROM events) ORDER BY event_id LIMIT \(Tombstone.rowsAtOnce)
                        """, arguments: [start, end])
                let keys = rows.map { "\($0[0] as Int64)" }[...]
                let statements = StoredNumbers.remove(dialect.rows(keys), dialect) + ["DELETE FROM events WHERE \(dialect.rows(keys))"]
                for statement in statements { _ = try db.texts(statement) }
                return rows.count < Tombstone.rowsAtOnce ? nil : rows.last.map { $0[1] }
            }
        }
        let latest: StoreSQL =
            "row = (SELECT max(row) FROM events) AND hapax_bucket(event_id) >= 0 AND hapax_bucket(event_id) < \(buckets.upperBound)"
        _ = try await change(StoredNumbers.remove(latest, dialect) + [Tombstone.bury(latest)], as: .owner)
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
    func texts(_ sql: StoreSQL) throws -> [[String?]] {
        let (text, arguments) = sql.forSQLite
        return try texts(text, arguments)
    }

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
