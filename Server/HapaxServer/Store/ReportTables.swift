/// The tables of the reports that have rows of projects, the same in both stores.
enum ReportTables {
    static let all = [
        "report_zones", "report_bounds", "report_progress", "report_days", "report_events", "report_users", "report_returns", "report_late",
    ]

    /// Part of a migration: never edited.
    static let deleteOrphans = [
        "report_zones", "report_bounds", "report_progress", "report_days", "report_events", "report_users", "report_returns", "report_late",
    ].map { "DELETE FROM \($0) WHERE project_id NOT IN (SELECT project_id FROM projects);" }.joined(separator: "\n")
}
