import HapaxModel

/// The table `derived_ids`: how many events with derived ids came with write keys, by project, day, key (0: of the settings) and event's name, for
/// some days. Only a project that takes everybody's is counted; see ``DerivedIDCounts`` for its limits.
extension Registry {
    /// Events with derived ids that came with a write key, in the last days.
    package struct DerivedEvents: Sendable {
        package var name: String
        /// nil for a key of the settings.
        package var keyID: Int32?
        package var events: Int64
        package var lastDay: String
    }

    /// What a project would refuse if it took derived ids from server keys only: what came in the last 14 days, most first.
    package func derivedEvents(of project: Project, now: Int64) async throws(StoreError) -> [DerivedEvents] {
        try await database.ask(
            """
            SELECT event, key_id, sum(count), max(day) FROM (
              SELECT event, key_id, count, day FROM derived_ids WHERE project_id = \(project.id) AND day > \(Self.firstDay(now))
              LIMIT \(DerivedIDCounts.readRows)
            ) AS d GROUP BY event, key_id ORDER BY sum(count) DESC, event, key_id LIMIT \(DerivedIDCounts.maximumSources)
            """, as: .own
        ).map { (row) throws(StoreError) in
            let keyID = Int32(clamping: try row.number(1))
            // The columns are NOT NULL.
            return DerivedEvents(
                name: row[0] ?? "", keyID: keyID == 0 ? nil : keyID, events: try row.number(2), lastDay: row[3] ?? "")
        }
    }

    private static func firstDay(_ now: Int64) -> String {
        CalendarDay(daysSince1970: max(Int32(clamping: now / 86_400_000) - DerivedIDCounts.days, 0))?.description ?? ""
    }

    func note(_ counts: [DerivedIDCounts.Source: Int64], on day: CalendarDay) async throws(StoreError) {
        let rows = counts.map { source, count -> StoreSQL in
            """
            (CAST(\(source.projectID) AS integer), CAST(\(day) AS text), CAST(\(source.keyID ?? 0) AS integer), CAST(\(source.name) AS text), \
            CAST(\(count) AS bigint))
            """
        }
        guard let first = rows.first else { return }
        // The rows of a project's day are counted up to the limit, and no further.
        _ = try await database.change(
            [
                """
                WITH n (project_id, day, key_id, event, count) AS (VALUES \(rows.dropFirst().reduce(first) { "\($0), \($1)" })),
                named AS (
                  SELECT n.project_id, n.day, n.key_id, n.count, CASE WHEN k.event IS NOT NULL OR (
                    SELECT count(*) FROM (
                      SELECT 1 FROM derived_ids o WHERE o.project_id = n.project_id AND o.day = n.day LIMIT \(DerivedIDCounts.maximumSources)
                    ) AS c) + row_number() OVER (PARTITION BY n.project_id, k.event IS NULL ORDER BY n.count DESC, n.event)
                    <= \(DerivedIDCounts.maximumSources) THEN n.event ELSE '' END AS event
                  FROM n LEFT JOIN derived_ids k
                    ON k.project_id = n.project_id AND k.day = n.day AND k.key_id = n.key_id AND k.event = n.event
                )
                INSERT INTO derived_ids (project_id, day, key_id, event, count)
                SELECT project_id, day, key_id, event, sum(count) FROM named WHERE true GROUP BY project_id, day, key_id, event
                ON CONFLICT (project_id, day, key_id, event) DO UPDATE SET count = derived_ids.count + excluded.count
                """
            ], as: .own)
        _ = try await database.change(
            ["DELETE FROM derived_ids WHERE day <= \(Self.firstDay(Int64(day.daysSince1970) * 86_400_000))"], as: .own)
    }
}
