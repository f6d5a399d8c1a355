import HapaxModel

/// Forgets users: a user's events become tombstones, which keep an event's id, so that it cannot return, and nothing of its content.
package struct Erasures: Sendable {
    private let settings: any SettingsDatabase
    /// nil beside a running server with the embedded store: then nothing is erased here.
    private let reports: (any ReportDatabase)?

    /// How long to wait until what was being stored at the beginning is there.
    private static let pause = Duration.milliseconds(500)

    package struct Erasure: Sendable {
        package var id: Int32
        package var projectID: Int32
        /// Until it is done.
        package var user: String?
        /// Unix milliseconds. What is received later is no part of it.
        package var askedAt: Int64
        package var doneAt: Int64?
        /// Events erased so far.
        package var rows: Int64
    }

    /// What would be erased.
    package struct Preview: Sendable {
        package var rows: Int64
        /// When the first and the last event were received, in Unix milliseconds.
        package var first: Int64?
        package var last: Int64?
    }

    init(settings: any SettingsDatabase, reports: (any ReportDatabase)? = nil) {
        (self.settings, self.reports) = (settings, reports)
    }

    package init(store: any EventStore) { self.init(settings: store.settings, reports: store.reports) }

    private var dialect: ReportDialect { settings.dialect }

    /// - Parameter after: The last number that is known already.
    package func list(after: Int32 = 0) async throws(StoreError) -> [Erasure] {
        let ms = dialect.milliseconds
        return try await settings.rows(
            """
            SELECT erasure_id, project_id, distinct_id, \(ms("asked_at")), \(ms("done_at")), rows FROM erasures
            WHERE erasure_id > \(after) OR done_at IS NULL ORDER BY erasure_id
            """
        ).compactMap { Erasure($0) }
    }

    package func preview(project: String, user: String) async throws -> Preview {
        let projectID = try await checked(project, user)
        let ms = dialect.milliseconds
        let sql: StoreSQL = """
            SELECT count(*), \(ms("min(received_at)")), \(ms("max(received_at)")) FROM kept_events
            WHERE project_id = \(projectID) AND distinct_id = \(user)
            """
        let rows = if let reports { try await reports.rows(sql) } else { try await settings.rows(sql) }
        let row = rows.first?.map { $0.flatMap { Int64($0) } } ?? [nil, nil, nil]
        return Preview(rows: row[0] ?? 0, first: row[1], last: row[2])
    }

    /// Notes that a user is to be forgotten. ``perform(_:progress:)`` does it, here or at any server of the database.
    ///
    /// - Parameter upTo: What was received later stays, in Unix milliseconds; nil for now.
    /// - Throws: ``StoreError/notPermitted``, ``Registry/Problem``.
    package func add(project: String, user: String, upTo: Int64? = nil) async throws -> Erasure {
        let projectID = try await checked(project, user)
        guard let reports else { throw StoreError.notPermitted }
        let settled = try await reports.settled()
        let now = if let upTo, upTo < settled { "\(milliseconds: upTo)" as StoreSQL } else { dialect.now(settled) }
        let rows = try await settings.change([
            "INSERT INTO erasures (project_id, distinct_id, asked_at) VALUES (\(projectID), \(user), \(now)) RETURNING erasure_id"
        ])
        let id = rows.first?[0].flatMap { Int32($0) } ?? 0
        guard let erasure = try await list().first(where: { $0.id == id }) else {
            throw StoreError.unavailable("an erasure that was noted is not there")
        }
        return erasure
    }

    /// - Returns: The project's number.
    /// - Throws: ``Registry/Problem`` for what nobody can be called.
    @discardableResult
    func checked(_ project: String, _ user: String) async throws -> Int32 {
        guard !user.isEmpty, user.utf8.count <= EventLimits.maximumDistinctIDBytes, !user.utf8.contains(0) else {
            throw Registry.Problem.invalid(
                parameter: "user", "must be a text of 1 to \(EventLimits.maximumDistinctIDBytes) bytes, as in distinct_id")
        }
        return try await Registry(database: settings).contents().project(named: project).id
    }

    /// Erases what was received up to the moment when it was asked for, in short transactions. If it is interrupted, or several do it at once,
    /// whoever comes next goes on.
    ///
    /// - Parameter progress: Called with the number of events that this call has erased.
    /// - Returns: The erasure, done; nil if somebody else has to finish it.
    package func perform(
        _ erasure: Erasure, progress: @Sendable (Int64) -> Void = { _ in }
    ) async throws -> Erasure? {
        guard let user = erasure.user, let reports else { return nil }
        let ofUser: StoreSQL = "project_id = \(erasure.projectID) AND distinct_id = \(user)"
        var (tables, count, vain): (Set<String>, Int64, Int) = ([], 0, 0)
        while true {
            // Asked before the rows: whatever was being stored then is there now.
            let isSettled = try await reports.settled() > erasure.askedAt
            let rows = try await reports.rows(
                """
                SELECT \(dialect.rowKey) FROM events WHERE \(ofUser) AND event <> ''
                AND received_at <= (SELECT asked_at FROM erasures WHERE erasure_id = \(erasure.id)) LIMIT \(Tombstone.foundAtOnce)
                """)
            let new = Set(rows.compactMap(\.[1])).subtracting(tables)
            if !new.isEmpty {
                // Before they are changed: whoever finishes it has to tidy them.
                let names = new.sorted().map { "\($0) " }.joined()
                _ = try await settings.change(["UPDATE erasures SET touched = touched || \(names) WHERE erasure_id = \(erasure.id)"])
                tables.formUnion(new)
            }
            let before = count
            for part in dialect.parts(rows.compactMap(\.[0])) {
                try Task.checkCancellation()
                count += Int64(try await erase(erasure, part))
                progress(count)
            }
            if rows.isEmpty, isSettled { break }
            // Somebody else may have been faster, a few times.
            vain = rows.isEmpty || count > before ? 0 : vain + 1
            guard vain < Tombstone.attempts else { throw StoreError.unavailable(Tombstone.unchangeable) }
            if count == before { try await Task.sleep(for: Self.pause) }
        }
        // While no day is being closed: that would note a user of whom it has just read.
        let isForgotten = Locked(false)
        try await reports.exclusively { () async throws(StoreError) in
            _ = try await settings.change(["DELETE FROM report_users WHERE \(ofUser)"])
            isForgotten.withLock { $0 = true }
        }
        guard isForgotten.withLock({ $0 }) else { return nil }
        let touched = try await settings.rows("SELECT touched FROM erasures WHERE erasure_id = \(erasure.id)").first?[0] ?? ""
        try await settings.tidy(Set(touched.split(separator: " ").map(String.init)).union(["report_users"]))
        _ = try await settings.change([
            """
            UPDATE erasures SET distinct_id = NULL, touched = '', done_at = \(dialect.now(try await reports.settled()))
            WHERE erasure_id = \(erasure.id) AND done_at IS NULL
            """
        ])
        // It held the id until now.
        try await settings.tidy(["erasures"])
        return try await list(after: erasure.id - 1).first { $0.id == erasure.id && $0.doneAt != nil }
    }

    /// - Returns: How many rows were changed.
    private func erase(_ erasure: Erasure, _ rows: StoreSQL) async throws(StoreError) -> Int {
        let kept: StoreSQL = "project_id = \(erasure.projectID) AND \(rows) AND event <> ''"
        return try await settings.change([
            // Locks it, so that of two who erase the same rows one waits here: its next statement counts what is left then.
            "UPDATE erasures SET rows = rows WHERE erasure_id = \(erasure.id)",
            "UPDATE erasures SET rows = rows + (SELECT count(*) FROM events WHERE \(kept)) WHERE erasure_id = \(erasure.id)",
            Tombstone.bury(kept),
        ]).count
    }
}

extension Erasures.Erasure {
    fileprivate init?(_ row: [String?]) {
        guard row.count == 6, let id = row[0].flatMap({ Int32($0) }), let projectID = row[1].flatMap({ Int32($0) }),
            let askedAt = row[3].flatMap({ Int64($0) })
        else { return nil }
        self.init(
            id: id, projectID: projectID, user: row[2], askedAt: askedAt, doneAt: row[4].flatMap { Int64($0) },
            rows: row[5].flatMap { Int64($0) } ?? 0)
    }
}
