import HapaxModel

/// How many users do one thing after another (docs/reading.md, A funnel).
struct FunnelQuery: Hashable, Sendable {
    enum Key: String, CaseIterable, Sendable {
        case user = "distinct_id"
        /// The device, which stays the same through a login.
        case install = "install_id"
    }

    var steps: [EventFilter]
    /// Milliseconds between an attempt's first and last step, at most.
    var within: Int64 = 7 * 86_400_000
    var key = Key.user
    var basis = DailyReport.Basis.closed

    static let stepCounts = 2...8
    /// The longest ``within``.
    static let longest: Int64 = 90 * 86_400_000
}

struct Funnel: Sendable {
    struct Step: Hashable, Sendable {
        var users: Int64 = 0
        /// From the first step, and from the one before, in milliseconds: the median and the ninth decile, by the nearest rank.
        var fromFirst: Times?
        var fromPrevious: Times?
    }

    struct Times: Hashable, Sendable {
        var median: Int64
        var p90: Int64

        /// nil without any.
        init?(_ times: [Int64]) {
            let times = times.sorted()
            guard !times.isEmpty else { return nil }
            (median, p90) = (times[(times.count - 1) / 2], times[(times.count * 9 + 9) / 10 - 1])
        }
    }

    var query: FunnelQuery
    var frame: AnalysisFrame
    var steps: [Step]
    /// Users who have not done the last step, and whose time is not over.
    var open: Int64
    /// Whether a device did steps for more than one user, as before and after a login.
    var isStraddled: Bool
}

extension FunnelQuery {
    func answer(_ days: ProjectDays, _ reader: AnalysisReader) async throws(StoreError) -> Funnel {
        let rows = try await reader.rows(basis)
        let span = days.days(from: days.from, count: days.count)
        // Steps that follow may be later than the days.
        let last = days.history.day(at: (days[days.to].starts * 1_000 + within) / 1_000)
        let all = span + days.days(from: days.to, count: max(0, Int(last.daysSince1970 - days.to.daysSince1970) + 1))
        var frame = try await reader.frame(days, rows, dependsOn: all)
        let result = Locked(Collection(query: self, days: all, settled: rows.settled))
        let pieces = CountedRows.pieces(all) { $0 < span.count ? 0 : 1 }
        let dialect = reader.database.dialect
        let conditions = steps.map { "(true\($0.condition(dialect)))" as StoreSQL }
        let matches = conditions.enumerated().reduce("0" as StoreSQL) { sql, step in
            "\(sql) + CASE WHEN \(step.element) THEN \(StoreSQL(stringLiteral: "\(1 << step.offset)")) ELSE 0 END"
        }
        let any = conditions.dropFirst().reduce(conditions[0]) { "\($0) OR \($1)" }
        let columns: StoreSQL = ", time, install_id, sequence, event_id, \(matches) AS matches"
        let needsInstall: StoreSQL = key == .install ? " AND install_id IS NOT NULL" : ""
        if !span.isEmpty, let table = try await rows.table(pieces, " AND (\(any))\(needsInstall)", columns: columns, reader.database) {
            let keys: (StoreSQL, StoreSQL) =
                key == .user ? ("distinct_id", dialect.uuidText("install_id")) : (dialect.uuidText("install_id"), "distinct_id")
            try await reader.database.each(
                """
                SELECT \(keys.0), \(keys.1), point, \(dialect.milliseconds("time")), matches FROM \(table)
                ORDER BY \(StoreSQL(stringLiteral: key.rawValue)), time, install_id IS NULL, install_id, sequence IS NULL, sequence, event_id
                """, in: reader.turn
            ) { row in result.withLock { $0.add(row) } }
        }
        frame.isRowsRemoved = try await reader.isRowsRemoved(days, all)
        return result.withLock { [frame] in $0.funnel(frame) }
    }

    /// What users' rows come to; a user's follow each other.
    private struct Collection {
        let query: FunnelQuery
        let days: [ReportDay]
        let settled: Int64
        private var user: String?
        private var fold: FunnelFold
        private var times: [[Int64]]
        private var users: [Int64]
        private var open: Int64 = 0
        /// For which users each device did its steps, all as hashes: what depends on it is a hint.
        private var owners: [Int: [Int]] = [:]
        /// What sends for more users is no person's device: an import, or a service.
        private static let usersOfDevice = 2...10

        init(query: FunnelQuery, days: [ReportDay], settled: Int64) {
            (self.query, self.days, self.settled) = (query, days, settled)
            fold = FunnelFold(steps: query.steps.count, within: query.within)
            // From the first step, then from the one before.
            times = Array(repeating: [], count: query.steps.count * 2)
            users = Array(repeating: 0, count: query.steps.count)
        }

        mutating func add(_ row: [String?]) {
            guard let key = row[0], let point = row[2], let time = row[3].flatMap({ Int64($0) }),
                let matches = row[4].flatMap({ UInt8($0) })
            else { return }
            if user != key {
                end()
                user = key
            }
            fold.add(time: time, matches: matches, begins: point == "0")
            guard query.key == .user, let install = row[1]?.hashValue else { return }
            let (owner, known) = (key.hashValue, owners[install]?.last)
            if known != owner, owners[install, default: []].count <= Self.usersOfDevice.upperBound {
                owners[install, default: []].append(owner)
            }
        }

        private mutating func end() {
            defer { fold = FunnelFold(steps: query.steps.count, within: query.within) }
            guard let first = fold.best.first, let latest = fold.latest else { return }
            for step in 0..<fold.depth {
                users[step] += 1
                times[2 * step].append(fold.best[step] - first)
                if step > 0 { times[2 * step + 1].append(fold.best[step] - fold.best[step - 1]) }
            }
            let end = days.last { $0.starts * 1_000 <= latest + query.within }
            if fold.depth < query.steps.count, let end, end.closes * 1_000 > settled { open += 1 }
        }

        mutating func funnel(_ frame: AnalysisFrame) -> Funnel {
            end()
            let steps = users.indices.map { step in
                Funnel.Step(
                    users: users[step], fromFirst: step > 0 ? Funnel.Times(times[2 * step]) : nil,
                    fromPrevious: Funnel.Times(times[2 * step + 1]))
            }
            return Funnel(
                query: query, frame: frame, steps: steps, open: open,
                isStraddled: owners.values.contains { Self.usersOfDevice.contains($0.count) })
        }
    }
}
