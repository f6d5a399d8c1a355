import HapaxModel

/// SQL in PostgreSQL, on a connection for each purpose: people's questions use the reader's heavy sessions.
final class PostgresSQLStore: SQLStore {
    let reader: PostgresReader
    let own: PostgresSession
    private let search: PostgresSession
    private let closing: PostgresSession
    /// Changes settings and erases rows, and waits for no month that is made and no table that is vacuumed.
    private let changes: PostgresSession
    let upkeep: PostgresSession
    /// The latest instant that was reported as settled, in Unix milliseconds.
    private let reported: Locked<Int64>
    private let trust = Locked<ClockTrust?>(nil)
    private let turn = ExclusiveTurn()

    /// Keeps two servers from closing the same days at once. An arbitrary number that no other program is likely to use.
    private static let advisoryLock: Int64 = 0x4861_7061_79

    /// - Parameters:
    ///   - uri: Of the serving role.
    ///   - admin: Of the role that owns the tables.
    init(uri: String, admin: String, breaker: Locked<ConnectionBreaker>, reported: Locked<Int64>) {
        self.reported = reported
        reader = PostgresReader(uri: uri, breaker: breaker)
        own = PostgresSession(.own, uri: uri, breaker: breaker)
        search = PostgresSession(.search, uri: uri, breaker: breaker)
        closing = PostgresSession(.closing, uri: uri, breaker: breaker)
        changes = PostgresSession(.owner, uri: admin, breaker: breaker)
        upkeep = PostgresSession(.owner, uri: admin, breaker: breaker)
    }

    func close() async {
        await reader.close()
        for session in [search, closing, changes, upkeep, own] { await session.close() }
    }

    var dialect: Dialect { .postgres }

    func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]] {
        let statements = statements.map(\.forPostgres)
        switch purpose {
        case .question(let turn): return try await reader.session(of: turn).answers(statements, in: turn)
        case .own: return try await own.answers(statements)
        case .search(let time): return try await search.answers(statements, in: QuestionTurn(within: time))
        case .closing: return try await closing.answers(statements)
        case .owner: return try await upkeep.answers(statements)
        }
    }

    func each(
        _ sql: StoreSQL, in turn: QuestionTurn, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) {
        let (text, values) = sql.forPostgres
        try await reader.session(of: turn).each(text, values, in: turn, row)
    }

    func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        let statements = statements.map(\.forPostgres)
        switch purpose {
        case .own: return try await own.change(statements)
        case .closing: return try await closing.change(statements)
        case .owner:
            guard try await changes.look(PostgresRoles.mayChange) else { throw .notPermitted }
            return try await changes.change(statements)
        case .question, .search: throw .notPermitted
        }
    }

    /// Removes old versions of rows, whatever autovacuum would wait for (https://www.postgresql.org/docs/current/sql-vacuum.html).
    func tidy(_ tables: Set<String>) async throws(StoreError) {
        // As often as it is done it is the same.
        try await upkeep.look { (connection) throws(PostgresError) in
            for table in tables.sorted() { try connection.execute("VACUUM (ANALYZE) \(table)") }
        }
    }

    /// Fails if it would have to wait for a lock for long.
    func clear(_ buckets: Range<Int32>) async throws(StoreError) {
        guard try await upkeep.look(PostgresRoles.mayChange) else { throw .notPermitted }
        try await upkeep.use { (connection) throws(StoreError) in try PostgresPartitions.clear(connection, buckets) }
    }

    /// The rows of an open transaction are received when it began, so the oldest one is the limit. One that begins now is visible in
    /// `pg_stat_activity` within two seconds.
    func clock() async throws(StoreError) -> StoreClock {
        let ms = dialect.milliseconds
        let question: StoreSQL = """
            SELECT floor(extract(epoch FROM least(now() - interval '2 seconds', (
              SELECT min(xact_start) FROM pg_stat_activity
              WHERE application_name = \(PostgresWriter.applicationName) AND datname = current_database()
            ))) * 1000)::int8, \(ms("late_to")), \(ms("accepted")) FROM report_late_progress, clock
            """
        guard let row = try await ask(question, as: .own).first?.map({ $0.flatMap { Int64($0) } }), let shown = row[0],
            let known = row[1]
        else { throw .unavailable("its clock cannot be read") }
        let now = ContinuousClock.now
        let clock = trust.withLock { trust in
            var next = trust ?? ClockTrust(known: known, clock: shown, at: now)
            defer { trust = next }
            return next.read(shown, accepted: row[2] ?? 0, at: now)
        }
        // What is not believed is no promise: a clock that goes back to where it was may store again.
        reported.withLock { $0 = max($0, min(clock.settled, clock.closing)) }
        return clock
    }

    func received(from: Int64, to: Int64, parts: SpanParts) async throws(StoreError) -> [StoreSQL] {
        from < to ? ["received_at >= \(instant: from) AND received_at < \(instant: to)"] : []
    }

    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) {
        try await turn.run { () async throws(StoreError) in
            guard try await ask("SELECT pg_try_advisory_lock(\(Self.advisoryLock))", as: .closing).first?[0] == "t" else { return }
            let result: Result<Void, StoreError>
            do throws(StoreError) { result = .success(try await body()) } catch { result = .failure(error) }
            // A session that was lost has lost its lock as well.
            _ = try? await ask("SELECT pg_advisory_unlock(\(Self.advisoryLock))", as: .closing)
            try result.get()
        }
    }
}

extension StoreSQL {
    var forPostgres: (sql: String, parameters: [String]) {
        let (text, values) = rendered { "$\($0)" }
        let parameters = values.map { value in
            switch value {
            case .integer(let number): "\(number)"
            case .text(let text): text
            case .instant(let milliseconds): Timestamp(clampingUnixMilliseconds: milliseconds).description
            }
        }
        return (text, parameters)
    }
}
