import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /v1/reports/daily`.
@available(macOS 14, *)
struct ReportRoutes: Sendable {
    let questions: Questions
    let reports: DailyReportReader
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64
    private let cache = ReportCache()

    init(questions: Questions, reports: DailyReportReader, currentTime: @escaping @Sendable () -> Int64) {
        self.questions = questions
        self.reports = reports
        self.currentTime = currentTime
    }

    func daily(_ request: Request) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["from", "to", "basis", "by"])
        let form = "must be a day of the project's zone: 2026-11-25"
        let from = try parameters.parse("from", form) { CalendarDay($0) }
        let to = try parameters.parse("to", form) { CalendarDay($0) }
        let basis = try parameters.word("basis", DailyReport.Basis.self) ?? .closed
        if let from, let to {
            guard from <= to else { throw QueryParameters.problem("to", "must not be before from") }
            guard to.daysSince1970 - from.daysSince1970 <= ServerLimits.reportDays else { throw Self.tooManyDays }
        }
        let lines = try parameters.word("by", Lines.self) ?? .day
        let wantsCSV = request.headers.takes("text/csv", in: .accept)
        guard lines == .day || wantsCSV else { throw QueryParameters.problem("by", "is for text/csv; JSON has both") }
        let now = currentTime() / 1_000
        let report = try await questions.heavily(of: projectID, in: questions.turns, within: ServerLimits.heavyRead) {
            deadline throws(StoreError) in
            try await reports.report(projectID, (from, to), basis, now: now, until: deadline) { query throws(StoreError) in
                try await cache.figures(query) { [reports] () async throws(StoreError) in
                    try await query.figures(reports.database, .question) { (sql) async throws(StoreError) in
                        try await reports.database.rows(sql, until: deadline)
                    }
                }
            }
        }
        // If `from` or `to` was left out, the span is known only now.
        guard report.from <= report.to else { throw QueryParameters.problem("from", "must not be behind today unless to is given") }
        guard report.to.daysSince1970 - report.from.daysSince1970 <= ServerLimits.reportDays else { throw Self.tooManyDays }
        guard wantsCSV else { return try questions.answer(report.json(), to: projectID) }
        return try questions.answer(
            lines == .day ? report.csv() : report.csvByEvent(), to: projectID, type: "text/csv; charset=utf-8; header=present")
    }

    /// What one line of the CSV holds.
    private enum Lines: String, CaseIterable {
        case day
        case event
    }

    private static let tooManyDays = RequestProblem(.rangeTooLarge, detail: "a report is of \(ServerLimits.reportDays) days at most")
}
