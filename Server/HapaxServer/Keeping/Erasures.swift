import HapaxModel

/// Forgets users: a user's events become tombstones, which keep an event's id, so that it cannot return, and nothing of its content. Removes
/// projects: an erasure of everybody, whose rows go.
package struct Erasures: Sendable {
    private let database: any SQLStore
    /// Projects that the settings name: a server would make them again.
    private let inSettings: Set<String>
    /// After these milliseconds every server knows what the store says of keys and users: they look every two seconds.
    private let serversKnow: Int64
    /// How long one statement may search.
    private let patience: Duration

    /// How long to wait until what was being stored at the beginning is there.
    private static let pause = Duration.milliseconds(500)

    /// No user can be called that.
    fileprivate static let everybody = ""
    /// A write key is public: anybody who has it can tie any ids to a user.
    private static let maximumLinks = 1_000

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

        /// Whether the whole project goes.
        package var isOfProject: Bool { user == Erasures.everybody }
    }

    /// An id that a user had before logging in, by `$identify`.
    package struct Link: Sendable {
        package var user: String
        package var rows: Int64
        /// Whether it is somebody else's, too: then it is not erased with the user.
        package var isShared: Bool
    }

    /// What would be erased.
    package struct Preview: Sendable {
        package var rows: Int64
        /// When the first and the last event were received, in Unix milliseconds.
        package var first: Int64?
        package var last: Int64?
    }

    package init(
        database: any SQLStore, inSettings: Set<String> = [], serversKnow: Int64 = 10_000, patience: Duration = ServerLimits.ownWork
    ) {
        (self.database, self.inSettings, self.serversKnow, self.patience) = (database, inSettings, serversKnow, patience)
    }

    private var dialect: Dialect { database.dialect }

    /// At most ``ServerLimits/erasures``, in their order.
    ///
    /// - Parameters:
    ///   - after: The number of the last one that is known already.
    ///   - project: Only those of one project.
    package func list(after: Int32 = 0, project: Int32? = nil) async throws(StoreError) -> [Erasure] {
        let own: StoreSQL = project.map { " AND project_id = \($0)" } ?? ""
        return try await erasures("erasure_id > \(after)\(own)", limit: ServerLimits.erasures)
    }

    /// Those that are not done.
    package func open() async throws(StoreError) -> [Erasure] { try await erasures("done_at IS NULL", limit: ServerLimits.erasures) }

    private func erasure(_ id: Int32) async throws(StoreError) -> Erasure? {
        try await erasures("erasure_id = \(id)", limit: 1).first
    }

    private func erasures(_ condition: StoreSQL, limit: Int) async throws(StoreError) -> [Erasure] {
        let ms = dialect.milliseconds
        return try await database.ask(
            """
            SELECT erasure_id, project_id, distinct_id, \(ms("asked_at")), \(ms("done_at")), rows FROM erasures
            WHERE \(condition) ORDER BY erasure_id LIMIT \(limit)
            """, as: .own
        ).map { (row) throws(StoreError) in try Erasure(row) }
    }

    /// The projects that an erasure was asked of, with the number of the latest one.
    ///
    /// - Parameter after: The number of the last one that is known already.
    func latest(after: Int32) async throws(StoreError) -> [(project: Int32, id: Int32)] {
        try await database.ask("SELECT project_id, max(erasure_id) FROM erasures WHERE erasure_id > \(after) GROUP BY project_id", as: .own)
            .map {
                (row) throws(StoreError) in
                guard let project = row[0].flatMap({ Int32($0) }), let id = row[1].flatMap({ Int32($0) }) else {
                    throw .unavailable("its erasures cannot be read")
                }
                return (project, id)
            }
    }

    /// - Parameter user: nil for the whole project.
    package func preview(project: String, user: String?) async throws -> Preview {
        let projectID = try await checked(project, user)
        let ms = dialect.milliseconds
        let row = try await look(
            """
            SELECT count(*), \(ms("min(received_at)")), \(ms("max(received_at)")) FROM kept_events
            WHERE \(Self.rows(of: user ?? Self.everybody, projectID))
            """
        ).first?.map { $0.flatMap { Int64($0) } }
        guard let row, let rows = row[0] else { throw StoreError.unavailable("events cannot be counted") }
        return Preview(rows: rows, first: row[1], last: row[2])
    }

    /// The ids that `$identify` ties to a user.
    package func links(project: String, user: String) async throws -> [Link] {
        let projectID = try await checked(project, user)
        let identified: StoreSQL = "kept_events WHERE project_id = \(projectID) AND event = '$identify'"
        let former = dialect.anonymousID
        let users = try await look(
            "SELECT DISTINCT \(former) FROM \(identified) AND distinct_id = \(user) AND \(former) <> \(user) LIMIT \(Self.maximumLinks + 1)"
        ).compactMap(\.first?.self).filter(Self.canBeCalled).sorted()
        guard users.count <= Self.maximumLinks else {
            throw Registry.Problem.invalid(
                parameter: "user",
                "is tied to more than \(Self.maximumLinks) other ids, most likely by somebody who wants that; erase them by themselves")
        }
        guard let first = users.first else { return [] }
        let all = users.dropFirst().reduce("\(first)" as StoreSQL) { "\($0), \($1)" }
        let shared = Set(
            try await look(
                """
                SELECT distinct_id FROM \(identified) AND distinct_id IN (\(all))
                UNION SELECT \(former) FROM \(identified) AND \(former) IN (\(all)) AND distinct_id <> \(user)
                """
            ).compactMap(\.first?.self))
        let counts = Dictionary(
            try await look(
                "SELECT distinct_id, count(*) FROM kept_events WHERE project_id = \(projectID) AND distinct_id IN (\(all)) GROUP BY distinct_id"
            ).map { (row) throws(StoreError) in
                guard let user = row[0], let count = row[1].flatMap({ Int64($0) }) else { throw .unavailable("events cannot be counted") }
                return (user, count)
            }
        ) { $1 }
        // Of an id without events there is no row.
        return users.map { Link(user: $0, rows: counts[$0] ?? 0, isShared: shared.contains($0)) }
    }

    private static func canBeCalled(_ user: String) -> Bool {
        !user.isEmpty && user.utf8.count <= EventLimits.maximumDistinctIDBytes && !user.utf8.contains(0)
    }

    private func look(_ sql: StoreSQL) async throws(StoreError) -> [[String?]] {
        try await database.ask(sql, as: .search(within: patience))
    }

    private static func rows(of user: String, _ projectID: Int32) -> StoreSQL {
        user == everybody ? "project_id = \(projectID)" : "project_id = \(projectID) AND distinct_id = \(user)"
    }

    /// Notes that a user is to be forgotten, or a project removed, whose keys end with it. ``perform(_:progress:)`` does it, here or at any server
    /// of the database.
    ///
    /// - Parameters:
    ///   - user: nil for the whole project.
    ///   - upTo: What was received later stays, in Unix milliseconds; nil for now.
    ///   - blocks: Whether the user's later events are refused. Then what is received until all servers know it goes, too.
    /// - Throws: ``StoreError/notPermitted``, ``Registry/Problem``.
    package func add(project: String, user: String?, upTo: Int64? = nil, blocks: Bool = false) async throws -> Erasure {
        let projectID = try await checked(project, user)
        let settled = try await database.settled()
        var now = if let upTo, upTo < settled { "\(milliseconds: upTo)" as StoreSQL } else { dialect.now(settled) }
        var statements: [StoreSQL] = []
        if let user, blocks { try await Registry(database: database).block(user, projectID) }
        if user == nil {
            if let begun = try await open().first(where: { $0.isOfProject && $0.projectID == projectID }) { return begun }
            guard !inSettings.contains(project) else {
                throw Registry.Problem.invalid(
                    parameter: "project", "is named in the settings of the server: take it out of all servers' settings first")
            }
            statements = ["UPDATE keys SET revoked_at = \(now) WHERE project_id = \(projectID) AND revoked_at IS NULL"]
        }
        if user == nil || blocks {
            guard let present = try await database.ask("SELECT \(dialect.milliseconds(now))", as: .own).first?[0].flatMap({ Int64($0) })
            else {
                throw StoreError.unavailable("its clock cannot be read")
            }
            now = "\(milliseconds: present + serversKnow)"
        }
        let rows = try await database.change(
            statements + [
                """
                INSERT INTO erasures (project_id, distinct_id, asked_at) VALUES (\(projectID), \(user ?? Self.everybody), \(now))
                RETURNING erasure_id
                """
            ], as: .owner)
        guard let id = rows.first?[0].flatMap({ Int32($0) }), let erasure = try await erasure(id) else {
            throw StoreError.unavailable("an erasure that was noted is not there")
        }
        return erasure
    }

    /// Takes events of a user again.
    ///
    /// - Throws: ``StoreError/notPermitted``; ``Registry/Problem``, also for a user who is not blocked.
    package func unblock(project: String, user: String) async throws {
        try await Registry(database: database).unblock(user, try await checked(project, user))
    }

    /// - Returns: The project's number.
    /// - Throws: ``Registry/Problem`` for what nobody can be called.
    @discardableResult
    func checked(_ project: String, _ user: String?) async throws -> Int32 {
        if let user, !Self.canBeCalled(user) {
            throw Registry.Problem.invalid(
                parameter: "user", "must be a text of 1 to \(EventLimits.maximumDistinctIDBytes) bytes, as in distinct_id")
        }
        return try await Registry(database: database).contents().project(named: project).id
    }

    /// Erases what was received up to the moment when it was asked for, in short transactions. If it is interrupted, or several do it at once,
    /// the next one goes on.
    ///
    /// - Parameter progress: Called with the number of events that this call has erased.
    /// - Returns: The erasure, done; nil if somebody else has to finish it.
    package func perform(
        _ erasure: Erasure, progress: @Sendable (Int64) -> Void = { _ in }
    ) async throws -> Erasure? {
        guard let user = erasure.user else { return nil }
        let theirs = Self.rows(of: user, erasure.projectID)
        let left: StoreSQL = erasure.isOfProject ? dialect.isRemovable : "event <> ''"
        let work: (StoreSQL) -> StoreSQL = { erasure.isOfProject ? "DELETE FROM events WHERE \($0) RETURNING 1" : Tombstone.bury($0) }
        var (tables, count, vain): (Set<String>, Int64, Int) = ([], 0, 0)
        while true {
            // Asked before the rows: whatever was being stored then is there now.
            let isSettled = try await database.settled() > erasure.askedAt
            let rows = try await database.ask(
                """
                SELECT \(dialect.rowKey) FROM events WHERE \(theirs) AND \(left)
                AND received_at <= (SELECT asked_at FROM erasures WHERE erasure_id = \(erasure.id)) LIMIT \(Tombstone.foundAtOnce)
                """, as: .search(within: ServerLimits.ownWork))
            let new = Set(rows.compactMap(\.[1])).subtracting(tables)
            if !new.isEmpty {
                // Before they are changed: the server that finishes it has to tidy them.
                let names = new.sorted().map { "\($0) " }.joined()
                _ = try await database.change(
                    ["UPDATE erasures SET touched = touched || \(names) WHERE erasure_id = \(erasure.id)"], as: .owner)
                tables.formUnion(new)
            }
            let before = count
            for part in dialect.parts(rows.compactMap(\.[0])) {
                try Task.checkCancellation()
                count += Int64(try await change(erasure, "\(part) AND \(left)", work))
                progress(count)
            }
            if rows.isEmpty, isSettled { break }
            // Somebody else may have been faster, a few times.
            vain = rows.isEmpty || count > before ? 0 : vain + 1
            guard vain < Tombstone.attempts else { throw StoreError.unavailable(Tombstone.unchangeable) }
            if count == before { try await Task.sleep(for: Self.pause) }
        }
        if erasure.isOfProject { _ = try await change(erasure, "event <> '' AND NOT (\(left))", Tombstone.bury) }
        return try await finish(erasure, user)
    }

    /// Forgets what is known of the user or the project apart from its events.
    private func finish(_ erasure: Erasure, _ user: String) async throws -> Erasure? {
        // nil once somebody else has removed the project.
        guard let row = try await database.ask("SELECT touched, rows FROM erasures WHERE erasure_id = \(erasure.id)", as: .own).first else {
            return nil
        }
        guard let touched = row[0], let count = row[1].flatMap({ Int64($0) }) else {
            throw StoreError.unavailable("its erasures cannot be read")
        }
        let theirs = Self.rows(of: user, erasure.projectID)
        let tables = erasure.isOfProject ? Self.tablesOfProject : ["report_users"]
        // While no day is being closed: that would note a user of whom it has just read.
        let isForgotten = Locked(false)
        try await database.exclusively { () async throws(StoreError) in
            _ = try await database.change(tables.map { "DELETE FROM \(StoreSQL(stringLiteral: $0)) WHERE \(theirs)" }, as: .owner)
            isForgotten.withLock { $0 = true }
        }
        guard isForgotten.withLock({ $0 }) else { return nil }
        try await database.tidy(Set(touched.split(separator: " ").map(String.init)).union(tables))
        guard !erasure.isOfProject else {
            var done = erasure
            (done.rows, done.doneAt) = (count, try await database.settled())
            return done
        }
        _ = try await database.change(
            [
                """
                UPDATE erasures SET distinct_id = NULL, touched = '', done_at = \(dialect.now(try await database.settled()))
                WHERE erasure_id = \(erasure.id) AND done_at IS NULL
                """
            ], as: .owner)
        // It held the id until now.
        try await database.tidy(["erasures"])
        return try await self.erasure(erasure.id).flatMap { $0.doneAt == nil ? nil : $0 }
    }

    /// All that is noted by project, each after those that refer to it.
    private static let tablesOfProject =
        ["installs"] + ReportTables.all + ["removals", "keys", "blocked_users", "derived_ids", "sender_days", "erasures", "projects"]

    /// Does an erasure, or waits for the server that does it.
    ///
    /// - Throws: ``Registry/Problem/notFound(_:)`` if the project is removed meanwhile.
    package func finished(_ erasure: Erasure, progress: @Sendable (Int64) -> Void = { _ in }) async throws -> Erasure {
        var latest = erasure
        while true {
            if let done = try await perform(erasure, progress: progress) { return done }
            guard let known = try await self.erasure(erasure.id) else {
                guard erasure.isOfProject else { throw Registry.Problem.notFound("the project has been removed meanwhile") }
                return latest
            }
            if known.doneAt != nil { return known }
            latest = known
            // A server has begun it, or is closing a day.
            try await Task.sleep(for: .milliseconds(200))
        }
    }

    /// - Returns: How many rows were changed.
    private func change(_ erasure: Erasure, _ rows: StoreSQL, _ work: (StoreSQL) -> StoreSQL) async throws(StoreError) -> Int {
        let theirs: StoreSQL = "project_id = \(erasure.projectID) AND \(rows)"
        let statements: [StoreSQL] = [
            // Locks it, so that of two who erase the same rows one waits here: its next statement counts what is left then.
            "UPDATE erasures SET rows = rows WHERE erasure_id = \(erasure.id)",
            """
            UPDATE erasures SET rows = rows + (SELECT count(*) FROM events WHERE \(theirs) AND event <> '') WHERE erasure_id = \(erasure.id)
            """,
        ]
        let books = erasure.isOfProject ? [] : StoredNumbers.remove(theirs, dialect)
        return try await database.changeInTurn(statements + books + [work(theirs)]).count
    }
}

extension Erasures.Erasure {
    fileprivate init(_ row: [String?]) throws(StoreError) {
        guard row.count == 6, let id = row[0].flatMap({ Int32($0) }), let projectID = row[1].flatMap({ Int32($0) }),
            let askedAt = row[3].flatMap({ Int64($0) }), let rows = row[5].flatMap({ Int64($0) })
        else { throw .unavailable("its erasures cannot be read") }
        self.init(id: id, projectID: projectID, user: row[2], askedAt: askedAt, doneAt: row[4].flatMap { Int64($0) }, rows: rows)
    }
}
