/// What must hold of a database before anything is acknowledged from it.
enum PostgresSettings {
    /// The settings with which an acknowledged event can be lost (I4): COMMIT returns before the commit is on disk, or a crash can leave a torn
    /// page (https://www.postgresql.org/docs/current/runtime-config-wal.html).
    static func unsafe(_ connection: PostgresConnection) throws(PostgresError) -> [String] {
        try connection.query(
            """
            SELECT name || '=' || setting FROM pg_settings
            WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting = 'off' ORDER BY name
            """
        ).compactMap { $0[0] }
    }

    /// Checked for every session: a setting may change between two of them.
    ///
    /// - Throws: ``StoreError/unusable(_:)``.
    static func checkDurability(_ connection: PostgresConnection) throws(StoreError) {
        let settings = try translating { () throws(PostgresError) in try unsafe(connection) }
        guard settings.isEmpty else {
            throw .unusable(
                "an acknowledged event could be lost with \(settings.joined(separator: ", ")); "
                    + "set it on, or start with --\(ServerSetting.unsafeAllowNonDurableStore.name)")
        }
    }

    /// In any other encoding some text has no place, and good events would be refused for it.
    static func checkEncoding(_ connection: PostgresConnection) throws(StoreError) {
        let encoding = try translating { () throws(PostgresError) in try connection.query("SHOW server_encoding").first?[0] }
        guard encoding == "UTF8" else {
            throw .unusable("its encoding is \(encoding ?? "unknown"); create the database with ENCODING 'UTF8'")
        }
    }
}
