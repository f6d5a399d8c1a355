import HapaxModel

/// The values of a property among the events of some days (docs/reading.md, A breakdown).
struct BreakdownQuery: Hashable, Sendable {
    enum Order: String, CaseIterable, Sendable {
        case events, users
    }

    var filter: EventFilter
    var property: String
    var basis = DailyReport.Basis.closed
    var order = Order.events
    var limit = 20
}

struct Breakdown: Sendable {
    struct Row: Sendable {
        /// As ``CanonicalJSON``.
        var value: [UInt8]
        var figures: Series.Figures
    }

    var query: BreakdownQuery
    var frame: AnalysisFrame
    /// The commonest values first; of equal ones that whose JSON is the lesser.
    var rows: [Row] = []
    /// Events without the property.
    var missing = Series.Figures()
    /// All other values together, and those that are too long (``ServerLimits/valueCharacters``).
    var other = Series.Figures()
    var otherValues: Int64 = 0
    var total = Series.Figures()
}

extension BreakdownQuery {
    func answer(_ days: ProjectDays, _ reader: AnalysisReader) async throws(StoreError) -> Breakdown {
        let rows = try await reader.rows(basis)
        let span = days.days(from: days.from, count: days.count)
        var breakdown = Breakdown(query: self, frame: try await reader.frame(days, rows, dependsOn: span))
        let pieces = CountedRows.pieces(span) { _ in 0 }
        let dialect = reader.database.dialect
        let table = try await rows.table(
            pieces, filter.condition(dialect), columns: ", \(dialect.value(property)) AS value", reader.database)
        guard let table else { return breakdown }
        let sorted: StoreSQL = order == .events ? "events DESC" : "users DESC"
        let found = try await reader.ask(
            """
            WITH u AS (SELECT value, distinct_id, count(*) AS events FROM \(table) GROUP BY value, distinct_id),
            g AS (SELECT value, sum(events) AS events, count(*) AS users FROM u GROUP BY value),
            top AS (
              SELECT value, \(dialect.textOfValue("value")) AS text, events, users FROM g
              WHERE value IS NOT NULL AND length(\(dialect.textOfValue("value"))) <= \(ServerLimits.valueCharacters)
              ORDER BY \(sorted), text LIMIT \(limit)
            )
            SELECT 0, text, NULL, events, users FROM top
            UNION ALL SELECT 1, NULL, count(*), sum(events), max(users) FROM g WHERE value IS NULL
            UNION ALL SELECT 2, NULL, (SELECT count(*) FROM g WHERE value IS NOT NULL), sum(events), count(*) FROM (
              SELECT distinct_id, sum(events) AS events FROM u WHERE value IS NOT NULL AND value NOT IN (SELECT value FROM top) GROUP BY distinct_id
            ) AS others
            UNION ALL SELECT 3, NULL, NULL, sum(events), count(*) FROM (SELECT distinct_id, sum(events) AS events FROM u GROUP BY distinct_id) AS users
            """)
        for row in found {
            let figures = Series.Figures(events: try row.sum(3), users: try row.sum(4))
            switch row[0] {
            case "0": breakdown.rows.append(.init(value: CanonicalJSON.text(Array((row[1] ?? "null").utf8)[...]), figures: figures))
            case "1": breakdown.missing = figures
            case "2":
                breakdown.other = figures
                breakdown.otherValues = try row.sum(2)
            default: breakdown.total = figures
            }
        }
        breakdown.otherValues -= Int64(breakdown.rows.count)
        breakdown.rows.sort { left, right in
            let (first, second) = order == .events ? (left.figures.events, right.figures.events) : (left.figures.users, right.figures.users)
            return first != second ? first > second : left.value.lexicographicallyPrecedes(right.value)
        }
        breakdown.frame.isRowsRemoved = try await reader.isRowsRemoved(days, span)
        return breakdown
    }
}
