import Foundation
import GRDB
import HapaxModel

/// The reports in the embedded store. Reads do not hold up commits, and each write is short, because commits wait for it.
final class SQLiteReports: ReportDatabase {
    private let reader: SQLiteReader
    private let writer: DatabaseQueue
    private let clocks: SQLiteClock
    private let turn = ExclusiveTurn()

    /// Rows that one writing transaction covers, which takes some 20 ms.
    private static let foldedRows: Int64 = 20_000
    /// Rows that one question may scan, about as many as ten seconds allow.
    private static let readRows: Int64 = 8_000_000

    init(reader: SQLiteReader, writer: DatabaseQueue, clock: SQLiteClock) { (self.reader, self.writer, clocks) = (reader, writer, clock) }

    var dialect: ReportDialect { Self.dialect }

    static let dialect = ReportDialect(
        isAhead: "time - received_at > 86400000", duration: "hapax_session_ms(properties)", least: "min", milliseconds: { $0 },
        bucket: "hapax_bucket(event_id)",
        monthOfBucket: "strftime('%Y-%m', hapax_bucket(event_id) * 86400, 'unixepoch')", rowKey: "row, NULL",
        rows: { "row IN (SELECT value FROM json_each(\("[\($0.joined(separator: ","))]")))" }, sorted: { $0 },
        isRemovable: "row < (SELECT max(row) FROM events)",
        uuidText: { id in
            // Of NULL `hex` makes a text.
            let parts = [(1, 8), (9, 4), (13, 4), (17, 4), (21, 12)].map { "lower(substr(hex(\(id)), \($0.0), \($0.1)))" as StoreSQL }
            return "CASE WHEN \(id) IS NOT NULL THEN \(parts.dropFirst().reduce(parts[0]) { "\($0) || '-' || \($1)" }) END"
        }, uuid: { StoreSQL(stringLiteral: "x'\($0.description.filter { $0 != "-" })'") }, sinceMade: { _ in "" }, lock: "",
        ranges: { "hapax_ranges(\($0), \($1))" }, union: { "hapax_union(\($0), \($1))" },
        minus: { "hapax_minus(\($0), \($1))" },
        text: { $0 }, value: { "hapax_value(properties, \($0))" }, valueOf: { "\($0)" }, textOfValue: { $0 },
        anonymousID: """
            CASE WHEN json_type(properties, '$."$anonymous_id"') = 'text' THEN json_extract(properties, '$."$anonymous_id"') END
            """,
        now: { "\(milliseconds: $0)" })

    func rows(_ statements: [StoreSQL], until deadline: ContinuousClock.Instant) async throws(StoreError) -> [[[String?]]] {
        // One look of the reader is one transaction.
        try await reader.read(until: deadline) { db in
            try statements.map { statement in
                let (text, arguments) = statement.forSQLite
                return try db.texts(text, arguments)
            }
        }
    }

    func rows(_ statements: [StoreSQL], within time: Duration) async throws(StoreError) -> [[[String?]]] {
        try await rows(statements, until: .now + time)
    }

    func each(
        _ sql: StoreSQL, until deadline: ContinuousClock.Instant, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) {
        let (text, arguments) = sql.forSQLite
        try await reader.read(until: deadline) { db in
            let found = try Row.fetchCursor(db, sql: text, arguments: arguments)
            while let next = try found.next() { row(next.databaseValues.map(Database.text)) }
        }
    }

    func write(_ statements: [StoreSQL]) async throws(StoreError) {
        do {
            try await writer.write { db in
                for statement in statements {
                    let (text, arguments) = statement.forSQLite
                    try db.execute(sql: text, arguments: arguments)
                }
            }
        } catch {
            throw SQLiteEventStore.translated(error)
        }
    }

    /// Waits for the commits before it; those after it are not received earlier.
    func clock() async throws(StoreError) -> StoreClock {
        do { return try await writer.write { [clocks] _ in clocks.read() } } catch { throw SQLiteEventStore.translated(error) }
    }

    /// Rows are numbered by arrival, so each condition is a span of row numbers.
    func received(from: Int64, to: Int64, parts: ReportParts) async throws(StoreError) -> [StoreSQL] {
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
}
