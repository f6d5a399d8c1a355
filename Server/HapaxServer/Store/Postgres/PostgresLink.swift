import HapaxModel

/// A connection to PostgreSQL that is opened when it is needed, and again after it was lost. Each belongs to one actor.
struct PostgresLink {
    let uri: String
    let breaker: Locked<ConnectionBreaker>
    /// How long the database may take to answer one statement before the connection is given up.
    let deadline: Duration
    /// Makes a fresh connection ready.
    let prepare: @Sendable (PostgresConnection) throws(StoreError) -> Void

    private var connection: PostgresConnection?
    private var isClosed = false

    init(
        uri: String, breaker: Locked<ConnectionBreaker>, deadline: Duration,
        prepare: @escaping @Sendable (PostgresConnection) throws(StoreError) -> Void
    ) {
        (self.uri, self.breaker, self.deadline, self.prepare) = (uri, breaker, deadline, prepare)
    }

    /// Closes the connection; no other one is opened afterwards.
    mutating func close() {
        connection = nil
        isClosed = true
    }

    /// - Parameter isRepeatable: Whether `body` changes nothing, so that it may be tried once more if the connection was lost while nobody used it.
    mutating func use<Value>(
        isRepeatable: Bool = false, _ body: (PostgresConnection) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        if isRepeatable, let rested = connection {
            do throws(StoreError) { return try attempt(rested, body) } catch {
                guard rested.isBroken, error != .tooHeavy else { throw error }
            }
        }
        if let connection { return try attempt(connection, body) }
        guard !isClosed else { throw .unavailable("the store is closed") }
        let fresh = try PostgresConnection.open(uri, breaker, deadline: deadline)
        try prepare(fresh)
        return try attempt(fresh, body)
    }

    private mutating func attempt<Value>(
        _ connection: PostgresConnection, _ body: (PostgresConnection) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        self.connection = connection
        defer { if connection.isBroken { self.connection = nil } }
        return try body(connection)
    }
}
