import HapaxModel

/// What every answer of the analysis says in addition to its figures.
struct AnalysisFrame: Sendable {
    var from: CalendarDay
    var to: CalendarDay
    /// The project's zone today.
    var zone: ReportZone
    var basis: DailyReport.Basis
    /// Unix milliseconds: the answer holds what was received before this instant, and depends on nothing later.
    var asOf: Int64
    /// Whether the figures cannot change any more unless rows are removed.
    var isFinal: Bool
    /// Events of these days, of whatever name, that came after their day had closed, as far as they have been counted.
    var late: Int64
    /// Events that are dated to these days, and came more than a day earlier.
    var ahead: Int64
    /// Whether rows that count may have been removed: a user was erased, or the days are older than what is kept.
    var isRowsRemoved: Bool

    /// - Parameter query: The members of the question that only it has.
    func write(to writer: inout JSONWriter, query: (inout JSONWriter) -> Void, warnings: [StaticString] = []) {
        writer.member("query") { writer in
            query(&writer)
            writer.member("from", from.description)
            writer.member("to", to.description)
        }
        writer.member("time_zone", zone.name)
        writer.member("basis", basis.rawValue)
        writer.member("as_of", Timestamp(clampingUnixMilliseconds: asOf).description)
        writer.member("final", isFinal)
        writer.member("late", late)
        writer.member("ahead", ahead)
        writer.member("warnings", list: warnings + (isRowsRemoved ? ["rows_removed"] : [])) { writer, code in
            writer.object { $0.member("code", "\(code)") }
        }
    }
}
