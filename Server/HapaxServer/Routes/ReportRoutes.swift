import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /v1/reports/…`.
@available(macOS 14, *)
struct ReportRoutes: Sendable {
    let questions: Questions
    let database: any SQLStore
    /// The zone of a project that has none in the store yet.
    let zones: [Int32: ReportZone]
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64
    private let figures = ReportCache<Figures, DailyFigures>()
    private let series = ReportCache<Question<SeriesQuery>, Series>(maximumEntries: ServerLimits.keptAnswers)
    private let funnels = ReportCache<Question<FunnelQuery>, Funnel>(maximumEntries: ServerLimits.keptAnswers)
    private let returns = ReportCache<Question<ReturnQuery>, Return>(maximumEntries: ServerLimits.keptAnswers)
    private let breakdowns = ReportCache<Question<BreakdownQuery>, Breakdown>(maximumEntries: ServerLimits.keptAnswers)

    init(questions: Questions, database: any SQLStore, zones: [Int32: ReportZone], currentTime: @escaping @Sendable () -> Int64) {
        (self.questions, self.database, self.zones, self.currentTime) = (questions, database, zones, currentTime)
    }

    // MARK: - The daily report

    func daily(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["from", "to", "basis", "by", "format"])
        let (span, basis) = (try Self.span(parameters), try parameters.word("basis", DailyReport.Basis.self) ?? .closed)
        let lines = try parameters.word("by", Lines.self) ?? .day
        let wantsCSV = try Self.wantsCSV(request, parameters)
        guard lines == .day || wantsCSV else { throw RequestProblem.parameter("by", "is for text/csv; JSON has both") }
        let now = currentTime() / 1_000
        let reports = DailyReportReader(database: database, zones: zones)
        let report = try await questions.heavily(for: context, of: projectID, in: questions.turns, within: ServerLimits.heavyRead) {
            turn throws(StoreError) in
            let removals = try await database.ask(Removals.state(projectID), as: .question(turn))
            return try await reports.report(projectID, span, basis, now: now, in: turn) { query throws(StoreError) in
                try await figures.value(Figures(query: query, removals: removals)) { [database] () async throws(StoreError) in
                    try await query.figures(database, in: turn)
                }
            }
        }
        try Self.check(report.from, report.to)
        guard wantsCSV else { return try questions.answer(report.json(), to: projectID, again: request) }
        return try questions.answer(lines == .day ? report.csv() : report.csvByEvent(), to: projectID, type: Self.csv, again: request)
    }

    /// The figures of a day as they are kept.
    private struct Figures: Hashable {
        var query: DailyQuery
        /// See ``Removals/state(_:)``.
        var removals: [[String?]]
    }

    /// What one line of the CSV holds.
    private enum Lines: String, CaseIterable {
        case day
        case event
    }

    // MARK: - Analysis

    func series(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(
            request, ["from", "to", "basis", "format", "event", "where", "unit", "compare", "over"], repeatable: ["where"])
        let unit = try parameters.word("unit", SeriesQuery.Unit.self) ?? .day
        let over = try parameters.parse("over", "must be 7 or 28, days up to each of the points") { ["7": 7, "28": 28][$0] }
        guard over == nil || unit == .day else { throw RequestProblem.parameter("over", "is for points of a day") }
        let compares = try parameters.parse("compare", "must be previous") { $0 == "previous" ? true : nil } ?? false
        let basis = try parameters.word("basis", DailyReport.Basis.self) ?? .closed
        let limit = unit == .hour ? ServerLimits.hourlyDays : ServerLimits.reportDays
        let answer = try await answer(
            { () throws(RequestProblem) in
                SeriesQuery(filter: try Self.filter(parameters), unit: unit, basis: basis, compares: compares, over: over)
            }, request, context, parameters, projectID, series, upTo: limit, isFinal: \.frame.isFinal
        ) { query, days, reader throws(StoreError) in try await query.answer(days, reader) }
        return try respond(to: request, parameters, projectID, json: answer.json, csv: answer.csv)
    }

    func breakdown(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(
            request, ["from", "to", "basis", "format", "event", "where", "property", "sort", "limit"], repeatable: ["where"])
        guard let property = parameters.text("property") else { throw RequestProblem.parameter("property", "must name a property") }
        let answer = try await answer(
            { () throws(RequestProblem) in
                BreakdownQuery(
                    filter: try Self.filter(parameters), property: property,
                    basis: try parameters.word("basis", DailyReport.Basis.self) ?? .closed,
                    order: try parameters.word("sort", BreakdownQuery.Order.self) ?? .events,
                    limit: try parameters.count("limit", upTo: ServerLimits.brokenValues, default: 20))
            }, request, context, parameters, projectID, breakdowns, isFinal: \.frame.isFinal
        ) { query, days, reader throws(StoreError) in try await query.answer(days, reader) }
        return try respond(to: request, parameters, projectID, json: answer.json, csv: answer.csv)
    }

    func funnel(_ request: Request, _ context: IngestContext) async throws -> Response {
        let filters = (1...FunnelQuery.stepCounts.upperBound).map { "where\($0)" }
        let (parameters, projectID, _) = try questions.accept(
            request, Set(["from", "to", "basis", "format", "step", "within", "by"] + filters), repeatable: Set(["step"] + filters))
        var query = FunnelQuery(steps: parameters.texts("step").map { EventFilter(name: $0) })
        guard FunnelQuery.stepCounts.contains(query.steps.count) else {
            throw RequestProblem.parameter("step", "must be given 2 to 8 times, each with the name of an event")
        }
        if let name = filters.dropFirst(query.steps.count).first(where: { !parameters.texts($0).isEmpty }) {
            throw RequestProblem.parameter(name, "is for a step that is not there")
        }
        query.within =
            try parameters.parse("within", "must be days, hours or minutes, at most 90 days: 7d, 12h, 30m", Self.milliseconds)
            ?? query.within
        query.key = try parameters.word("by", FunnelQuery.Key.self) ?? .user
        query.basis = try parameters.word("basis", DailyReport.Basis.self) ?? .closed
        let answer = try await answer(
            { [query] () throws(RequestProblem) in
                var query = query
                for index in query.steps.indices { query.steps[index].properties = try Self.properties(parameters, filters[index]) }
                return query
            }, request, context, parameters, projectID, funnels, isFinal: \.frame.isFinal
        ) { query, days, reader throws(StoreError) in try await query.answer(days, reader) }
        return try respond(to: request, parameters, projectID, json: answer.json, csv: answer.csv)
    }

    /// `/v1/reports/retention`.
    func returns(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(
            request, ["from", "to", "basis", "format", "start", "return", "where", "unit", "mode"], repeatable: ["where"])
        let unit = try parameters.word("unit", ReturnQuery.Unit.self) ?? .day
        let limit = ReturnQuery.maximumUnits * (unit == .week ? 7 : 1)
        let answer = try await answer(
            { () throws(RequestProblem) in
                ReturnQuery(
                    start: parameters.text("start") ?? "$AppStart",
                    again: EventFilter(name: parameters.text("return"), properties: try Self.properties(parameters, "where")), unit: unit,
                    mode: try parameters.word("mode", ReturnQuery.Mode.self) ?? .on,
                    basis: try parameters.word("basis", DailyReport.Basis.self) ?? .closed)
            }, request, context, parameters, projectID, returns, upTo: limit, isFinal: \.frame.isFinal
        ) { query, days, reader throws(StoreError) in try await query.answer(days, reader) }
        return try respond(to: request, parameters, projectID, json: answer.json, csv: answer.csv)
    }

    /// A question as it is kept: about days that are bounded in this way.
    private struct Question<Query: Hashable & Sendable>: Hashable {
        var projectID: Int32
        var query: Query
        var bounds: [Int64]
        var zone: ReportZone
        /// See ``Removals/state(_:)``.
        var removals: [[String?]]
    }

    /// - Parameter query: Reads the question's texts.
    private func answer<Query: Hashable & Sendable, Answer: Sendable>(
        _ query: () throws(RequestProblem) -> Query, _ request: Request, _ context: IngestContext, _ parameters: QueryParameters,
        _ projectID: Int32,
        _ cache: ReportCache<Question<Query>, Answer>,
        upTo limit: Int = ServerLimits.reportDays, isFinal: @escaping @Sendable (Answer) -> Bool,
        _ compute: @escaping @Sendable (Query, ProjectDays, AnalysisReader) async throws(StoreError) -> Answer
    ) async throws -> Answer {
        _ = try Self.wantsCSV(request, parameters)
        let (span, now) = (try Self.span(parameters), currentTime() / 1_000)
        if let from = span.from, from == span.to {
            throw RequestProblem.parameter("to", "must be after from: it is the first day that is not included")
        }
        let (from, to, answer) = try await questions.heavily(
            for: context, of: projectID, in: questions.turns, within: ServerLimits.heavyRead, asking: query
        ) { query, turn throws(StoreError) -> (CalendarDay, CalendarDay, Answer?) in
            let reader = AnalysisReader(database: database, zones: zones, projectID: projectID, turn: turn)
            let days = try await reader.days(span, now: now)
            guard days.isUsable, days.count > 0, days.count <= limit else { return (days.from, days.to, nil) }
            let bounds = days.days(from: days.from, count: days.count + 1).flatMap { [$0.starts, $0.closes] }
            let removals = try await reader.ask(Removals.state(projectID))
            let answer = try await cache.value(
                Question(projectID: projectID, query: query, bounds: bounds, zone: days.zone, removals: removals),
                // Rows of final days can be removed.
                keeps: { isFinal($0) ? ServerLimits.finalAge : nil }
            ) { () async throws(StoreError) in try await compute(query, days, reader) }
            return (days.from, days.to, answer)
        }
        guard let answer else {
            // No day at all: the first one has not come yet.
            try Self.check(from, to == from ? from.advanced(by: -1) : to)
            throw Self.tooManyDays(limit)
        }
        return answer
    }

    private func respond(
        to request: Request, _ parameters: QueryParameters, _ projectID: Int32, json: () -> [UInt8], csv: () -> [UInt8]
    ) throws(RequestProblem) -> Response {
        try Self.wantsCSV(request, parameters)
            ? questions.answer(csv(), to: projectID, type: Self.csv, again: request)
            : questions.answer(json(), to: projectID, again: request)
    }

    // MARK: - Parameters

    private static let csv = "text/csv; charset=utf-8; header=present"

    private static func filter(_ parameters: QueryParameters) throws(RequestProblem) -> EventFilter {
        EventFilter(name: parameters.text("event"), properties: try properties(parameters, "where"))
    }

    private static func properties(_ parameters: QueryParameters, _ name: String) throws(RequestProblem) -> [PropertyFilter] {
        let texts = parameters.texts(name)
        guard texts.count <= ServerLimits.propertyFilters else {
            throw RequestProblem.parameter(name, "may be given \(ServerLimits.propertyFilters) times")
        }
        var filters: [PropertyFilter] = []
        for text in texts {
            guard let filter = PropertyFilter(text) else {
                throw RequestProblem.parameter(name, "must be a property's name, a colon and a value: plan:pro")
            }
            filters.append(filter)
        }
        return filters
    }

    private static func milliseconds(_ text: String) -> Int64? {
        guard let unit = ["d": 86_400_000, "h": 3_600_000, "m": 60_000][text.last ?? " "] as Int64?, let count = Int64(text.dropLast()),
            (1...FunnelQuery.longest / unit).contains(count)
        else { return nil }
        return count * unit
    }

    private static func span(_ parameters: QueryParameters) throws(RequestProblem) -> (from: CalendarDay?, to: CalendarDay?) {
        let form = "must be a day of the project's zone: 2026-11-25"
        let from = try parameters.parse("from", form) { CalendarDay($0) }
        let to = try parameters.parse("to", form) { CalendarDay($0) }
        if let from, let to {
            guard from <= to else { throw RequestProblem.parameter("to", "must not be before from") }
            try check(from, to)
        }
        return (from, to)
    }

    /// If one of the two was left out, the span is known only after the question.
    private static func check(_ from: CalendarDay, _ to: CalendarDay) throws(RequestProblem) {
        guard from <= to else { throw RequestProblem.parameter("from", "must not be after today unless to is given") }
        guard to.daysSince1970 - from.daysSince1970 <= ServerLimits.reportDays else { throw tooManyDays(ServerLimits.reportDays) }
    }

    private static func wantsCSV(_ request: Request, _ parameters: QueryParameters) throws(RequestProblem) -> Bool {
        guard let format = try parameters.word("format", Format.self) else { return request.headers.takes("text/csv", in: .accept) }
        return format == .csv
    }

    /// Goes before the header field Accept, which many clients cannot set.
    private enum Format: String, CaseIterable {
        case json
        case csv
    }

    private static func tooManyDays(_ days: Int) -> RequestProblem {
        RequestProblem(.rangeTooLarge, detail: "this report is of \(days) days at most")
    }
}
