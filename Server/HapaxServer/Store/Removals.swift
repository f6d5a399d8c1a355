import HapaxModel

/// Up to which instant events have been removed, by project: figures of a span that begins before it may have changed. Days of ids do not tell:
/// a derived id has another day than its event's `time`.
enum Removals {
    /// Notes that events are about to go.
    ///
    /// - Parameter rows: A table, or a part of one with its WHERE and without tombstones.
    static func note(_ rows: StoreSQL) -> StoreSQL {
        """
        INSERT INTO removals (project_id, latest) SELECT project_id, max(time) FROM \(rows) GROUP BY project_id
        ON CONFLICT (project_id) DO UPDATE SET
          latest = CASE WHEN excluded.latest > removals.latest THEN excluded.latest ELSE removals.latest END
        """
    }

    /// Whether events may be missing from a span that begins at an instant, in Unix seconds.
    static func since(_ starts: Int64, _ projectID: Int32) -> StoreSQL {
        let first = CalendarDay(daysSince1970: Int32(clamping: starts / 86_400)) ?? .first
        return """
            SELECT 1 FROM removals WHERE project_id = \(projectID) AND latest >= \(instant: starts)
            UNION ALL SELECT 1 FROM retention WHERE horizon > \(Int64(first.daysSince1970))
            """
    }

    /// What changes whenever events of a project have been removed: an answer from before is not to be given again.
    static func state(_ projectID: Int32) -> StoreSQL {
        """
        SELECT (SELECT count(*) FROM erasures WHERE project_id = \(projectID) AND done_at IS NOT NULL), cleared FROM retention
        """
    }
}
