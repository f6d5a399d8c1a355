/// The checks that a database must pass before an event in it may be acknowledged.
enum PostgresSettings {
    /// The first with `minmax_multi`, which the BRIN index needs. The tests run on 15 to 18.
    private static let oldestMajorVersion = 14

    /// Checks version, encoding, pooling and durability before anything is changed.
    ///
    /// - Returns: The role that serves.
    static func check(_ connection: PostgresConnection, _ uri: String, allowsUnsafe: Bool) throws(StoreError) -> String {
        guard connection.majorVersion >= oldestMajorVersion else {
            throw .unusable("PostgreSQL \(connection.majorVersion) is too old; \(oldestMajorVersion) or later is needed")
        }
        try checkEncoding(connection)
        try PostgresPooling.check(connection, uri)
        if !allowsUnsafe { try checkDurability(connection) }
        return try translating { () throws(PostgresError) in try connection.query("SELECT current_user").first?[0] ?? "" }
    }

    /// The settings and partitions that make it unsafe. With `track_activities` off no session sees when another one's transaction began, and
    /// a day would close before its last events are stored. The others can lose an acknowledged event (I4): COMMIT returns before the commit
    /// is on disk, a crash can leave a torn page (https://www.postgresql.org/docs/current/runtime-config-wal.html) or empties a table
    /// (https://www.postgresql.org/docs/current/sql-createtable.html, UNLOGGED).
    /// Reads `pg_inherits`, because `pg_partition_tree` would wait for locks on the partitions.
    static func unsafe(_ connection: PostgresConnection) throws(PostgresError) -> [String] {
        try connection.query(
            """
            SELECT name || '=' || setting FROM pg_settings
            WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'track_activities') AND setting = 'off'
            UNION ALL
            SELECT relname || ' UNLOGGED' FROM pg_class
            WHERE relpersistence = 'u' AND oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('events'))
            ORDER BY 1
            """
        ).compactMap { $0[0] }
    }

    /// Sets the session's settings to their present values, so that a later change and reload does not reach it
    /// (https://www.postgresql.org/docs/current/config-setting.html). A `synchronous_commit` stronger than `on` is kept, too.
    static func pin(_ connection: PostgresConnection) throws(PostgresError) {
        _ = try connection.query(
            "SELECT set_config(name, current_setting(name), false) FROM unnest('{synchronous_commit,search_path}'::text[]) AS name")
    }

    /// Checked for every session, and again while it lives: `fsync` and `full_page_writes` cannot be pinned.
    ///
    /// - Throws: ``StoreError/unusable(_:)``.
    static func checkDurability(_ connection: PostgresConnection) throws(StoreError) {
        let settings = try translating { () throws(PostgresError) in try unsafe(connection) }
        guard settings.isEmpty else {
            throw .unusable(
                "an acknowledged event could be lost, or be missing from its day, with \(settings.joined(separator: ", ")); "
                    + "mend it, or start with --\(ServerSetting.unsafeAllowNonDurableStore.name)")
        }
    }

    /// Gives up a session whose server has become read-only, as after a failover: the next session may reach the new primary.
    static func checkWritable(_ connection: PostgresConnection) throws(StoreError) {
        let isReadOnly = try translating { () throws(PostgresError) in try connection.query("SHOW transaction_read_only").first?[0] == "on"
        }
        guard isReadOnly else { return }
        connection.giveUp()
        throw .unavailable("the database is read-only")
    }

    /// After a failover the clock may be another machine's. An event received before an instant that was already reported as settled would be
    /// missing from a closed day, and from an export that has passed that instant.
    ///
    /// - Parameter reported: The latest instant that this server has reported, in Unix milliseconds; how far days are closed is in the database.
    static func checkClock(_ connection: PostgresConnection, reported: Int64) throws(StoreError) {
        let sql = """
            SELECT now() <= greatest(to_timestamp($1::int8 / 1000.0), (SELECT late_to FROM report_late_progress),
              (SELECT max(folded_to) FROM report_progress))
            """
        let isBehind = try translating { () throws(PostgresError) in try connection.query(sql, ["\(reported)"]).first?[0] == "t" }
        if isBehind { throw .clockBehind }
    }

    /// Requires UTF8: another encoding cannot hold every text, and valid events would be refused.
    static func checkEncoding(_ connection: PostgresConnection) throws(StoreError) {
        let encoding = try translating { () throws(PostgresError) in try connection.query("SHOW server_encoding").first?[0] }
        guard encoding == "UTF8" else {
            throw .unusable("its encoding is \(encoding ?? "unknown"); create the database with ENCODING 'UTF8'")
        }
    }
}
