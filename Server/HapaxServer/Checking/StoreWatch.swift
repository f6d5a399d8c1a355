import HapaxModel
import Logging

/// Looks at the store from time to time, so that a reader of `/metrics` neither waits for it nor gives it work.
final class StoreWatch: Sendable {
    struct Figures: Sendable {
        var overview: StoreOverview
        /// Seconds for which each project has had a day that should have been closed.
        var closingLag: [(project: String, seconds: Int64)] = []
        /// Events that the installs heard of within a week had waiting when they last reported.
        var waiting: [(project: String, events: Int64)] = []
        /// Numbers of installs without an end that should have one.
        var missing: [(project: String, events: Int64)] = []
        /// See ``StoreClock/ahead``.
        var clockAhead: Int64 = 0
    }

    private struct State {
        var isReady = false
        /// Since when the store has not answered; nil while it does.
        var lostSince: ContinuousClock.Instant?
        /// nil until they were read, and while they cannot be.
        var figures: Figures?
    }

    private let store: any EventStore
    private let readiness: ReadinessProbe
    private let logger: Logger
    private let state = Locked(State())

    init(store: any EventStore, readiness: ReadinessProbe, logger: Logger) {
        (self.store, self.readiness, self.logger) = (store, readiness, logger)
    }

    var isReady: Bool { state.withLock { $0.isReady } }
    var figures: Figures? { state.withLock { $0.figures } }

    /// Whether the store answers now. That it is lost, or back, is one line in the log, wherever it was found.
    func look() async -> Bool {
        let isReady = await readiness.isReady()
        // An answer that came while the server stops says nothing.
        if Task.isCancelled { return isReady }
        let lost = state.withLock { state in
            defer { (state.isReady, state.lostSince) = (isReady, isReady ? nil : state.lostSince ?? .now) }
            return state.lostSince
        }
        switch (lost, isReady) {
        case (nil, false):
            logger.error("The store does not answer, or may not be used: events are refused until it does, and clients keep them")
        case (let lost?, true):
            logger.notice("The store answers again", metadata: ["store.away.seconds": "\(Int((.now - lost) / .seconds(1)))"])
        default: break
        }
        return isReady
    }

    func readFigures() async throws(StoreError) {
        do throws(StoreError) {
            let clock = try await store.sql.clock()
            var figures = try await Figures(store.sql, store.reader, now: clock.settled, as: .search(within: ServerLimits.adminWork))
            figures.clockAhead = clock.ahead
            state.withLock { [figures] in $0.figures = figures }
        } catch {
            // What cannot be read is left out of the metrics.
            state.withLock { $0.figures = nil }
            throw error
        }
    }

    func write(to exposition: inout Exposition) {
        exposition.add(.gauge, "hapax_store_ready", "1 while the store answers and is as it must be.", isReady ? 1 : 0)
        guard let figures else { return }
        let overview = figures.overview
        exposition.add(.gauge, "hapax_store_bytes", "The size of the store.", Double(overview.bytes))
        exposition.add(
            .gauge, "hapax_store_rows", "Rows outside of the months, as the database estimates them.",
            overview.parts.filter { $0.name.first?.isLetter == true }.map { ([("part", $0.name)], Double($0.rows)) })
        exposition.add(
            .gauge, "hapax_months_ahead", "Months to come that have a partition.", overview.monthsAhead.map { Double($0) })
        exposition.add(
            .gauge, "hapax_backup_timestamp_seconds", "When the last backup was made.", overview.lastBackup.map { Double($0) / 1_000 })
        exposition.add(
            .gauge, "hapax_disk_free_bytes", "Room on the disk of the embedded store.", overview.disk.map { Double($0.free) })
        exposition.add(.gauge, "hapax_disk_bytes", "The size of that disk.", overview.disk.map { Double($0.size) })
        exposition.add(
            .gauge, "hapax_closing_lag_seconds", "For how long a day has been due to be closed, by project.",
            figures.closingLag.map { ([("project", $0.project)], Double($0.seconds)) })
        exposition.add(
            .gauge, "hapax_clock_ahead_seconds", "How far the store's clock has jumped ahead; 0 while it is believed.",
            Double(figures.clockAhead) / 1_000)
        exposition.add(
            .gauge, "hapax_clients_waiting_events", "Events that clients had waiting when they last reported, by project.",
            figures.waiting.map { ([("project", $0.project)], Double($0.events)) })
        exposition.add(
            .gauge, "hapax_events_missing", "Events that an install has given a number and that have no end, by project.",
            figures.missing.map { ([("project", $0.project)], Double($0.events)) })
    }
}

extension StoreWatch.Figures {
    /// How long after its begin a day closes, in milliseconds.
    private static let closesAfter: Int64 = 28 * 3_600_000

    /// - Parameter now: Unix milliseconds.
    init(_ database: any SQLStore, _ reader: any EventReader, now: Int64, as purpose: Purpose) async throws(StoreError) {
        let dialect = database.dialect
        func numbers(_ sql: StoreSQL) async throws(StoreError) -> [(String, Int64)] {
            // Names are never NULL.
            try await database.ask(sql, as: purpose).map { (row) throws(StoreError) in (row[0] ?? "", try row.number(1)) }
        }
        overview = try await reader.overview()
        // Where a zone cannot be read, bounds come to an end: the day after the last one closes about 28 hours later.
        let afterLast: StoreSQL = "(SELECT max(l.ends) FROM report_bounds l WHERE l.project_id = r.project_id)"
        closingLag = try await numbers(
            """
            SELECT p.name, coalesce(\(dialect.milliseconds("b.closes")), \(dialect.milliseconds(afterLast)) + \(Self.closesAfter), 0)
            FROM report_progress r JOIN projects p USING (project_id)
            LEFT JOIN report_bounds b ON b.project_id = r.project_id AND b.day = r.next_day ORDER BY p.name
            """
        ).map { ($0, max(0, now - $1) / 1_000) }
        waiting = try await numbers(
            """
            SELECT p.name, sum(i.events_waiting) FROM installs i JOIN projects p USING (project_id)
            WHERE i.events_waiting > 0 AND i.heard_at >= \(milliseconds: now - Trust.silence) GROUP BY p.name ORDER BY p.name
            """)
        // 0 has to be there, too: an alert is about a change.
        missing = try await numbers(
            """
            SELECT p.name, coalesce(sum(i.events_missing), 0) FROM projects p LEFT JOIN installs i USING (project_id)
            GROUP BY p.name ORDER BY p.name
            """)
    }
}
