import HapaxModel

/// What can be said of a PostgreSQL store without changing it.
struct PostgresCheck {
    let uri: String
    let options: PostgresEventStore.Options
    /// Unix milliseconds.
    let now: Int64
    let hasFixedKeys: Bool
    let isDeep: Bool

    /// How far the clocks of server and database may be apart, in milliseconds.
    private static let clockPatience: Int64 = 5_000

    func findings() async -> [Finding] {
        let breaker = Locked(ConnectionBreaker())
        let database = PostgresSQLStore(uri: uri, admin: options.admin ?? uri, breaker: breaker, reported: Locked(0))
        let (own, owner) = (database.own, database.upkeep)
        var findings: [Finding] = []
        do throws(StoreError) {
            let role = try await own.use { [uri] (connection) throws(StoreError) in
                try PostgresSettings.check(connection, uri, allowsUnsafe: true)
            }
            findings += try await own.look(PostgresSettings.unsafe).map { complaint in
                let text = "an acknowledged event could be lost, or be missing from its day, with \(complaint)"
                return options.unsafeAllowNonDurableStore
                    ? .warn("durability", text) : .fail("durability", text, help: "ALTER SYSTEM RESET it, then SELECT pg_reload_conf()")
            }
            findings += [try await clock(database)]
            let applied = try await own.look(PostgresSchema.applied)
            let schema = try await SchemaCheck.finding(
                applied: applied, known: PostgresSchema.migrations.map { ($0.name, $0.change) }
            ) { (table) throws(StoreError) in
                // As ANALYZE has last estimated them, with those of the partitions.
                let rows = try await database.ask(
                    """
                    SELECT sum(greatest(reltuples, 0))::int8 FROM pg_class WHERE oid = to_regclass(\(table))
                      OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(\(table)))
                    """, as: .own)
                return rows.first?[0].flatMap { Int64($0) }
            }
            findings.append(schema)
            if applied.isEmpty, try await !owner.look(PostgresRoles.mayCreate) {
                findings.append(
                    .fail(
                        "roles", "\(role) may make no tables", help: "GRANT CREATE, USAGE ON SCHEMA public TO it, or set HAPAX_STORE_ADMIN")
                )
            }
            // Else the sessions would stay open.
            if !applied.isEmpty, schema.verdict != .fail {
                findings.append(try await roles(role, owner))
                findings += try await triggers(database)
            }
            if schema.verdict == .ok {
                findings += try await StoreCheck(
                    database: database, reader: database.reader, now: now, hasFixedKeys: hasFixedKeys, isDeep: isDeep
                )
                .findings()
            }
        } catch {
            findings.append(.fail("store", "\(error)"))
        }
        await database.close()
        return findings
    }

    private func triggers(_ database: PostgresSQLStore) async throws(StoreError) -> [Finding] {
        let rows = try await database.ask(
            """
            SELECT DISTINCT tgname FROM pg_trigger WHERE NOT tgisinternal AND (tgrelid = 'events'::regclass
              OR tgrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'events'::regclass)) ORDER BY 1
            """, as: .own)
        return rows.compactMap { $0[0] }.map {
            .fail("triggers", "the trigger \($0) on events can keep every batch from being stored", help: "DROP TRIGGER \($0) ON events")
        }
    }

    private func clock(_ database: PostgresSQLStore) async throws(StoreError) -> Finding {
        let rows = try await database.ask("SELECT (extract(epoch FROM now()) * 1000)::int8", as: .own)
        guard let shown = rows.first?[0].flatMap({ Int64($0) }) else { throw .unavailable("its clock cannot be read") }
        let apart = abs(shown - now)
        let text = "the database's and this machine's are \(apart) ms apart"
        return apart > Self.clockPatience
            ? .warn("clock", text, help: "keep both in step (NTP); the database's counts") : .ok("clock", text)
    }

    private func roles(_ role: String, _ owner: PostgresSession) async throws(StoreError) -> Finding {
        let mayChange = try await owner.look(PostgresRoles.mayChange)
        if mayChange, try await !owner.look(PostgresRoles.mayMakeTemporary) {
            return .fail(
                "roles", "who owns the tables may make no temporary ones, which retention needs", help: "GRANT TEMPORARY ON DATABASE to it")
        }
        if mayChange, options.admin != nil { return .ok("roles", "\(role) serves, another one owns the tables") }
        if mayChange {
            return .ok("roles", "\(role) serves and owns the tables; two roles are safer (docs/operations.md)")
        }
        return .warn(
            "roles", "\(role) may make no months, change no keys and erase nothing",
            help: "set HAPAX_STORE_ADMIN at one server, before the last month begins")
    }
}
