import HapaxModel

/// How long events are kept: some whole months before the running one, by the days of their ids. Older ones are removed, and their ids are
/// answered `expired`. Ids without a day have to stay: their events, once they were received that long ago, become tombstones.
///
/// The horizon, the first day that is kept, only rises. It is stored before anything is removed. The store itself then takes no id below it, so
/// that a server that has not heard of it cannot bring one back.
package struct Retention: Sendable {
    private let database: any SQLStore
    /// How long one statement may count.
    private let patience: Duration

    package struct State: Hashable, Sendable {
        /// nil: events are kept for ever.
        package var months: Int?
        /// Days since 1970; 0 as long as nothing was to be removed.
        package var horizon: Int32
        /// The horizon below which everything has been removed.
        package var cleared: Int32
    }

    /// What would be removed.
    package struct Preview: Sendable {
        package var horizon: Int32
        /// Events by the month of their id's day.
        package var months: [(month: String, events: Int64)]
        /// Events without a day in their id, of which tombstones would stay.
        package var undated: Int64
    }

    /// A day that is still open needs its events, and so do the readers of last month's.
    static let allowedMonths = 2...1_200

    package init(database: any SQLStore, patience: Duration = ServerLimits.ownWork) {
        (self.database, self.patience) = (database, patience)
    }

    private var dialect: Dialect { database.dialect }

    package func state() async throws(StoreError) -> State {
        let row = try await database.ask("SELECT months, horizon, cleared FROM retention", as: .own).first?.map { $0.flatMap { Int32($0) } }
        guard let row, let horizon = row[1], let cleared = row[2] else { throw .unavailable("its retention cannot be read") }
        return State(months: row[0].map(Int.init), horizon: horizon, cleared: cleared)
    }

    // MARK: - The horizon

    /// - Parameters:
    ///   - today: The store's day.
    ///   - open: The first day of a project whose figures are not stored yet: its events are needed.
    static func horizon(_ months: Int, today: CalendarDay, open: CalendarDay?) -> Int32 {
        let month = CalendarMonth(today).earlier(by: months)
        return min(month, open.map(CalendarMonth.init) ?? month).buckets.lowerBound
    }

    private func horizon(_ months: Int) async throws -> (horizon: Int32, now: Int64) {
        guard Self.allowedMonths.contains(months) else {
            throw Registry.Problem.invalid(
                parameter: "months",
                "must be a number from \(Self.allowedMonths.lowerBound) to \(Self.allowedMonths.upperBound), or 0 for ever")
        }
        let settled = try await database.clock().closing
        let open = try await database.ask("SELECT min(next_day) FROM report_progress", as: .search(within: ServerLimits.ownWork)).first?[0]
        guard let today = CalendarDay(daysSince1970: Int32(clamping: settled / 86_400_000)) else {
            throw StoreError.unavailable("its clock shows no day")
        }
        return (Self.horizon(months, today: today, open: open.flatMap { CalendarDay($0) }), settled)
    }

    /// - Parameter now: The store's clock, in Unix milliseconds.
    private static func raise(to horizon: Int32, now: Int64) -> StoreSQL {
        "UPDATE retention SET horizon = \(horizon), raised_at = \(milliseconds: now) WHERE horizon < \(horizon)"
    }

    /// Counts, which takes as long as there is much to remove.
    ///
    /// - Parameter months: See ``set(months:)``.
    package func preview(months: Int) async throws -> Preview {
        let known = try await state().horizon
        let horizon = months == 0 ? known : max(known, try await horizon(months).horizon)
        let bucket = dialect.bucket
        let answers = try await database.ask(
            [
                """
                SELECT \(dialect.monthOfBucket), count(*) FROM kept_events WHERE \(bucket) >= 0 AND \(bucket) < \(horizon) GROUP BY 1 ORDER BY 1
                """, "SELECT '', count(*) FROM kept_events WHERE \(bucket) < 0 AND received_at < \(instant: Int64(horizon) * 86_400)",
            ], as: .search(within: patience))
        let counts = try answers.map { rows in
            try rows.map { row in
                guard let month = row[0], let events = row[1].flatMap({ Int64($0) }) else {
                    throw StoreError.unavailable("events cannot be counted")
                }
                return (month: month, events: events)
            }
        }
        guard counts.count == 2, let undated = counts[1].first?.events else { throw StoreError.unavailable("events cannot be counted") }
        return Preview(horizon: horizon, months: counts[0], undated: undated)
    }

    /// From now on the store takes no id that is older. ``perform()`` removes what is, here or at any server of the database.
    ///
    /// - Parameter months: 0 keeps for ever what is there.
    /// - Throws: ``StoreError/notPermitted``, ``Registry/Problem``.
    package func set(months: Int) async throws -> State {
        let (known, target) = (try await state(), months == 0 ? nil : try await horizon(months))
        // What is so already is no change.
        guard known.months ?? 0 != months || target?.horizon ?? 0 > known.horizon else { return known }
        let keep: StoreSQL = "UPDATE retention SET months = nullif(\(months), 0)"
        _ = try await database.change((target.map { [Self.raise(to: $0.horizon, now: $0.now)] } ?? []) + [keep], as: .owner)
        return try await state()
    }

    /// Raises the horizon, if it is time, by one month at most, and not again within a day: a clock that shows another year must not cost all
    /// events.
    package func advance() async throws {
        let state = try await state()
        guard let months = state.months, Self.allowedMonths.contains(months), let next = CalendarMonth(bucket: state.horizon)?.next else {
            return
        }
        let (target, now) = try await horizon(months)
        let horizon = min(target, next.buckets.lowerBound)
        guard horizon > state.horizon else { return }
        _ = try await database.change(
            [
                "\(Self.raise(to: horizon, now: now)) AND (raised_at IS NULL OR raised_at <= \(milliseconds: now - 86_400_000))"
            ], as: .owner)
    }

    // MARK: - Removing

    /// Removes what lies below the horizon. If it is interrupted, or several do it at once, the next one goes on.
    ///
    /// - Returns: The new state; nil if there was nothing to remove.
    package func perform() async throws -> State? {
        let state = try await state()
        guard state.cleared < state.horizon else { return nil }
        try await database.clear(state.cleared..<state.horizon)
        var touched: Set<String> = []
        for received in try await database.received(from: 0, to: Int64(state.horizon) * 86_400, parts: .small) {
            let undated: StoreSQL = "\(received) AND \(dialect.bucket) < 0 AND event <> ''"
            var vain = 0
            while true {
                let rows = try await database.ask(
                    "SELECT \(dialect.rowKey) FROM events WHERE \(undated) LIMIT \(Tombstone.foundAtOnce)",
                    as: .search(within: ServerLimits.ownWork))
                if rows.isEmpty { break }
                touched.formUnion(rows.compactMap(\.[1]))
                var count = 0
                for part in dialect.parts(rows.compactMap(\.[0])) {
                    try Task.checkCancellation()
                    let rows: StoreSQL = "\(part) AND \(undated)"
                    count += try await database.changeInTurn(StoredNumbers.remove(rows, dialect) + [Tombstone.bury(rows)]).count
                }
                // Somebody else may have been faster, a few times.
                vain = count > 0 ? 0 : vain + 1
                guard vain < Tombstone.attempts else { throw StoreError.unavailable(Tombstone.unchangeable) }
            }
        }
        try await database.tidy(touched)
        _ = try await database.change(["UPDATE retention SET cleared = \(state.horizon) WHERE cleared < \(state.horizon)"], as: .owner)
        return try await self.state()
    }
}

extension Retention {
    /// As in `2024-11-01`; nil as long as nothing was to be removed.
    static func firstDay(_ horizon: Int32) -> String? { horizon == 0 ? nil : CalendarDay(daysSince1970: horizon)?.description }
}

extension Retention.State {
    var firstDay: String? { Retention.firstDay(horizon) }
}
