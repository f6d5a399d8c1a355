/// What must hold of a database before anything is acknowledged from it.
enum PostgresSettings {
    /// With `track_activities` off no session sees when another one's transaction began, and a day would close before its last events are
    /// there. With the others an acknowledged event can be lost (I4): COMMIT returns before the commit is on disk, a crash can leave a torn
    /// page (https://www.postgresql.org/docs/current/runtime-config-wal.html) or empties a table
    /// (https://www.postgresql.org/docs/current/sql-createtable.html, UNLOGGED).
    /// Of `pg_inherits`: `pg_partition_tree` would wait for whoever holds one of the partitions.
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

    /// Makes the session keep what it found, whatever somebody changes and reloads later
    /// (https://www.postgresql.org/docs/current/config-setting.html): a stronger `synchronous_commit` than `on` stays as it is, too.
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

    /// A session on a server that became read-only, such as one that another was promoted over, is given up: the next one may find that other.
    static func checkWritable(_ connection: PostgresConnection) throws(StoreError) {
        let isReadOnly = try translating { () throws(PostgresError) in try connection.query("SHOW transaction_read_only").first?[0] == "on"
        }
        guard isReadOnly else { return }
        connection.giveUp()
        throw .unavailable("the database is read-only")
    }

    /// After a failover the clock may be another machine's. What is stored below what has been told as settled would come too late for a
    /// day that is closed, and behind an export that has passed it.
    ///
    /// - Parameter told: In Unix milliseconds, by this server; what days were closed by is in the database itself.
    static func checkClock(_ connection: PostgresConnection, told: Int64) throws(StoreError) {
        let sql = """
            SELECT now() <= greatest(to_timestamp($1::int8 / 1000.0), (SELECT late_to FROM report_late_progress),
              (SELECT max(folded_to) FROM report_progress))
            """
        let isBehind = try translating { () throws(PostgresError) in try connection.query(sql, ["\(told)"]).first?[0] == "t" }
        if isBehind { throw .clockBehind }
    }

    /// In any other encoding some text has no place, and good events would be refused for it.
    static func checkEncoding(_ connection: PostgresConnection) throws(StoreError) {
        let encoding = try translating { () throws(PostgresError) in try connection.query("SHOW server_encoding").first?[0] }
        guard encoding == "UTF8" else {
            throw .unusable("its encoding is \(encoding ?? "unknown"); create the database with ENCODING 'UTF8'")
        }
    }
}
