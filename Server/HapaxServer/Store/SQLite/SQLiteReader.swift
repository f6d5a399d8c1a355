import Foundation
import GRDB
import GRDBSQLite
import HapaxModel

/// Reads the embedded store through read-only connections of its own.
///
/// Rows are in the order in which they were received, so a span of time is a span of rows, found by binary search. Each step is a short
/// transaction of its own, so that the write-ahead log can always be emptied soon.
final class SQLiteReader: EventReader {
    private let database: DatabasePool
    private let path: String

    /// Rows that a step of width 0 searches; four times as many with each width, up to ``largestStep``, which takes some 50 ms.
    private static let firstStep: Int64 = 1_000
    private static let largestStep: Int64 = 64_000

    init(path: String) throws {
        self.path = path
        var configuration = Configuration()
        configuration.label = "hapax.reader"
        configuration.readonly = true
        configuration.maximumReaderCount = ServerLimits.heavyReads + ServerLimits.exportReads + ServerLimits.dryRuns + 2
        configuration.busyMode = .timeout(5)
        configuration.prepareDatabase { db in
            db.add(function: SQLiteSchema.bucket)
            SQLiteSequenceSets.add(to: db)
            db.add(
                function: DatabaseFunction("hapax_session_ms", argumentCount: 1, pure: true) { values in
                    String.fromDatabaseValue(values[0]).flatMap { SessionDuration.milliseconds(Array($0.utf8)[...]) }
                })
            db.add(
                function: DatabaseFunction("hapax_value", argumentCount: 2, pure: true) { values in
                    guard let properties = String.fromDatabaseValue(values[0]), let name = String.fromDatabaseValue(values[1]) else {
                        return nil
                    }
                    return PropertyLookup.value(of: name, in: Array(properties.utf8)[...]).map {
                        String(decoding: CanonicalJSON.text($0), as: UTF8.self)
                    }
                })
        }
        database = try DatabasePool(path: path, configuration: configuration)
    }

    func close() async {
        try? database.close()
    }

    func event(_ key: EventKey) async throws(StoreError) -> EventRow? { try await row(key, in: "kept_events AS events") }

    func place(_ key: EventKey) async throws(StoreError) -> EventPosition? { try await row(key, in: "events")?.position }

    private func row(_ key: EventKey, in table: String) async throws(StoreError) -> EventRow? {
        try await read { db in
            let select = try db.cachedStatement(sql: "SELECT \(Self.columns) FROM \(table) WHERE event_id = ? AND project_id = ?")
            return try Row.fetchOne(select, arguments: [Data(key.id.bytes), key.projectID]).flatMap(EventRow.init)
        }
    }

    func fingerprints(_ keys: [EventKey], in turn: QuestionTurn) async throws(StoreError) -> [EventKey: Int64] {
        try await read { db in
            let select = try db.cachedStatement(sql: SQLiteEventStore.selectFingerprint)
            return try keys.reduce(into: [:]) { found, key in
                found[key] = try Int64.fetchOne(select, arguments: [Data(key.id.bytes), key.projectID])
            }
        }
    }

    func compare(_ records: [EventRecord], in turn: QuestionTurn) async throws(StoreError) -> [Bool?] { try await compare(records) }

    func compare(_ records: [EventRecord]) async throws(StoreError) -> [Bool?] {
        var same: [Bool?] = []
        for record in records {
            let stored = try await event(record.key).map {
                ValueHash(name: $0.name[...], distinctID: $0.distinctID[...], properties: $0.properties[...])
            }
            same.append(stored.map { $0.value == record.valueHash.value })
        }
        return same
    }

    func step(_ query: EventQuery, width: Int, in turn: QuestionTurn) async throws(StoreError) -> EventStep {
        try await read { db in
            let rows = try Self.rows(query, in: db)
            if let step = try Self.userStep(query, rows, in: db) { return step }
            // A user's rows that the runs index are found through them, so this search goes back no further than their end.
            let untold = query.distinctID == nil ? 0 : try SQLiteUserRuns.end(in: db)
            let first = max(rows.lowerBound, untold < rows.upperBound ? untold : 0, rows.upperBound - Self.size(width))
            // Rows of one instant are not sorted by id, so a step takes all of them.
            let start = first > rows.lowerBound ? try Self.firstRow(at: try Self.receivedAt(first, in: db) ?? 0, in: db) : first
            let low = max(rows.lowerBound, start)
            let (events, isCut) = try Self.select(query, low..<rows.upperBound, limit: query.stepLimit, in: db)
            if isCut { return EventStep(events: events, next: events.last?.position, isCut: true) }
            let reached = low > rows.lowerBound ? try Self.receivedAt(low, in: db) : nil
            let next = reached.map { EventPosition(receivedAt: Timestamp(clampingUnixMilliseconds: $0), id: .least) }
            return EventStep(events: events, next: next, isCut: false)
        }
    }

    /// A step that finds a user's rows through the runs; nil if the query names no user, or the runs do not reach the end of `rows`.
    private static func userStep(_ query: EventQuery, _ rows: Range<Int64>, in db: Database) throws -> EventStep? {
        guard let distinctID = query.distinctID, !rows.isEmpty, try rows.upperBound <= SQLiteUserRuns.end(in: db) else { return nil }
        let found = try SQLiteUserRuns.rows(
            of: distinctID, projectID: query.projectID, in: rows, limit: ServerLimits.stepEvents, db)
        // Rows of one instant are not sorted by id, so a step takes all of them: those of the earliest instant are left to the next step.
        let instant = found.from > rows.lowerBound ? try receivedAt(found.from, in: db) : nil
        let first = try instant.map { try firstRow(at: $0 + 1, in: db) } ?? rows.lowerBound
        guard first < rows.upperBound else { return nil }
        let (events, isCut) = try select(
            query, rows, among: found.rows.filter { $0 >= first }, limit: query.stepLimit, in: db)
        let next = instant.map { EventPosition(receivedAt: Timestamp(clampingUnixMilliseconds: $0 + 1), id: .least) }
        return EventStep(events: events, next: isCut ? events.last?.position : next, isCut: isCut)
    }

    func stepForward(
        _ query: EventQuery, width: inout Int, in turn: QuestionTurn
    ) async throws(StoreError) -> ExportStep {
        let size = Self.size(width)
        let step = try await read { db in
            let rows = try Self.rows(query.received, in: db)
            let first = try query.after.map { max(rows.lowerBound, try Self.firstRow(at: $0.receivedAt.unixMilliseconds, in: db)) }
            let start = first ?? rows.lowerBound
            var end = min(rows.upperBound, start + size)
            // Rows of one instant are not sorted by id, so a step takes all of them.
            if end < rows.upperBound, let last = try Self.receivedAt(end - 1, in: db) {
                end = min(rows.upperBound, try Self.firstRow(at: last + 1, in: db))
            }
            let (events, isCut) = try Self.select(
                query, start..<max(start, end), isForward: true, limit: ServerLimits.exportEvents, in: db)
            let reached = end < rows.upperBound ? try Self.receivedAt(end, in: db).map { $0 * 1_000 } : nil
            return ExportStep(
                events: events,
                rest: query.rest(
                    events, reached: reached ?? query.received.upperBound, isCut: isCut))
        }
        if step.events.count < ServerLimits.exportEvents / 4 { width += 1 }
        if step.events.count == ServerLimits.exportEvents, width > 0 { width -= 1 }
        return step
    }

    func countsByName(
        projectID: Int32, received: Range<Int64>, limit: Int, in turn: QuestionTurn
    ) async throws(StoreError) -> NameCounts {
        guard turn.left > .zero else { throw .tooHeavy }
        let sql = NameCounts.sql("row >= ? AND row < ? AND project_id = ?", event: "CAST(event AS BLOB)", limit: limit)
        return try await read(in: turn) { db in
            let rows = try Self.rows(received, in: db)
            return NameCounts(
                try Row.fetchAll(db, sql: sql, arguments: [rows.lowerBound, rows.upperBound, projectID]).map { row in
                    ((row[0] as Data?).map { [UInt8]($0) }, row[1])
                })
        }
    }

    /// Counts by row numbers: rows are numbered in the order of arrival. Those that retention has removed are counted as well.
    func overview() async throws(StoreError) -> StoreOverview {
        let numbers = try? FileManager.default.attributesOfFileSystem(forPath: path)
        let (free, size) = (numbers?[.systemFreeSize] as? NSNumber, numbers?[.systemSize] as? NSNumber)
        let disk = free.flatMap { free in size.map { (free.int64Value, $0.int64Value) } }
        return try await read { [path] db in
            let bytes = try Int64.fetchOne(db, sql: "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size") ?? 0
            var overview = StoreOverview(
                version: "SQLite \(try String.fetchOne(db, sql: "SELECT sqlite_version()") ?? "")", bytes: bytes,
                isEstimated: try Int32.fetchOne(db, sql: "SELECT cleared FROM retention") != 0, parts: [], monthsAhead: nil,
                disk: disk, lastBackup: SQLiteBackup.lastBackup(of: path))
            var row: Int64 = 0
            while let received = try Self.receivedAt(row, in: db) {
                let (year, month, _) = CalendarDay(daysSince1970: Int32(clamping: received / 86_400_000))?.components ?? (1970, 1, 1)
                let next = CalendarDay(year: month == 12 ? year + 1 : year, month: month == 12 ? 1 : month + 1, day: 1) ?? .last
                let end = try Self.firstRow(at: max(received + 1, Int64(next.daysSince1970) * 86_400_000), in: db)
                overview.parts.append(.init(name: "\(year)-\(month < 10 ? "0" : "")\(month)", rows: end - max(row, 1), bytes: nil))
                row = end
            }
            return overview
        }
    }

    // MARK: - Spans

    /// The rows received in a span of Unix seconds.
    func rows(receivedFrom from: Int64, to: Int64) async throws(StoreError) -> Range<Int64> {
        func microseconds(_ seconds: Int64) -> Int64 { min(max(seconds, 0), EventLimits.maximumTime / 1_000) * 1_000_000 }
        let received = microseconds(from)..<microseconds(to)
        return try await read { try Self.rows(received, in: $0) }
    }

    private static func size(_ width: Int) -> Int64 { min(firstStep << Int64(min(2 * width, 16)), largestStep) }

    private static func rows(_ query: EventQuery, in db: Database) throws -> Range<Int64> {
        let rows = try rows(query.received, in: db)
        guard let after = query.after else { return rows }
        // No event of an instant comes before the least id, so that instant is left out then.
        let end = min(rows.upperBound, try firstRow(at: after.receivedAt.unixMilliseconds + (after.id == .least ? 0 : 1), in: db))
        return rows.lowerBound..<max(rows.lowerBound, end)
    }

    private static func rows(_ received: Range<Int64>, in db: Database) throws -> Range<Int64> {
        let first = try firstRow(at: millisecond(received.lowerBound), in: db)
        return first..<max(first, try firstRow(at: millisecond(received.upperBound), in: db))
    }

    /// An instant in milliseconds, rounded up.
    private static func millisecond(_ microseconds: Int64) -> Int64 { microseconds / 1_000 + (microseconds % 1_000 > 0 ? 1 : 0) }

    /// The first row that was received at an instant or later; if there is none, the number after the last row.
    private static func firstRow(at instant: Int64, in db: Database) throws -> Int64 {
        var low: Int64 = 0
        var high = (try Int64.fetchOne(db.cachedStatement(sql: "SELECT max(row) FROM events")) ?? 0) + 1
        // Checked first, because most spans end after the last row.
        if try receivedAt(high - 1, in: db) ?? .min < instant { return high }
        while low < high {
            let middle = low + (high - low) / 2
            if let found = try receivedAt(middle, in: db), found < instant { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// When a row was received, or the next existing one, in Unix milliseconds; nil after the last row.
    private static func receivedAt(_ row: Int64, in db: Database) throws -> Int64? {
        let select = try db.cachedStatement(sql: "SELECT received_at FROM events WHERE row >= ? ORDER BY row LIMIT 1")
        return try Int64.fetchOne(select, arguments: [row])
    }

    // MARK: - Rows

    private static let columns = """
        event_id, CAST(event AS BLOB), CAST(distinct_id AS BLOB), time, received_at, install_id, sequence, CAST(properties AS BLOB),
        received_at >= (
          SELECT CASE WHEN events.time < b.ends THEN b.closes END FROM report_bounds b
          WHERE b.project_id = events.project_id AND b.starts <= events.time ORDER BY b.starts DESC LIMIT 1)
        """

    /// - Parameter candidates: The rows of the span to look at; nil for all.
    /// - Returns: At most `limit` events, or as many as ``ServerLimits/pageBytes`` hold, and whether there may be more.
    private static func select(
        _ query: EventQuery, _ rows: Range<Int64>, among candidates: [Int64]? = nil, isForward: Bool = false, limit: Int, in db: Database
    ) throws -> (events: [EventRow], isCut: Bool) {
        var conditions = ["row >= ?", "row < ?", "project_id = ?"]
        var arguments: StatementArguments = [rows.lowerBound, rows.upperBound, query.projectID]
        if let candidates {
            conditions = ["row IN (SELECT value FROM json_each(?))", "project_id = ?"]
            arguments = ["[\(candidates.map(String.init).joined(separator: ","))]", query.projectID]
        }
        func require(_ condition: String, _ values: any DatabaseValueConvertible...) {
            conditions.append(condition)
            arguments += StatementArguments(values)
        }
        if query.happened.lowerBound > 0 { require("time >= ?", millisecond(query.happened.lowerBound)) }
        if query.happened.upperBound < .max { require("time < ?", millisecond(query.happened.upperBound)) }
        if let name = query.name { require("event = ?", name) }
        if let distinctID = query.distinctID { require("distinct_id = ?", distinctID) }
        if let installID = query.installID { require("install_id = ?", Data(installID.bytes)) }
        if let after = query.after {
            require("(received_at, event_id) \(isForward ? ">" : "<") (?, ?)", after.receivedAt.unixMilliseconds, Data(after.id.bytes))
        }
        let order = isForward ? "ASC" : "DESC"
        let sql = """
            SELECT \(columns) FROM kept_events AS events WHERE \(conditions.joined(separator: " AND "))
            ORDER BY received_at \(order), event_id \(order) LIMIT \(limit)
            """
        let found = try Row.fetchCursor(db.cachedStatement(sql: sql), arguments: arguments)
        var (events, bytes) = ([EventRow](), 0)
        while bytes < ServerLimits.pageBytes, let row = try found.next() {
            guard let event = EventRow(row) else { continue }
            events.append(event)
            bytes += event.properties.count
        }
        return (events, events.count == limit || bytes >= ServerLimits.pageBytes)
    }

    func read<Value: Sendable>(_ body: @escaping @Sendable (Database) throws -> Value) async throws(StoreError) -> Value {
        do { return try await database.read(body) } catch { throw SQLiteEventStore.translated(error) }
    }

    /// The same for a question that may take long: a statement that is still running at the deadline is ended
    /// (https://www.sqlite.org/c3ref/progress_handler.html).
    func read<Value: Sendable>(
        in turn: QuestionTurn, _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(StoreError) -> Value {
        let question = Question(end: turn.deadline, hasLeft: turn.hasLeft)
        do {
            return try await database.read { db in
                try withUnsafePointer(to: question) { question in
                    sqlite3_progress_handler(
                        db.sqliteConnection, Self.stepsBetweenLooks,
                        { question in
                            guard let question = question?.assumingMemoryBound(to: Question.self).pointee else { return 0 }
                            return ContinuousClock.now < question.end && !question.hasLeft() ? 0 : 1
                        }, UnsafeMutableRawPointer(mutating: question))
                    defer { sqlite3_progress_handler(db.sqliteConnection, 0, nil, nil) }
                    return try body(db)
                }
            }
        } catch let error as DatabaseError where error.resultCode == .SQLITE_INTERRUPT {
            throw .tooHeavy
        } catch {
            throw SQLiteEventStore.translated(error)
        }
    }

    private struct Question: Sendable {
        var end: ContinuousClock.Instant
        var hasLeft: @Sendable () -> Bool
    }

    /// Steps of SQLite's machine, of which some read a whole event.
    private static let stepsBetweenLooks: Int32 = 1_000
}

extension EventRow {
    fileprivate init?(_ row: Row) {
        guard let id = EventID(bytes: [UInt8](row[0] as Data? ?? Data())) else { return nil }
        self.init(
            id: id, name: [UInt8](row[1] as Data? ?? Data()), distinctID: [UInt8](row[2] as Data? ?? Data()), time: row[3] ?? 0,
            receivedAt: Timestamp(clampingUnixMilliseconds: row[4] ?? 0),
            installID: (row[5] as Data?).flatMap { EventID(bytes: [UInt8]($0)) },
            sequence: row[6], properties: [UInt8](row[7] as Data? ?? Data()),
            isLate: row[8] ?? false)
    }
}
