import HapaxModel

/// A connection to PostgreSQL that is opened when it is needed, and again after it was lost. Each belongs to one actor.
struct PostgresSession {
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
        prepare: @escaping @Sendable (PostgresConnection) throws(StoreError) -> Void = { (_) throws(StoreError) in }
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

    /// The rows of each statement, of several as of one moment.
    mutating func answers(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) -> [[[String?]]] {
        try use(isRepeatable: true) { (connection) throws(StoreError) in
            func ask() throws(StoreError) -> [[[String?]]] {
                try translating { () throws(PostgresError) in
                    var answers: [[[String?]]] = []
                    for statement in statements { answers.append(try connection.query(statement.sql, statement.parameters)) }
                    return answers
                }
            }
            guard statements.count > 1 else { return try ask() }
            return try PostgresTransaction.run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ", ask)
        }
    }

    /// Runs all statements in one transaction.
    ///
    /// - Returns: The rows of the last one.
    mutating func change(_ statements: [(sql: String, parameters: [String])]) throws(StoreError) -> [[String?]] {
        try use { (connection) throws(StoreError) in
            try PostgresTransaction.run(connection) { () throws(StoreError) in
                try translating { () throws(PostgresError) in try connection.last(statements) }
            }
        }
    }

    private mutating func attempt<Value>(
        _ connection: PostgresConnection, _ body: (PostgresConnection) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        self.connection = connection
        defer { if connection.isBroken { self.connection = nil } }
        return try body(connection)
    }
}

extension PostgresConnection {
    /// Runs the statements one after the other.
    ///
    /// - Returns: The rows of the last one.
    func last(_ statements: [(sql: String, parameters: [String])]) throws(PostgresError) -> [[String?]] {
        var rows: [[String?]] = []
        for statement in statements { rows = try query(statement.sql, statement.parameters) }
        return rows
    }
}
