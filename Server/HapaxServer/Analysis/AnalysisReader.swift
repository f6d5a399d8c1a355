import HapaxModel

/// Asks a store one question of the analysis.
struct AnalysisReader: Sendable {
    let database: any SQLStore
    /// The zone of a project that has none in the store yet.
    let zones: [Int32: ReportZone]
    let projectID: Int32
    let turn: QuestionTurn

    func ask(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] { try await database.ask(sql, as: .question(turn)) }

    /// - Parameter now: The wall clock in Unix seconds.
    func days(_ span: (from: CalendarDay?, to: CalendarDay?), now: Int64) async throws(StoreError) -> ProjectDays {
        try await ProjectDays(projectID, zone: zones[projectID], span, now: now, database, as: .question(turn))
    }

    func rows(_ basis: DailyReport.Basis) async throws(StoreError) -> CountedRows {
        CountedRows(projectID: projectID, basis: basis, settled: try await database.settled())
    }

    /// - Parameter needed: The days that the figures depend on.
    func frame(_ days: ProjectDays, _ rows: CountedRows, dependsOn needed: [ReportDay]) async throws(StoreError) -> AnalysisFrame {
        let closes = (needed.map(\.closes).max() ?? 0) * 1_000
        let isFinal = rows.basis == .closed && !needed.isEmpty && rows.settled >= closes
        let (starts, ends) = (days[days.from].starts, days[days.to].starts)
        let late = try await ask(
            "SELECT sum(late) FROM report_late WHERE project_id = \(projectID) AND day >= \(days.from) AND day < \(days.to)")
        let ahead = try await ask(CountedRows.ahead(of: projectID, from: starts, to: ends, database.dialect))
        return AnalysisFrame(
            from: days.from, to: days.to, zone: days.zone, basis: rows.basis, asOf: isFinal ? closes : rows.settled, isFinal: isFinal,
            late: try (late.first ?? []).sum(0), ahead: try (ahead.first ?? []).sum(0), isRowsRemoved: try await isRowsRemoved(days, needed)
        )
    }

    /// Asked after the figures: what was removed before them is noted by then.
    func isRowsRemoved(_ days: ProjectDays, _ needed: [ReportDay]) async throws(StoreError) -> Bool {
        try await !ask(Removals.since(needed.map(\.starts).min() ?? days[days.from].starts, projectID)).isEmpty
    }
}
