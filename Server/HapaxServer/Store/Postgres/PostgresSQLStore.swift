import HapaxModel

/// SQL in PostgreSQL, on a connection for each purpose: people's questions use the reader's heavy sessions.
final class PostgresSQLStore: SQLStore {
    private let reader: PostgresReader
    private let own: PostgresAdministration
    private let search: PostgresQuerySession
    private let closing: PostgresQuerySession
    /// Changes settings and erases rows, and waits for no month that is made and no table that is vacuumed.
    private let changes: PostgresUpkeep
    private let upkeep: PostgresUpkeep
    /// The latest instant that was reported as settled, in Unix milliseconds.
    private let told: Locked<Int64>
    private let trust = Locked<ClockTrust?>(nil)
    private let turn = ExclusiveTurn()

    /// Keeps two servers from closing the same days at once. An arbitrary number that no other program is likely to use.
    private static let advisoryLock: Int64 = 0x4861_7061_79

    /// - Parameters:
    ///   - uri: Of the serving role.
    ///   - admin: Of the role that owns the tables.
    init(
        uri: String, admin: String, reader: PostgresReader, own: PostgresAdministration, upkeep: PostgresUpkeep,
        breaker: Locked<ConnectionBreaker>, told: Locked<Int64>
    ) {
        (self.reader, self.own, self.upkeep, self.told) = (reader, own, upkeep, told)
        changes = PostgresUpkeep(uri: admin, breaker: breaker)
        search = PostgresQuerySession(uri: uri, name: "search", breaker: breaker, longest: ServerLimits.ownWork)
        closing = PostgresQuerySession(uri: uri, name: "closing", breaker: breaker, longest: ServerLimits.ownWork, isReadOnly: false)
    }

    /// Those of its own.
    func close() async {
        await search.close()
        await closing.close()
        await changes.close()
    }

    var dialect: Dialect { Self.dialect }

    static let dialect = Dialect(
        isAhead: "time - received_at > interval '86400 seconds'",
        // `numeric` keeps the number exactly as it was sent. The floor of half a millisecond more rounds half up. PostgreSQL sums an `int4`
        // in 8 bytes a user, and an `int8` in ten times as many.
        duration: """
            CASE WHEN jsonb_typeof(properties -> '$event_duration') = 'number'
              AND (properties -> '$event_duration')::numeric BETWEEN 0 AND 86400
            THEN floor((properties -> '$event_duration')::numeric * 1000 + 0.5)::int4 END
            """,
        least: "least", milliseconds: { "(extract(epoch FROM \($0)) * 1000)::int8" },
        bucket: "bucket", monthOfBucket: "to_char(date '1970-01-01' + bucket, 'YYYY-MM')",
        rowKey: "event_id || ' ' || bucket, tableoid::regclass",
        rows: { keys in
            let parts = keys.map { $0.split(separator: " ") }
            let buckets = parts.compactMap { $0.last.flatMap { Int32($0) } }
            let ids = "{\(parts.compactMap(\.first).joined(separator: ","))}"
            // The span of buckets leaves out the months that hold none of them.
            return "event_id = ANY (\(ids)) AND bucket >= \(buckets.min() ?? 0) AND bucket <= \(buckets.max() ?? 0)"
        },
        sorted: { keys in
            keys.map { (bucket: $0.split(separator: " ").last.flatMap { Int32($0) } ?? 0, key: $0) }
                .sorted { ($0.bucket, $0.key) < ($1.bucket, $1.key) }.map(\.key)
        },
        isRemovable: "true", uuidText: { "\($0)::text" }, uuid: { "CAST(\($0.description) AS uuid)" },
        sinceMade: { "AND received_at >= (SELECT created_at FROM projects WHERE project_id = \($0))" }, lock: " FOR UPDATE",
        ranges: { "range_agg(int8range(\($0), \($1), '[]'))" },
        // Where there are too many, neighbours are joined.
        union: { left, right in
            """
            (SELECT CASE WHEN (SELECT count(*) FROM unnest(u)) <= \(StoredNumbers.maximumRanges) THEN u ELSE (
              SELECT range_agg(int8range(first, last)) FROM (
                SELECT min(lower(r)) AS first, max(upper(r)) AS last FROM (
                  SELECT r, ntile(\(StoredNumbers.maximumRanges / 2)) OVER (ORDER BY r) AS part FROM unnest(u) AS r
                ) AS parts GROUP BY part
              ) AS joined) END FROM (SELECT \(left) + \(right) AS u) AS total)
            """
        },
        minus: { "(\($0) - \($1))" },
        text: { "\($0)::text" },
        // Step by step: the operator for paths takes a number for a place in an array.
        value: { name in
            let steps = name.split(separator: ".", omittingEmptySubsequences: false)
            let path = steps.dropFirst().reduce("properties -> \(String(steps[0]))::text" as StoreSQL) { "\($0) -> \(String($1))::text" }
            return steps.count < 2 ? "(\(path))" : "coalesce(properties -> \(name)::text, \(path))"
        },
        valueOf: { "\($0)::jsonb" },
        textOfValue: {
            "CASE WHEN jsonb_typeof(\($0)) = 'number' THEN trim_scale(\($0)::numeric)::text ELSE \($0)::text END COLLATE \"C\""
        },
        anonymousID: "CASE WHEN jsonb_typeof(properties -> '$anonymous_id') = 'string' THEN properties ->> '$anonymous_id' END",
        now: { _ in "now()" })

    func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]] {
        let statements = statements.map(\.forPostgres)
        switch purpose {
        case .question(let deadline): return try await reader.heavyAnswers(statements, until: deadline)
        case .own: return try await own.answers(statements)
        case .search(let time): return try await search.answers(statements, within: time)
        case .closing: return try await closing.answers(statements, within: ServerLimits.ownWork)
        case .owner: return try await upkeep.answers(statements)
        }
    }

    func each(
        _ sql: StoreSQL, until deadline: ContinuousClock.Instant, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) {
        let (text, values) = sql.forPostgres
        try await reader.heavyRows(text, values, until: deadline, row)
    }

    func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        let statements = statements.map(\.forPostgres)
        switch purpose {
        case .own: return try await own.change(statements)
        case .closing: return try await closing.change(statements, within: ServerLimits.ownWork)
        case .owner: return try await changes.change(statements)
        case .question, .search: throw .notPermitted
        }
    }

    func tidy(_ tables: Set<String>) async throws(StoreError) { try await upkeep.vacuum(tables.sorted()) }

    func clear(_ buckets: Range<Int32>) async throws(StoreError) { try await upkeep.clear(buckets) }

    /// The rows of an open transaction are received when it began, so the oldest one is the limit. One that begins now is visible in
    /// `pg_stat_activity` within two seconds.
    func clock() async throws(StoreError) -> StoreClock {
        let ms = Self.dialect.milliseconds
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
        told.withLock { $0 = max($0, min(clock.settled, clock.closing)) }
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
