/// Keeps secrets out of messages about a connection (I14): libpq quotes what it takes for a host, a port or a database, which can be a piece of
/// a password with an unescaped `@` or `/`.
enum PostgresURI {
    /// - Throws: ``PostgresError`` if libpq cannot read the URI, or if its host or port can only be a piece of a password.
    static func check(_ uri: String) throws(PostgresError) {
        let advice = "; in a password @ is written %40, / is %2F, : is %3A"
        guard let parts = PostgresConnection.hostAndPort(uri) else {
            throw PostgresError(kind: .connection, sqlState: nil, summary: "the URI cannot be read\(advice)")
        }
        let ports = parts.port.split(separator: ",")
        guard !parts.host.contains("@"), ports.allSatisfy({ UInt16($0) != nil }) else {
            throw PostgresError(kind: .connection, sqlState: nil, summary: "the URI's host or port makes no sense\(advice)")
        }
    }

    /// The reason for a failed connection in our own words.
    static func summary(ofFailure message: String) -> String {
        let reasons = [
            ("Connection refused", "the connection was refused"), ("timeout expired", "no answer in time"),
            ("could not translate host name", "the host's name is not known"), ("No route to host", "there is no route to the host"),
            ("password authentication failed", "the password was refused"), ("no password supplied", "a password is needed"),
            ("no pg_hba.conf entry", "the server does not admit this host or user"), ("starting up", "the database is starting up"),
            ("shutting down", "the database is shutting down"), ("recovery mode", "the database is recovering"),
            ("too many", "the database has too many connections"), ("remaining connection slots", "the database has too many connections"),
            ("read-only", "the database is read-only"), ("not currently accepting", "the database takes no connections"),
            ("does not exist", "the user or the database does not exist"), ("SSL", "TLS could not be agreed on"),
        ]
        return reasons.first { message.contains($0.0) }?.1 ?? "the connection failed"
    }
}
