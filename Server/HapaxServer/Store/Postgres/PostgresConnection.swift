import CLibpq
import Dispatch
import HapaxModel

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// One connection to PostgreSQL through libpq, which only this file sees. Every call blocks, up to a deadline; one actor owns it.
///
/// libpq's own blocking calls wait for ever on a server that has stopped answering but whose kernel still acknowledges. So this uses the
/// asynchronous ones, with `poll(2)` (https://www.postgresql.org/docs/current/libpq-async.html).
package final class PostgresConnection {
    private let connection: OpaquePointer
    private let deadline: Duration
    /// Whether the connection counts as lost, such as after a time-out. The last statement may still take effect.
    private var hasTimedOut = false
    /// Asked while a statement runs; true cancels it, once.
    var isUnwanted: (@Sendable () -> Bool)?
    private static let unwantedMilliseconds: Int32 = 200

    /// libpq's parameters unless the URI sets them. With these a silent connection ends within seconds instead of hours, and of several hosts
    /// the one that can be written to is used.
    private static let defaults = [
        ("connect_timeout", "5"), ("application_name", "hapax-server"), ("keepalives_idle", "10"), ("keepalives_interval", "5"),
        ("keepalives_count", "3"), ("tcp_user_timeout", "15000"), ("client_encoding", "UTF8"), ("target_session_attrs", "read-write"),
    ]

    /// - Parameters:
    ///   - uri: `postgres://user:password@host:port/database?parameters`.
    ///   - deadline: How long one statement may take to be answered. Longer than any `statement_timeout`, which ends it more gently.
    package init(uri: String, deadline: Duration = .seconds(30)) throws(PostgresError) {
        self.deadline = deadline
        try PostgresURI.check(uri)
        // Later parameters override earlier ones, so the URI comes last.
        let parameters = Self.defaults + [("dbname", uri)]
        let connection = Self.withCStrings(parameters.map(\.0)) { keys in
            Self.withCStrings(parameters.map(\.1)) { values in PQconnectdbParams(keys, values, 1) }
        }
        guard let connection else { throw PostgresError(kind: .connection, sqlState: nil, summary: "out of memory") }
        guard PQstatus(connection) == CONNECTION_OK, PQsetnonblocking(connection, 1) == 0 else {
            let summary = PostgresURI.summary(ofFailure: String(cString: PQerrorMessage(connection)))
            PQfinish(connection)
            throw PostgresError(kind: .connection, sqlState: nil, summary: summary)
        }
        // libpq would print notices, which may quote data, to standard error.
        PQsetNoticeProcessor(connection, { _, _ in }, nil)
        self.connection = connection
    }

    deinit {
        PQfinish(connection)
    }

    /// Whether the connection is known to be lost.
    package var isBroken: Bool { hasTimedOut || PQstatus(connection) != CONNECTION_OK }

    /// Makes the connection count as lost from now on.
    func giveUp() { hasTimedOut = true }

    /// 15 for PostgreSQL 15.
    package var majorVersion: Int { Int(PQserverVersion(connection)) / 10_000 }

    // MARK: - Statements

    /// Runs one or several statements without parameters.
    package func execute(_ sql: String) throws(PostgresError) {
        _ = try answer(PQsendQuery(connection, sql))
    }

    /// Runs one statement with parameters as text; every value is returned as text.
    package func query(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> [[String?]] {
        let sent = Self.withOptionalCStrings(parameters) { values in
            PQsendQueryParams(connection, sql, Int32(parameters.count), nil, values, nil, nil, 0)
        }
        let rows = try answer(sent)
        return (0..<rows.count).map { Self.texts(rows, $0) }
    }

    /// The same row by row: it holds only what `take` keeps (https://www.postgresql.org/docs/current/libpq-single-row-mode.html).
    ///
    /// - Parameter take: Returns whether it wants more rows; if not, the statement is cancelled.
    func query(_ sql: String, _ parameters: [String], take: ([String?]) -> Bool) throws(PostgresError) {
        let sent = Self.withOptionalCStrings(parameters) { values in
            PQsendQueryParams(connection, sql, Int32(parameters.count), nil, values, nil, nil, 0)
        }
        guard sent == 1, PQsetSingleRowMode(connection) == 1 else { throw lost() }
        let end = ContinuousClock.now + deadline
        var (failure, wantsMore) = (PostgresError?.none, true)
        while let rows = try nextResult(end) {
            switch PQresultStatus(rows.result) {
            case PGRES_SINGLE_TUPLE:
                guard wantsMore else { continue }
                wantsMore = take(Self.texts(rows, 0))
                if !wantsMore { cancel() }
            case PGRES_TUPLES_OK: break
            default: failure = failure ?? error(rows)
            }
        }
        if isBroken { throw failure ?? lost() }
        // After our own cancel the statement fails as intended.
        if let failure, wantsMore { throw failure }
    }

    /// Cancels the running statement. `PQcancel` connects and waits without a time-out, so it runs on another queue. If it takes too long, the
    /// session is given up, since a late cancel would end the next statement.
    private func cancel() {
        nonisolated(unsafe) let handle = PQgetCancel(connection)
        guard handle != nil else { return }
        let isDone = DispatchSemaphore(value: 0)
        Self.cancelling.async {
            var message = [CChar](repeating: 0, count: 256)
            _ = PQcancel(handle, &message, 256)
            PQfreeCancel(handle)
            isDone.signal()
        }
        if isDone.wait(timeout: .now() + Self.cancelSeconds) == .timedOut { giveUp() }
    }

    private static let cancelling = DispatchQueue(label: "hapax.postgres.cancel", attributes: .concurrent)
    private static let cancelSeconds = 5.0

    private static func texts(_ rows: PostgresRows, _ row: Int) -> [String?] {
        (0..<rows.columnCount).map { column in rows.bytes(row, column).map { String(decoding: $0, as: UTF8.self) } }
    }

    /// Prepares a statement under a name that ``pipeline(_:)`` takes.
    package func prepare(_ name: String, _ sql: String) throws(PostgresError) {
        _ = try answer(PQsendPrepare(connection, name, sql, 0, nil))
        prepared.insert(name)
    }

    private(set) var prepared: Set<String> = []

    /// Runs one statement with parameters in PostgreSQL's binary format, of which its text must give the types; every value is returned in binary.
    func query(_ sql: String, binary parameters: [[UInt8]]) throws(PostgresError) -> PostgresRows {
        try answer(
            Self.withBinary(parameters) { count, values, lengths, formats in
                PQsendQueryParams(connection, sql, count, nil, values, lengths, formats, 1)
            })
    }

    /// Statements with their parameters in binary format, of which the text must give the types: each is the name of a prepared one, or its SQL,
    /// which is planned anew.
    typealias Statements = [(name: String, parameters: [[UInt8]])]

    /// Sends all statements before it waits for the first answer (https://www.postgresql.org/docs/current/libpq-pipeline-mode.html).
    ///
    /// - Parameter transactions: Each element is a transaction of its own, unless it holds a BEGIN, which leaves its transaction open.
    /// - Returns: What each statement answered, in order.
    func pipeline(_ transactions: [Statements]) throws(PostgresError) -> [PostgresRows] {
        guard PQenterPipelineMode(connection) == 1 else { throw lost() }
        for statements in transactions {
            for statement in statements {
                let sent = Self.withBinary(statement.parameters) { count, values, lengths, formats in
                    prepared.contains(statement.name)
                        ? PQsendQueryPrepared(connection, statement.name, count, values, lengths, formats, 1)
                        : PQsendQueryParams(connection, statement.name, count, nil, values, lengths, formats, 1)
                }
                guard sent == 1 else { throw lost() }
            }
            guard PQpipelineSync(connection) == 1 else { throw lost() }
        }
        let end = ContinuousClock.now + deadline
        var (answers, failure) = ([PostgresRows](), PostgresError?.none)
        for statements in transactions {
            for _ in statements {
                while let rows = try nextResult(end) {
                    switch PQresultStatus(rows.result) {
                    case PGRES_COMMAND_OK, PGRES_TUPLES_OK: answers.append(rows)
                    default: failure = failure ?? error(rows)
                    }
                }
            }
            guard PQresultStatus(try nextResult(end)?.result) == PGRES_PIPELINE_SYNC else { throw failure ?? lost() }
        }
        guard PQexitPipelineMode(connection) == 1 else { throw lost() }
        if let failure { throw failure }
        return answers
    }

    private static func withBinary(
        _ parameters: [[UInt8]], _ body: (Int32, [UnsafePointer<CChar>?], [Int32], [Int32]) -> Int32
    ) -> Int32 {
        // One buffer for all parameters: nested closures for each pointer would limit their number.
        let lengths = parameters.map { Int32($0.count) }
        let joined = parameters.flatMap { $0 }
        return joined.withUnsafeBufferPointer { buffer in
            var offset = 0
            let values: [UnsafePointer<CChar>?] = parameters.map { parameter in
                defer { offset += parameter.count }
                guard let base = buffer.baseAddress else { return empty }
                return UnsafeRawPointer(base + offset).assumingMemoryBound(to: CChar.self)
            }
            return body(Int32(parameters.count), values, lengths, [Int32](repeating: 1, count: parameters.count))
        }
    }

    /// Sends `bytes` to a `COPY … FROM STDIN` and waits until the server has taken all of it.
    ///
    /// - Parameter sql: Ends with `; COMMIT` if `commits`; other statements may stand before COPY.
    /// - Returns: How many rows the server says it stored.
    /// - Throws: ``PostgresError`` also if it rolled back instead.
    @discardableResult
    package func copyIn(_ sql: String, _ bytes: [UInt8], commits: Bool = false) throws(PostgresError) -> Int {
        let end = ContinuousClock.now + deadline
        guard PQsendQuery(connection, sql) == 1 else { throw lost() }
        var start = try nextResult(end)
        // Of what stands before it.
        while PQresultStatus(start?.result) == PGRES_COMMAND_OK { start = try nextResult(end) }
        guard PQresultStatus(start?.result) == PGRES_COPY_IN else {
            while try nextResult(end) != nil {}
            throw start.map { error($0) } ?? lost()
        }
        try put(bytes, end)
        // The results must be fetched to the end, also after an error, before the connection can be used again.
        var (stored, tag) = (Int?.none, "")
        var failure: PostgresError?
        while let rows = try nextResult(end) {
            if PQresultStatus(rows.result) == PGRES_COMMAND_OK {
                tag = String(cString: PQcmdStatus(rows.result))
                stored = stored ?? Int(String(cString: PQcmdTuples(rows.result)))
            } else if failure == nil {
                failure = error(rows)
            }
        }
        if let failure { throw failure }
        guard let stored, !isBroken else { throw lost() }
        if commits { try Self.check(tag) }
        return stored
    }

    private func put(_ bytes: [UInt8], _ end: ContinuousClock.Instant) throws(PostgresError) {
        var offset = 0
        while offset < bytes.count {
            let count = min(bytes.count - offset, 1 << 18)
            let status = bytes.withUnsafeBytes { buffer in
                PQputCopyData(
                    connection, (buffer.baseAddress.map { $0 + offset })?.assumingMemoryBound(to: CChar.self), Int32(count))
            }
            switch status {
            case 1: offset += count
            // The server may be sending something, such as an error, and take nothing more until that has been read.
            case 0: try wait(forWriting: true, end)
            default: throw lost()
            }
        }
        while true {
            switch PQputCopyEnd(connection, nil) {
            case 1: return
            case 0: try wait(forWriting: true, end)
            default: throw lost()
            }
        }
    }

    /// Commits the transaction.
    ///
    /// - Throws: ``PostgresError`` also if the server rolled it back instead, which it does without an error once a statement has failed.
    /// - Parameter sql: Statements that are sent with it, followed by `; `.
    package func commit(after sql: String = "") throws(PostgresError) {
        let rows = try answer(PQsendQuery(connection, "\(sql)COMMIT"))
        try Self.check(String(cString: PQcmdStatus(rows.result)))
    }

    private static func check(_ tag: String) throws(PostgresError) {
        guard tag == "COMMIT" else {
            throw PostgresError(kind: .statement, sqlState: nil, summary: "the transaction was rolled back instead of committed")
        }
    }

    // MARK: - Waiting

    /// Waits for all results of what was sent, and returns the last one.
    private func answer(_ sent: Int32) throws(PostgresError) -> PostgresRows {
        guard sent == 1 else { throw lost() }
        let end = ContinuousClock.now + deadline
        var last: PostgresRows?
        var failure: PostgresError?
        while let rows = try nextResult(end) {
            switch PQresultStatus(rows.result) {
            case PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_EMPTY_QUERY: last = rows
            default: failure = failure ?? error(rows)
            }
        }
        if let failure { throw failure }
        guard let last else { throw lost() }
        return last
    }

    /// - Returns: nil after the last result of what was sent.
    private func nextResult(_ end: ContinuousClock.Instant) throws(PostgresError) -> PostgresRows? {
        while true {
            switch PQflush(connection) {
            case 0: break
            case 1:
                try wait(forWriting: true, end)
                continue
            default: throw lost()
            }
            if PQisBusy(connection) == 0 { break }
            try wait(forWriting: false, end)
        }
        return PQgetResult(connection).map { PostgresRows($0) }
    }

    private func wait(forWriting: Bool, _ end: ContinuousClock.Instant) throws(PostgresError) {
        let left = end - .now
        var milliseconds = Int32(clamping: Int64(left / .milliseconds(1)))
        let isWhole = isUnwanted == nil || milliseconds <= Self.unwantedMilliseconds
        if !isWhole { milliseconds = Self.unwantedMilliseconds }
        var descriptor = pollfd(fd: PQsocket(connection), events: Int16(POLLIN | (forWriting ? POLLOUT : 0)), revents: 0)
        let ready = milliseconds > 0 ? poll(&descriptor, 1, milliseconds) : 0
        guard ready != 0 || !isWhole else {
            hasTimedOut = true
            throw PostgresError(kind: .connection, sqlState: nil, summary: "the database did not answer in time")
        }
        if ready < 0 && errno == EINTR { return }
        if ready == 0 {
            guard isUnwanted?() == true else { return }
            isUnwanted = nil
            return cancel()
        }
        guard ready > 0, descriptor.revents & Int16(POLLIN | POLLERR | POLLHUP) == 0 || PQconsumeInput(connection) == 1 else {
            throw lost()
        }
    }

    // MARK: - Errors

    private func lost() -> PostgresError {
        // The server's last message, with the SQLSTATE of its reason, may have arrived already.
        let rows = PQgetResult(connection).map { PostgresRows($0) }
        let state = rows.flatMap { PQresultErrorField($0.result, Self.sqlStateField) }.map { String(cString: $0) }
        hasTimedOut = true
        return PostgresError(kind: .connection, sqlState: state, summary: "the connection was lost")
    }

    /// Only the SQLSTATE is taken over: the server's messages quote what was sent.
    private func error(_ rows: PostgresRows) -> PostgresError {
        let state = PQresultErrorField(rows.result, Self.sqlStateField).map { String(cString: $0) }
        if isBroken { return PostgresError(kind: .connection, sqlState: state, summary: "the connection was lost") }
        return PostgresError(kind: .statement, sqlState: state, summary: "a statement failed")
    }

    /// `PG_DIAG_SQLSTATE`, a character constant that is not imported.
    private static let sqlStateField = Int32(UInt8(ascii: "C"))

    // MARK: - C strings

    /// What an empty parameter points at: a null pointer would mean NULL. Never written, never freed.
    nonisolated(unsafe) private static let empty: UnsafePointer<CChar> = {
        let byte = UnsafeMutablePointer<CChar>.allocate(capacity: 1)
        byte.initialize(to: 0)
        return UnsafePointer(byte)
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

    /// The host and port of a URI as libpq reads them, each empty if the URI has none; nil if libpq cannot read the URI.
    static func hostAndPort(_ uri: String) -> (host: String, port: String)? {
        var message: UnsafeMutablePointer<CChar>?
        guard let options = PQconninfoParse(uri, &message) else {
            // libpq's own message quotes the URI, password included.
            PQfreemem(message)
            return nil
        }
        defer { PQconninfoFree(options) }
        var found: [String: String] = [:]
        var option = options
        while let keyword = option.pointee.keyword {
            if let value = option.pointee.val { found[String(cString: keyword)] = String(cString: value) }
            option += 1
        }
        return (found["host"] ?? "", found["port"] ?? "")
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
        /// The server refused a statement; its transaction is aborted.
        case statement
    }

    package var kind: Kind
    package var sqlState: String?
    package var summary: String
}
