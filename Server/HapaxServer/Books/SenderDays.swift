import HapaxModel

/// The table `sender_days`: what ``SenderCounts`` counts, by day of arrival (UTC), for ``SenderCounts/days``. It is written every two seconds, not with the events: a
/// server that is killed forgets so much. The rows are the truth (`$via.sdk`).
final class SenderDays: Sendable {
    private let database: any SQLStore
    private let currentTime: @Sendable () -> Int64
    private let counts = Locked(SenderCounts())

    /// - Parameter currentTime: The wall clock in Unix milliseconds.
    init(_ database: any SQLStore, currentTime: @escaping @Sendable () -> Int64) {
        (self.database, self.currentTime) = (database, currentTime)
    }

    func note(_ outcomes: SenderCounts.Outcomes, of source: SenderCounts.Source) { counts.withLock { $0.add(outcomes, of: source) } }

    /// A column for each outcome.
    private static let columns: [(name: String, sql: StoreSQL, outcome: Receipt.Outcome)] = [
        ("stored", "stored", .stored), ("duplicates", "duplicates", .duplicate), ("conflicts", "conflicts", .conflict),
        ("rejected", "rejected", .rejected), ("expired", "expired", .expired), ("retry", "retry", .retry),
    ]

    /// Writes what has come since the last call. What cannot be written now is written with the next call's.
    func write() async throws(StoreError) {
        let counts = counts.withLock { $0.take() }
        guard !counts.isEmpty, let today = day(before: 0), let first = day(before: SenderCounts.days) else { return }
        let statements = counts.map { source, outcomes -> StoreSQL in
            let values = Self.columns.reduce("" as StoreSQL) { "\($0), CAST(\(outcomes[$1.outcome] ?? 0) AS bigint)" }
            let sums = Self.columns.map { "\($0.sql) = sender_days.\($0.sql) + excluded.\($0.sql)" as StoreSQL }
            let known: StoreSQL = "FROM sender_days WHERE project_id = \(source.projectID) AND day = \(today)"
            return """
                INSERT INTO sender_days (project_id, day, via, library\(Self.columns.reduce("" as StoreSQL) { "\($0), \($1.sql)" }))
                SELECT CAST(\(source.projectID) AS integer), CAST(\(today) AS text), CAST(\(source.via) AS text), CASE
                  WHEN EXISTS (SELECT 1 \(known) AND via = \(source.via) AND library = \(source.library))
                    OR (SELECT count(*) \(known)) < \(SenderCounts.maximumSources)
                  THEN CAST(\(source.library) AS text) ELSE CAST(\(SenderCounts.others) AS text) END\(values)
                WHERE true
                ON CONFLICT (project_id, day, via, library) DO UPDATE SET \(sums.dropFirst().reduce(sums[0]) { "\($0), \($1)" })
                """
        }
        do {
            _ = try await database.change(statements + ["DELETE FROM sender_days WHERE day <= \(first)"], as: .own)
        } catch {
            self.counts.withLock { kept in for (source, outcomes) in counts { kept.add(outcomes, of: source) } }
            throw error
        }
    }

    private func day(before days: Int32) -> CalendarDay? {
        CalendarDay(daysSince1970: max(Int32(clamping: currentTime() / 86_400_000) - days, 0))
    }

    // MARK: - Reading

    /// What came from one kind of sender.
    struct Sender: Sendable {
        var via: String
        var library: String
        var (firstDay, lastDay): (String, String)
        /// In the order of the columns.
        var figures: [(name: String, events: Int64)]

        var received: Int64 { figures.reduce(0) { $0 + $1.events } }
    }

    /// The most senders in one answer.
    static let shown = 1_000

    /// - Parameters:
    ///   - from: The first day; nil for 30 days up to today.
    ///   - to: The last day; nil for today.
    func senders(
        of projectID: Int32, from: CalendarDay?, to: CalendarDay?, as purpose: Purpose
    ) async throws(StoreError) -> [Sender] {
        guard let from = from ?? day(before: 29), let to = to ?? day(before: 0) else { return [] }
        let sums = Self.columns.reduce("" as StoreSQL) { "\($0), sum(\($1.sql))" }
        let all = Self.columns.dropFirst().reduce("stored" as StoreSQL) { "\($0) + \($1.sql)" }
        return try await database.ask(
            """
            SELECT via, library, min(day), max(day)\(sums) FROM sender_days
            WHERE project_id = \(projectID) AND day >= \(from) AND day <= \(to)
            GROUP BY via, library ORDER BY sum(\(all)) DESC, via, library LIMIT \(Self.shown)
            """, as: purpose
        ).map { (row) throws(StoreError) in
            var figures: [(String, Int64)] = []
            for (place, column) in Self.columns.enumerated() { figures.append((column.name, try row.number(4 + place))) }
            // The columns are NOT NULL.
            return Sender(via: row[0] ?? "", library: row[1] ?? "", firstDay: row[2] ?? "", lastDay: row[3] ?? "", figures: figures)
        }
    }
}
