/// What stands between this server and PostgreSQL must leave each connection its own session: settings are pinned, statements prepared and
/// locks held in it.
enum PostgresPooling {
    /// Where a pooler gives each transaction whatever session is free (PgBouncer's `pool_mode = transaction`), the one that has just been
    /// used is the next one's, though both connections are open.
    ///
    /// - Throws: ``StoreError/unusable(_:)``.
    static func check(_ connection: PostgresConnection, _ uri: String) throws(StoreError) {
        let isShared = try translating { () throws(PostgresError) in
            let session = "SELECT pg_backend_pid()"
            let ours = try connection.query(session)
            let other = try PostgresConnection(uri: uri, deadline: .seconds(10))
            do throws(PostgresError) {
                try other.execute("BEGIN")
            } catch {
                // Where not even a transaction keeps its session (pool_mode = statement); a database that has gone does not answer the
                // first one either.
                _ = try connection.query(session)
                return true
            }
            return try other.query(session) == ours
        }
        guard isShared else { return }
        throw .unusable(
            "a pooler in front of it gives each transaction another session (PgBouncer's pool_mode = transaction); "
                + "connect to PostgreSQL itself, or let the pooler keep one session for each connection (pool_mode = session)")
    }
}
