/// A pooler between this server and PostgreSQL must leave each connection its own session: settings are pinned, statements prepared and locks
/// held in it.
enum PostgresPooling {
    /// A pooler that gives each transaction any free session (PgBouncer's `pool_mode = transaction`) serves two open connections through the
    /// same session, one after the other.
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
                // With pool_mode = statement BEGIN is refused. If the database itself is gone, the first connection fails here, too, and
                // throws.
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
