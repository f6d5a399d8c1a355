import HapaxModel

/// Reads what is stored, on connections of its own: nothing here waits for a commit, and no commit waits for anything here.
///
/// Every store's reader passes one contract suite. A question about events concerns one project; its answer holds nothing of another.
package protocol EventReader: Sendable {
    /// One event by its key; nil if it is not stored.
    func event(_ key: EventKey) async throws(StoreError) -> EventRow?

    /// Where an event is, or was until it was erased; nil if its row is gone.
    func place(_ key: EventKey) async throws(StoreError) -> EventPosition?

    /// The fingerprints of those of the keys that are stored.
    func fingerprints(_ keys: [EventKey], in turn: QuestionTurn) async throws(StoreError) -> [EventKey: Int64]

    /// Whether each of some records has the content that is stored under its key, compared by value; nil where nothing is stored.
    func compare(_ records: [EventRecord], in turn: QuestionTurn) async throws(StoreError) -> [Bool?]

    /// One step of a list: searches back in time from ``EventQuery/after``, or from the end of the span.
    ///
    /// - Parameter width: How far to search, from 0: each number is four times as far as the one below, in a unit of the store.
    /// - Throws: ``StoreError/tooHeavy`` if it would take longer than the deadline.
    func step(_ query: EventQuery, width: Int, in turn: QuestionTurn) async throws(StoreError) -> EventStep

    /// One step of an export: the oldest events that match the query, oldest first.
    ///
    /// - Parameters:
    ///   - query: Its span must have an end; its ``EventQuery/limit`` is ignored.
    ///   - width: How far to search, as for a list; set to the value for the next step.
    func stepForward(
        _ query: EventQuery, width: inout Int, in turn: QuestionTurn
    ) async throws(StoreError) -> ExportStep

    /// How many events of each name were received in a span: the commonest names, of equal ones those whose bytes come first.
    ///
    /// The database adds up the others: the senders decide how many names there are.
    ///
    /// - Throws: ``StoreError/tooHeavy`` if that would take longer than the deadline.
    func countsByName(
        projectID: Int32, received: Range<Int64>, limit: Int, in turn: QuestionTurn
    ) async throws(StoreError) -> NameCounts

    /// How much is stored, without counting it.
    func overview() async throws(StoreError) -> StoreOverview

    /// Closes the reader's connections. The store calls it before it closes its own.
    func close() async
}

/// How many events there are of each name, and of all other names together.
package struct NameCounts: Hashable, Sendable {
    /// By the bytes of the name.
    package var names: [[UInt8]: Int64] = [:]
    package var other: Int64 = 0

    /// - Parameter condition: For rows of `kept_events`.
    static func sql(_ condition: String, event: String, limit: Int) -> String {
        """
        WITH n AS (SELECT event, count(*) AS events FROM kept_events AS events WHERE \(condition) GROUP BY event),
        top AS (SELECT event, events FROM n ORDER BY events DESC, \(event) LIMIT \(limit))
        SELECT \(event), events FROM top
        UNION ALL SELECT NULL, (SELECT coalesce(sum(events), 0) FROM n) - (SELECT coalesce(sum(events), 0) FROM top)
        """
    }

    /// - Parameter rows: Those of ``sql(_:event:limit:)``.
    init(_ rows: some Sequence<(name: [UInt8]?, count: Int64)>) {
        for row in rows { if let name = row.name { names[name] = row.count } else { other = row.count } }
    }

    package init() {}
}

/// How much is stored, and where.
package struct StoreOverview: Sendable {
    package struct Part: Sendable {
        /// A month such as `2026-11`, or the name of a partition that is no month, such as `undated`.
        package var name: String
        package var rows: Int64
        /// nil in SQLite, where all months share one table.
        package var bytes: Int64?
    }

    /// The database's name and version.
    package var version: String
    package var bytes: Int64
    /// Whether the database only estimates how many rows there are.
    package var isEstimated: Bool
    package var parts: [Part]
    /// Months that have a partition and have not begun; nil in SQLite, which has no partitions.
    package var monthsAhead: Int?
    /// Bytes of the disk of the embedded store; nil in PostgreSQL, whose disk is elsewhere.
    package var disk: (free: Int64, size: Int64)?
    /// Unix milliseconds; nil if no backup has been noted.
    package var lastBackup: Int64?
}

/// One stored event.
package struct EventRow: Sendable {
    package var id: EventID
    /// Unescaped UTF-8.
    package var name: [UInt8]
    /// Unescaped UTF-8.
    package var distinctID: [UInt8]
    /// Unix milliseconds.
    package var time: Int64
    package var receivedAt: Timestamp
    package var installID: EventID?
    package var sequence: Int64?
    /// A JSON object.
    package var properties: [UInt8]
    /// Whether it was received after the report of its day had closed (R61); false while that day has no bounds yet.
    package var isLate = false

    var position: EventPosition { EventPosition(receivedAt: receivedAt, id: id) }
}

/// A place in the order of all events of a project: by the time they were received, then by id.
package struct EventPosition: Hashable, Sendable {
    package var receivedAt: Timestamp
    package var id: EventID
}

/// Which events are asked for.
package struct EventQuery: Sendable {
    package var projectID: Int32
    /// Only those received in this span, in Unix microseconds.
    package var received: Range<Int64>
    /// Only those whose own time lies in this span, in Unix microseconds.
    package var happened: Range<Int64> = 0..<Int64.max
    package var name: String?
    package var distinctID: String?
    package var installID: EventID?
    /// At most this many events. It limits each step as well, so a list with a filter asks for more.
    package var limit: Int
    /// Only events beyond this place: in a list (newest first) those received before it, in an export those received after it.
    package var after: EventPosition?
}

/// The events of one step of a list.
package struct EventStep: Sendable {
    /// Newest first, at most ``EventQuery/stepLimit``.
    package var events: [EventRow]
    /// Where the list goes on; nil at its end.
    package var next: EventPosition?
    /// Whether the step ended before its width because it had found enough.
    package var isCut: Bool

    package init(events: [EventRow], next: EventPosition?, isCut: Bool) { (self.events, self.next, self.isCut) = (events, next, isCut) }
}

/// The events of one step of an export.
package struct ExportStep: Sendable {
    /// Oldest first, at most ``ServerLimits/exportEvents``; empty also if the span was too long to be searched in time.
    package var events: [EventRow]
    /// The query for the rest; nil at the end.
    package var rest: EventQuery?

    package init(events: [EventRow], rest: EventQuery?) { (self.events, self.rest) = (events, rest) }
}

/// Part of a list, newest first.
package struct EventPage: Sendable {
    package var events: [EventRow] = []
    /// Where the list goes on; nil at its end.
    package var next: EventPosition?
}

extension EventQuery {
    /// The most events that one step returns.
    var stepLimit: Int { min(limit, ServerLimits.stepEvents) }

    /// The query for the rest of an export after a step.
    ///
    /// - Parameters:
    ///   - reached: The end of the step's span, in Unix microseconds.
    ///   - isCut: Whether the step ended before that, because it had found enough.
    func rest(_ events: [EventRow], reached: Int64, isCut: Bool) -> EventQuery? {
        var rest = self
        if isCut {
            rest.after = events.last?.position
        } else {
            guard reached < received.upperBound else { return nil }
            rest.after = nil
            rest.received = reached..<received.upperBound
        }
        return rest
    }
}

extension EventReader {
    /// The latest events that match a query, newest first, read in growing steps back in time. If the deadline ends the search,
    /// ``EventPage/next`` says where to go on.
    ///
    /// - Parameter keeps: A filter on the events that match the query; nil keeps all.
    func events(
        _ query: EventQuery, in turn: QuestionTurn, where keeps: ((EventRow) -> Bool)? = nil
    ) async throws(StoreError) -> EventPage {
        var page = EventPage()
        let limit = query.limit
        var (query, width, bytes) = (query, 0, 0)
        while true {
            query.limit = keeps == nil ? limit - page.events.count : .max
            let step: EventStep
            do throws(StoreError) {
                step = try await self.step(query, width: width, in: turn)
            } catch .tooHeavy where width > 0 {
                // The client's next request goes on from here, with small steps again.
                page.next = query.after
                return page
            }
            for event in step.events where keeps?(event) ?? true {
                page.events.append(event)
                bytes += event.properties.count
                guard page.events.count < limit, bytes < ServerLimits.pageBytes else {
                    page.next = event.position
                    return page
                }
            }
            guard let next = step.next else { return page }
            query.after = next
            if !step.isCut { width += 1 }
            guard turn.left > .zero, !turn.hasLeft() else {
                page.next = next
                return page
            }
        }
    }
}
