import HapaxModel

/// Events and users over the days of a project, hour by hour or day by day (docs/reading.md, A series).
struct SeriesQuery: Hashable, Sendable {
    enum Unit: String, CaseIterable, Sendable {
        case hour, day, week, month
    }

    var filter: EventFilter
    var unit = Unit.day
    var basis = DailyReport.Basis.closed
    /// Whether the same number of days before is given, too.
    var compares = false
    /// So many days up to a point's own, of which it tells the distinct users.
    var over: Int?
}

struct Series: Sendable {
    struct Figures: Hashable, Sendable {
        var events: Int64 = 0
        /// Distinct.
        var users: Int64 = 0
    }

    struct Point: Sendable {
        /// Unix seconds; the end is not part of it.
        var starts: Int64
        var ends: Int64
        var zone: ReportZone
        var state: DailyReport.State
        var figures = Figures()
        /// Distinct users of the last ``SeriesQuery/over`` days.
        var trailing: Int64?
        /// Of the counterpart in the days before; nil before the project's first event.
        var previous: Figures?
    }

    var query: SeriesQuery
    var frame: AnalysisFrame
    var points: [Point]
    var total: Figures
    var previousTotal: Figures?
}

extension SeriesQuery {
    /// The points of some days, in their order, and the pieces that they consist of.
    private func points(_ days: [ReportDay], _ rows: CountedRows) -> (points: [Series.Point], pieces: [CountedRows.Piece]) {
        var (points, pieces, last) = ([Series.Point](), [CountedRows.Piece](), Int32?.none)
        for day in days {
            let step = unit == .hour ? 3_600 : max(day.ends - day.starts, 1)
            let key: Int32? =
                switch unit {
                case .hour, .day: nil
                // 1970-01-01 was a Thursday.
                case .week: (day.day.daysSince1970 + 3) / 7
                case .month: Int32(day.day.components.year * 12 + day.day.components.month)
                }
            // A day that a zone skips is empty, and a point all the same.
            let isEmpty = day.starts == day.ends && unit != .hour
            let starts = isEmpty ? [day.starts] : Array(stride(from: day.starts, to: day.ends, by: Int64.Stride(step)))
            for start in starts {
                let end = min(start + step, day.ends)
                if let key, key == last {
                    points[points.count - 1].ends = end
                    if rows.state(of: day) == .open { points[points.count - 1].state = .open }
                } else {
                    points.append(.init(starts: start, ends: end, zone: day.zone, state: rows.state(of: day)))
                }
                last = key
                pieces.append(
                    .init(starts: start * 1_000, ends: end * 1_000, closes: day.closes * 1_000, number: points.count - 1))
            }
        }
        return (points, pieces)
    }

    func answer(_ days: ProjectDays, _ reader: AnalysisReader) async throws(StoreError) -> Series {
        let rows = try await reader.rows(basis)
        let span = days.days(from: days.from, count: days.count)
        // There is no day before 1970.
        let lead = days.before(over.map { $0 - 1 } ?? 0)
        var (points, pieces) = points(span, rows)
        // The days before the first, of which only the trailing users tell, have numbers below 0.
        pieces = CountedRows.pieces(lead) { $0 - lead.count } + pieces
        let (figures, total, trailing) = try await figures(pieces, rows, reader)
        for index in points.indices {
            points[index].figures = figures[index] ?? .init()
            if over != nil { points[index].trailing = trailing[index] ?? 0 }
        }
        var series = Series(
            query: self, frame: try await reader.frame(days, rows, dependsOn: span.isEmpty ? [] : lead + span), points: points, total: total
        )
        if compares {
            try await compare(&series, days, span, rows, reader)
            series.frame.isRowsRemoved = try await reader.isRowsRemoved(days, days.before(days.count) + lead + span)
        }
        return series
    }

    private func figures(
        _ pieces: [CountedRows.Piece], _ rows: CountedRows, _ reader: AnalysisReader
    ) async throws(StoreError) -> (points: [Int: Series.Figures], total: Series.Figures, trailing: [Int: Int64]) {
        var (points, total, trailing) = ([Int: Series.Figures](), Series.Figures(), [Int: Int64]())
        guard let counted = try await rows.table(pieces, filter.condition(reader.database.dialect), reader.database) else {
            return (points, total, trailing)
        }
        // A user counts in each of the days that begin with one of activity; those that an earlier one has covered count once.
        let covered: StoreSQL =
            over.map { days in
                let days = StoreSQL(stringLiteral: "\(days)")
                return """
                    UNION ALL SELECT 2, CASE WHEN before + \(days) > point THEN before + \(days) ELSE point END, point + \(days), count(*)
                    FROM (SELECT point, lag(point) OVER (PARTITION BY distinct_id ORDER BY point) AS before FROM u) AS steps GROUP BY 2, 3
                    """
            } ?? ""
        let found = try await reader.ask(
            """
            WITH u AS (SELECT point, distinct_id, count(*) AS events FROM \(counted) GROUP BY point, distinct_id)
            SELECT 0, point, sum(events), count(*) FROM u GROUP BY point
            UNION ALL SELECT 1, 0, sum(events), count(*) FROM
              (SELECT sum(events) AS events FROM u WHERE point >= 0 GROUP BY distinct_id) AS users
            \(covered)
            """)
        for row in found {
            let numbers = try row.sums()
            switch numbers[0] {
            case 0: points[Int(numbers[1])] = .init(events: numbers[2], users: numbers[3])
            case 1: total = .init(events: numbers[2], users: numbers[3])
            default: for day in numbers[1]..<max(numbers[1], numbers[2]) { trailing[Int(day), default: 0] += numbers[3] }
            }
        }
        return (points, total, trailing)
    }

    /// Adds the figures of as many days before. Of the counterpart of an open day counts what lies as far from its start as the present does.
    private func compare(
        _ series: inout Series, _ days: ProjectDays, _ span: [ReportDay], _ rows: CountedRows, _ reader: AnalysisReader
    ) async throws(StoreError) {
        let before = days.before(days.count)
        let first = try await reader.ask("SELECT min(day) FROM report_bounds WHERE project_id = \(reader.projectID)").first?[0].flatMap {
            CalendarDay($0)
        }
        guard let first, let latest = before.last, latest.day >= first, before.count == days.count else { return }
        var cuts: [Int64: Int64] = [:]
        for (day, counterpart) in zip(span, before) where rows.settled < day.ends * 1_000 {
            cuts[counterpart.starts] = counterpart.starts * 1_000 + max(0, rows.settled - day.starts * 1_000)
        }
        let (points, pieces) = points(before, rows)
        var kept: [CountedRows.Piece] = []
        for piece in pieces {
            let day = before.last { $0.starts * 1_000 <= piece.starts }?.starts ?? 0
            let cut = min(max(cuts[day] ?? .max, piece.starts), piece.ends)
            if cut > piece.starts {
                var part = piece
                part.ends = cut
                kept.append(part)
            }
            if cut < piece.ends { kept.append(.init(starts: cut, ends: piece.ends, closes: piece.closes, number: nil)) }
        }
        let (figures, total, _) = try await SeriesQuery(filter: filter, unit: unit, basis: basis).figures(kept, rows, reader)
        for index in series.points.indices where index < points.count && points[index].ends > days[first].starts {
            series.points[index].previous = figures[index] ?? .init()
        }
        series.previousTotal = total
    }
}
