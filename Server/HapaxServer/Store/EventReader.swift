import HapaxModel

/// Reads what is stored, on connections of its own: nothing here waits for a commit, and no commit waits for anything here.
///
/// Every store's reader passes one contract suite. Whatever is asked concerns one project; no answer holds anything of another.
package protocol EventReader: Sendable {
    /// One event by its key; nil if it is not stored.
    func event(_ key: EventKey) async throws(StoreError) -> EventRow?

    /// The fingerprints of those of the keys that are stored.
    func fingerprints(_ keys: [EventKey]) async throws(StoreError) -> [EventKey: Int64]

    /// Whether each of some records has the content that is stored under its key, compared by value; nil where nothing is stored.
    func compare(_ records: [EventRecord]) async throws(StoreError) -> [Bool?]

    /// One step of a list, back in time from where the query goes on.
    ///
    /// - Parameter width: How far to look, from 0, in whatever the store measures: each number is four times the one below.
    /// - Throws: ``StoreError/tooHeavy`` if it would take longer than the deadline.
    func step(_ query: EventQuery, width: Int, until deadline: ContinuousClock.Instant) async throws(StoreError) -> EventStep

    /// One step of an export: the oldest of what the query names, in order.
    ///
    /// - Parameters:
    ///   - query: Of a span that ends; whatever ``EventQuery/limit`` says.
    ///   - width: How far to look; becomes what to try with the next step.
    func stepForward(
        _ query: EventQuery, width: inout Int, until deadline: ContinuousClock.Instant
    ) async throws(StoreError) -> ExportStep

    /// How many events of each name were received in a span, by the bytes of the name.
    ///
    /// - Throws: ``StoreError/tooHeavy`` if that would take longer than the deadline.
    func countsByName(
        projectID: Int32, received: Range<Int64>, until deadline: ContinuousClock.Instant
    ) async throws(StoreError) -> [[UInt8]: Int64]

    /// How much is stored, without counting it.
    func overview() async throws(StoreError) -> StoreOverview

    /// Lets go of its connections, before the store does of its own.
    func close() async
}

/// How much is stored, and where.
package struct StoreOverview: Sendable {
    package struct Part: Sendable {
        /// A month such as `2026-11`; else in words.
        package var name: String
        package var rows: Int64
        /// nil where parts share their pages.
        package var bytes: Int64?
    }

    /// Of the database.
    package var version: String
    package var bytes: Int64
    /// Whether the database only estimates how many rows there are.
    package var isEstimated: Bool
    package var parts: [Part]
    /// Months that have a partition and have not begun; nil where there are none.
    package var monthsAhead: Int?
}

/// One row as it is kept.
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
    /// Whether it was received when the report of its day had closed, as far as the day's bounds are known by now (R61).
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
    /// At most so many; of one step too, so where a list keeps not all of them it asks for more.
    package var limit: Int
    /// Only those behind this place, as the list goes: in one that is newest first received before it, in an export after it.
    package var after: EventPosition?
}

/// What lies in one step of a list.
package struct EventStep: Sendable {
    /// Newest first, at most ``EventQuery/stepLimit``.
    package var events: [EventRow]
    /// Where the list goes on; nil at its end.
    package var next: EventPosition?
    /// Whether the step ended before its width because it had found enough.
    package var isCut: Bool
}

/// What lies in one step of an export.
package struct ExportStep: Sendable {
    /// Oldest first, at most ``ServerLimits/exportEvents``; none also where the span was too long to be looked through in time.
    package var events: [EventRow]
    /// The query for what is left; nil at the end.
    package var rest: EventQuery?
}

/// Part of a list, newest first.
package struct EventPage: Sendable {
    package var events: [EventRow] = []
    /// Where the list goes on; nil at its end.
    package var next: EventPosition?
}

extension EventQuery {
    /// How many events one step is for.
    var stepLimit: Int { min(limit, ServerLimits.stepEvents) }

    /// What is left of an export behind a step.
    ///
    /// - Parameters:
    ///   - reached: The step went up to this instant, in Unix microseconds.
    ///   - isCut: It ended before, because it had found enough.
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
    /// The latest events that a query names, newest first, in growing steps back. What the deadline leaves unread, ``EventPage/next`` goes
    /// on with.
    ///
    /// - Parameter keeps: Asked for each event that the rest of the query names; nil keeps all.
    func events(
        _ query: EventQuery, until deadline: ContinuousClock.Instant, where keeps: ((EventRow) -> Bool)? = nil
    ) async throws(StoreError) -> EventPage {
        var page = EventPage()
        let limit = query.limit
        var (query, width, bytes) = (query, 0, 0)
        while true {
            query.limit = keeps == nil ? limit - page.events.count : .max
            let step: EventStep
            do throws(StoreError) {
                step = try await self.step(query, width: width, until: deadline)
            } catch .tooHeavy where width > 0 {
                // The next question begins here with small steps.
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
            guard ContinuousClock.now < deadline else {
                page.next = next
                return page
            }
        }
    }
}
