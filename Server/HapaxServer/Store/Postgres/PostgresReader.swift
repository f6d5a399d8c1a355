import HapaxModel

/// Reads through sessions of its own: one for single events, which never wait for a list, and one for each question that has its turn.
final class PostgresReader: EventReader {
    private let short: PostgresSession
    private let questions: [PostgresSession]

    init(uri: String, breaker: Locked<ConnectionBreaker>) {
        short = PostgresSession(.short, uri: uri, breaker: breaker)
        questions = (0..<QuestionTurn.connections).map { PostgresSession(.question($0), uri: uri, breaker: breaker) }
    }

    func close() async {
        for session in questions + [short] { await session.close() }
    }

    func session(of turn: QuestionTurn) -> PostgresSession { questions[turn.connection] }

    func event(_ key: EventKey) async throws(StoreError) -> EventRow? { try await row(key, in: "kept_events AS events") }

    func place(_ key: EventKey) async throws(StoreError) -> EventPosition? { try await row(key, in: "events")?.position }

    private func row(_ key: EventKey, in table: String) async throws(StoreError) -> EventRow? {
        let sql = "SELECT \(Self.columns) FROM \(table) WHERE event_id = $1 AND project_id = $2 AND bucket = $3"
        let parameters = ["\(key.id)", "\(key.projectID)", "\(key.id.bucket)"]
        return try await short.query(sql, parameters).first.flatMap(EventRow.init)
    }

    func fingerprints(_ keys: [EventKey], in turn: QuestionTurn) async throws(StoreError) -> [EventKey: Int64] {
        guard let projectID = keys.first?.projectID else { return [:] }
        let buckets = Set(keys.map(\.id.bucket)).sorted()
        let rows = try await query(
            "SELECT event_id, fingerprint FROM events WHERE event_id = ANY ($1) AND project_id = $2 AND bucket = ANY ($3)",
            [Self.array(keys.map(\.id)), "\(projectID)", Self.array(buckets)], in: turn)
        return rows.reduce(into: [:]) { found, row in
            guard let id = row[0].flatMap({ EventID(uuidString: $0) }), let fingerprint = row[1].flatMap({ Int64($0) }) else { return }
            found[EventKey(id: id, projectID: projectID)] = fingerprint
        }
    }

    func compare(_ records: [EventRecord], in turn: QuestionTurn) async throws(StoreError) -> [Bool?] {
        try await session(of: turn).compare(records, in: turn)
    }

    func step(_ query: EventQuery, width: Int, in turn: QuestionTurn) async throws(StoreError) -> EventStep {
        let start = query.received.lowerBound
        var end = query.received.upperBound
        if let after = query.after {
            end = min(end, after.receivedAt.unixMicroseconds + 1)
        } else if end == .max {
            // Starts at the database's present time. The first step has no upper end, so it also finds what is stored meanwhile.
            let rows = try await self.query("SELECT (extract(epoch FROM now()) * 1000000)::int8", [], in: turn)
            guard let now = rows.first?[0].flatMap({ Int64($0) }) else { throw .unavailable("its clock cannot be read") }
            end = now
        }
        let low = max(start, end - Self.microseconds(width))
        let isOpen = query.after == nil && query.received.upperBound == .max
        var conditions = Conditions(query, received: low..<(isOpen ? .max : end))
        if let after = query.after { conditions.require("<", after) }
        let (events, isCut) = try await rows(conditions, "received_at DESC, event_id DESC", query.stepLimit, in: turn)
        if isCut { return EventStep(events: events, next: events.last?.position, isCut: true) }
        guard low > start, let reached = Timestamp(unixMicroseconds: low) else { return EventStep(events: events, next: nil, isCut: false) }
        return EventStep(events: events, next: EventPosition(receivedAt: reached, id: .least), isCut: false)
    }

    /// The span of a list's step: a minute at width 0, four times as long with each width.
    private static func microseconds(_ width: Int) -> Int64 { 60_000_000 << Int64(min(2 * width, 32)) }

    /// The span of an export's step is some 15 ms at width 0, four times as long with each width, and five hundred years at the widest.
    private static let widest = 20
    private static func forwardMicroseconds(_ width: Int) -> Int64 { 14_648 << Int64(2 * width) }

    func stepForward(
        _ query: EventQuery, width: inout Int, in turn: QuestionTurn
    ) async throws(StoreError) -> ExportStep {
        let start = max(query.received.lowerBound, query.after?.receivedAt.unixMicroseconds ?? 0)
        while true {
            let reached = min(query.received.upperBound, start + Self.forwardMicroseconds(width))
            var conditions = Conditions(query, received: start..<reached)
            if let after = query.after { conditions.require(">", after) }
            let began = ContinuousClock.now
            do throws(StoreError) {
                let step = turn.ending(by: began + ServerLimits.listRead)
                // Counting up to the limit shows a span that is far too long, and takes less time than sorting its rows.
                if width > 0 {
                    let enough =
                        "SELECT count(*) FROM (SELECT FROM kept_events AS events WHERE \(conditions.sql) LIMIT \(ServerLimits.exportEvents)) AS e"
                    let count = try await self.query(enough, conditions.parameters, in: step).first?[0].flatMap { Int($0) } ?? 0
                    guard count < ServerLimits.exportEvents else {
                        width -= 1
                        continue
                    }
                }
                let (events, isCut) = try await rows(conditions, "received_at, event_id", ServerLimits.exportEvents, in: step)
                if events.count < ServerLimits.exportEvents / 4, !isCut, ContinuousClock.now - began < ServerLimits.listRead / 4 {
                    width = min(width + 1, Self.widest)
                }
                return ExportStep(events: events, rest: query.rest(events, reached: reached, isCut: isCut))
            } catch .tooHeavy where width > 0 {
                width -= 1
                // The caller goes on with the shorter span.
                guard turn.left > .zero else { return ExportStep(events: [], rest: query) }
            }
        }
    }

    func countsByName(
        projectID: Int32, received: Range<Int64>, limit: Int, in turn: QuestionTurn
    ) async throws(StoreError) -> NameCounts {
        var conditions = Conditions()
        conditions.require("project_id =", "\(projectID)")
        conditions.require(received)
        let rows = try await self.query(
            NameCounts.sql(conditions.sql, event: #"event COLLATE "C""#, limit: limit), conditions.parameters, in: turn)
        return NameCounts(try rows.map { (row) throws(StoreError) in (row[0].map { Array($0.utf8) }, try row.number(1)) })
    }

    /// - Returns: At most `limit` events, or as many as ``ServerLimits/pageBytes`` hold, and whether there may be more.
    private func rows(
        _ conditions: Conditions, _ order: String, _ limit: Int, in turn: QuestionTurn
    ) async throws(StoreError) -> (events: [EventRow], isCut: Bool) {
        let sql = "SELECT \(Self.columns) FROM kept_events AS events WHERE \(conditions.sql) ORDER BY \(order) LIMIT \(limit)"
        let (events, isCut) = try await session(of: turn).events(
            sql, conditions.parameters, bytes: ServerLimits.pageBytes, in: turn)
        return (events, isCut || events.count == limit)
    }

    /// `reltuples` is an estimate from the last VACUUM or ANALYZE (https://www.postgresql.org/docs/current/catalog-pg-class.html).
    func overview() async throws(StoreError) -> StoreOverview {
        let about = try await short.query(
            """
            SELECT current_setting('server_version'), pg_database_size(current_database()),
              (SELECT (extract(epoch FROM max(taken_at)) * 1000)::int8 FROM backups)
            """)
        let rows = try await short.query(
            """
            SELECT replace(regexp_replace(c.relname, '^events_', ''), '_', '-'), greatest(c.reltuples::int8, pg_stat_get_live_tuples(c.oid), 0),
              pg_total_relation_size(c.oid), c.relname > to_char(now() AT TIME ZONE 'UTC', '"events_"YYYY_MM') AND c.relname < 'events_a'
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'events'::regclass
            ORDER BY array_position('{\(PostgresPartitions.undated),\(PostgresPartitions.past)}', c.relname::text), c.relname
            """)
        return StoreOverview(
            version: "PostgreSQL \(about.first?[0] ?? "")", bytes: about.first?[1].flatMap { Int64($0) } ?? 0, isEstimated: true,
            parts: rows.map { row in
                .init(name: row[0] ?? "", rows: row[1].flatMap { Int64($0) } ?? 0, bytes: row[2].flatMap { Int64($0) })
            },
            monthsAhead: rows.count { $0[3] == "t" }, lastBackup: about.first?[2].flatMap { Int64($0) })
    }

    private func query(_ sql: String, _ parameters: [String], in turn: QuestionTurn) async throws(StoreError) -> [[String?]] {
        try await session(of: turn).query(sql, parameters, in: turn)
    }

    private static func array(_ values: [some CustomStringConvertible]) -> String {
        "{" + values.map(\.description).joined(separator: ",") + "}"
    }

    private static let columns = """
        event_id, event, distinct_id, (extract(epoch FROM time) * 1000)::int8, (extract(epoch FROM received_at) * 1000000)::int8, install_id, \
        sequence, properties, received_at >= (
          SELECT CASE WHEN events.time < b.ends THEN b.closes END FROM report_bounds b
          WHERE b.project_id = events.project_id AND b.starts <= events.time ORDER BY b.starts DESC LIMIT 1)
        """
}

/// A query's conditions, joined by AND, and their parameters.
private struct Conditions {
    private var list: [String] = []
    private(set) var parameters: [String] = []

    var sql: String { list.joined(separator: " AND ") }

    init(_ query: EventQuery, received: Range<Int64>) {
        require("project_id =", "\(query.projectID)")
        require(received)
        if query.happened != 0..<Int64.max { require(query.happened, of: "time") }
        if let name = query.name { require("event =", name) }
        if let distinctID = query.distinctID { require("distinct_id =", distinctID) }
        if let installID = query.installID { require("install_id =", "\(installID)") }
    }

    init() {}

    mutating func require(_ comparison: String, _ value: String) {
        parameters.append(value)
        list.append("\(comparison) $\(parameters.count)")
    }

    mutating func require(_ comparison: String, _ position: EventPosition) {
        parameters += [position.receivedAt.description, "\(position.id)"]
        list.append("(received_at, event_id) \(comparison) ($\(parameters.count - 1)::timestamptz, $\(parameters.count)::uuid)")
    }

    /// - Parameter span: In Unix microseconds; up to `Int64.max` means without an end.
    mutating func require(_ span: Range<Int64>, of column: String = "received_at") {
        if let from = Timestamp(unixMicroseconds: span.lowerBound) { require("\(column) >=", from.description) }
        if let to = Timestamp(unixMicroseconds: span.upperBound) { require("\(column) <", to.description) }
    }
}

extension EventRow {
    /// - Parameter row: The values of the reader's columns, in their order.
    init?(_ row: [String?]) {
        guard row.count == 9, let id = row[0].flatMap({ EventID(uuidString: $0) }), let name = row[1], let distinctID = row[2],
            let time = row[3].flatMap({ Int64($0) }),
            let receivedAt = row[4].flatMap({ Int64($0) }).flatMap({ Timestamp(unixMicroseconds: $0) }),
            let properties = row[7]
        else { return nil }
        self.init(
            id: id, name: Array(name.utf8), distinctID: Array(distinctID.utf8), time: time, receivedAt: receivedAt,
            installID: row[5].flatMap { EventID(uuidString: $0) }, sequence: row[6].flatMap { Int64($0) },
            properties: CompactJSON.rewritten(Array(properties.utf8)),
            isLate: row[8] == "t")
    }
}
