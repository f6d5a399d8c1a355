import CLibpq
import HapaxModel

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// One connection to PostgreSQL through libpq, the only file that sees it. Every call blocks; an instance belongs to one actor.
///
/// libpq: https://www.postgresql.org/docs/current/libpq.html
package final class PostgresConnection {
    private let connection: OpaquePointer

    /// What libpq is told unless the URI says otherwise. A connection that went silent ends within seconds instead of hours.
    private static let defaults = [
        ("connect_timeout", "5"), ("application_name", "hapax-server"), ("keepalives_idle", "10"), ("keepalives_interval", "5"),
        ("keepalives_count", "3"), ("tcp_user_timeout", "15000"), ("client_encoding", "UTF8"),
    ]

    /// - Parameter uri: `postgres://user:password@host:port/database?parameters`.
    package init(uri: String) throws(PostgresError) {
        var parse: UnsafeMutablePointer<CChar>?
        guard let options = PQconninfoParse(uri, &parse) else {
            // libpq's own message quotes the URI, password included.
            PQfreemem(parse)
            throw PostgresError(kind: .connection, sqlState: nil, summary: "the URI cannot be read")
        }
        PQconninfoFree(options)
        // Later parameters override earlier ones, so the URI comes last.
        let parameters = Self.defaults + [("dbname", uri)]
        let connection = Self.withCStrings(parameters.map(\.0)) { keys in
            Self.withCStrings(parameters.map(\.1)) { values in PQconnectdbParams(keys, values, 1) }
        }
        guard let connection else { throw PostgresError(kind: .connection, sqlState: nil, summary: "out of memory") }
        guard PQstatus(connection) == CONNECTION_OK else {
            let summary = Self.summary(of: String(cString: PQerrorMessage(connection)))
            PQfinish(connection)
            throw PostgresError(kind: .connection, sqlState: nil, summary: summary)
        }
        // Notices may quote data; nothing may reach standard error behind our back.
        PQsetNoticeProcessor(connection, { _, _ in }, nil)
        self.connection = connection
    }

    deinit {
        PQfinish(connection)
    }

    /// Whether the connection is known to be lost.
    package var isBroken: Bool { PQstatus(connection) != CONNECTION_OK }

    /// 15 for PostgreSQL 15.
    package var majorVersion: Int { Int(PQserverVersion(connection)) / 10_000 }

    // MARK: - Statements

    /// Runs one or several statements without parameters.
    package func execute(_ sql: String) throws(PostgresError) {
        _ = try checked(PQexec(connection, sql))
    }

    /// Runs one statement with parameters as text; every value is returned as text.
    package func query(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> [[String?]] {
        let result = Self.withOptionalCStrings(parameters) { values in
            PQexecParams(connection, sql, Int32(parameters.count), nil, values, nil, nil, 0)
        }
        let rows = try checked(result)
        return (0..<rows.count).map { row in
            (0..<rows.columnCount).map { column in
                rows.bytes(row, column).map { String(decoding: $0, as: UTF8.self) }
            }
        }
    }

    /// Prepares a statement under a name that ``executePrepared(_:_:)`` takes.
    package func prepare(_ name: String, _ sql: String) throws(PostgresError) {
        _ = try checked(PQprepare(connection, name, sql, 0, nil))
    }

    /// Runs a prepared statement with parameters in PostgreSQL's binary format; every value is returned in binary.
    package func executePrepared(_ name: String, _ parameters: [[UInt8]]) throws(PostgresError) -> PostgresRows {
        // One buffer for all parameters: nested closures for each pointer would limit their number.
        let lengths = parameters.map { Int32($0.count) }
        let joined = parameters.flatMap { $0 }
        let result = joined.withUnsafeBufferPointer { buffer in
            var offset = 0
            let values: [UnsafePointer<CChar>?] = parameters.map { parameter in
                defer { offset += parameter.count }
                guard let base = buffer.baseAddress else { return Self.empty }
                return UnsafeRawPointer(base + offset).assumingMemoryBound(to: CChar.self)
            }
            let formats = [Int32](repeating: 1, count: parameters.count)
            return PQexecPrepared(connection, name, Int32(parameters.count), values, lengths, formats, 1)
        }
        return try checked(result)
    }

    /// Sends `bytes` to a `COPY … FROM STDIN` and waits until the server has taken all of it.
    package func copyIn(_ sql: String, _ bytes: [UInt8]) throws(PostgresError) {
        let start = PostgresRows(PQexec(connection, sql))
        guard PQresultStatus(start.result) == PGRES_COPY_IN else { throw error(start) }
        let sent = bytes.withUnsafeBufferPointer { buffer in
            var offset = 0
            while offset < buffer.count {
                let count = min(buffer.count - offset, 1 << 20)
                let chunk = UnsafeRawPointer(buffer.baseAddress.map { $0 + offset })?.assumingMemoryBound(to: CChar.self)
                guard PQputCopyData(connection, chunk, Int32(count)) == 1 else { return false }
                offset += count
            }
            return PQputCopyEnd(connection, nil) == 1
        }
        // The results must be fetched to the end, also after an error, before the connection can be used again.
        var failure: PostgresError?
        while let result = PQgetResult(connection) {
            let rows = PostgresRows(result)
            if PQresultStatus(rows.result) != PGRES_COMMAND_OK, failure == nil { failure = error(rows) }
            if PQstatus(connection) != CONNECTION_OK { break }
        }
        if let failure { throw failure }
        guard sent, !isBroken else { throw PostgresError(kind: .connection, sqlState: nil, summary: "the connection was lost") }
    }

    // MARK: - Results and errors

    private func checked(_ result: OpaquePointer?) throws(PostgresError) -> PostgresRows {
        let rows = PostgresRows(result)
        switch PQresultStatus(rows.result) {
        case PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_EMPTY_QUERY: return rows
        default: throw error(rows)
        }
    }

    /// Only the SQLSTATE is taken over: the server's messages quote what was sent.
    private func error(_ rows: PostgresRows) -> PostgresError {
        let state = PQresultErrorField(rows.result, Self.sqlStateField).map { String(cString: $0) }
        if isBroken { return PostgresError(kind: .connection, sqlState: state, summary: "the connection was lost") }
        return PostgresError(kind: .statement, sqlState: state, summary: "a statement failed")
    }

    /// The first line of a connection failure: host, port and reason; a password never stands in it.
    private static func summary(of message: String) -> String {
        String(message.split(separator: "\n").first?.prefix(200) ?? "the connection failed")
    }

    /// `PG_DIAG_SQLSTATE`, a character constant that is not imported.
    private static let sqlStateField = Int32(UInt8(ascii: "C"))

    /// What an empty parameter points at: a null pointer would mean NULL.
    nonisolated(unsafe) private static let empty: UnsafePointer<CChar> = {
        let byte = UnsafeMutablePointer<CChar>.allocate(capacity: 1)
        byte.pointee = 0
        return UnsafePointer(byte)  // Never written again, never freed.
    }()

    private static func withCStrings<Result>(_ strings: [String], _ body: ([UnsafePointer<CChar>?]) -> Result) -> Result {
        withOptionalCStrings(strings.map { $0 }) { body($0 + [nil]) }
    }

    private static func withOptionalCStrings<Result>(
        _ strings: [String?], _ body: ([UnsafePointer<CChar>?]) -> Result
    ) -> Result {
        let copies = strings.map { $0.map { strdup($0) } ?? nil }
        defer { for copy in copies { free(copy) } }
        return body(copies.map { $0.map { UnsafePointer($0) } })
    }
}

/// The rows of one result, freed with it.
package final class PostgresRows {
    fileprivate let result: OpaquePointer?

    fileprivate init(_ result: OpaquePointer?) { self.result = result }

    deinit { PQclear(result) }

    package var count: Int { Int(PQntuples(result)) }
    package var columnCount: Int { Int(PQnfields(result)) }

    /// The bytes of one value, valid as long as the rows are; nil for NULL.
    package func bytes(_ row: Int, _ column: Int) -> UnsafeRawBufferPointer? {
        guard PQgetisnull(result, Int32(row), Int32(column)) == 0 else { return nil }
        return UnsafeRawBufferPointer(
            start: PQgetvalue(result, Int32(row), Int32(column)), count: Int(PQgetlength(result, Int32(row), Int32(column))))
    }
}

/// What went wrong, without anything that was sent (I14).
package struct PostgresError: Error, Hashable, Sendable {
    package enum Kind: Sendable {
        /// No connection, or one that was lost: whatever ran last may have been committed.
        case connection
        /// The server refused a statement; its transaction is void.
        case statement
    }

    package var kind: Kind
    package var sqlState: String?
    package var summary: String
}
