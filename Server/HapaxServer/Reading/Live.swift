import HapaxModel

/// Reports to ``LiveFeed`` what happens, and gives each stream its messages.
package final class Live: Sendable {
    private let feed: Locked<LiveFeed>
    private let currentTime: @Sendable () -> Int64

    /// - Parameter currentTime: The wall clock in Unix milliseconds.
    init(currentTime: @escaping @Sendable () -> Int64) {
        self.currentTime = currentTime
        feed = Locked(LiveFeed(startedAt: Timestamp(clampingUnixMilliseconds: currentTime())))
    }

    var now: Timestamp { Timestamp(clampingUnixMilliseconds: currentTime()) }

    /// A request has been answered. If no stream is open and nothing was refused, this costs one check.
    func answered(_ request: IngestRequest, _ outcome: IngestOutcome) {
        var counts = LiveFeed.Counts()
        counts.received = outcome.received
        counts.stored = outcome.stored
        let refused = outcome.results.filter(\.outcome.isRefusal)
        counts.refused = refused.count
        counts.duplicates = outcome.results.count { $0.outcome == .duplicate }
        let now = now
        let refusals = refused.suffix(ServerLimits.refusals).map { LiveFeed.Refusal(request, $0, now) }
        let isWatched = feed.withLock { $0.isWatched(request.projectID) }
        guard isWatched || !refusals.isEmpty else { return }
        // Made outside of the lock, for which the answers to all other requests wait.
        let rows = isWatched ? LiveFeed.Row.rows(request, outcome, now) : []
        feed.withLock { feed in
            feed.answered(request.projectID, counts, rows: rows)
            for refusal in refusals { feed.refused(request.projectID, refusal, .now) }
        }
    }

    /// A whole request of a project has been refused. Only 4xx other than 429 are kept: the others are not about the request.
    func refused(_ projectID: Int32, _ problem: RequestProblem, via: String? = nil) {
        guard (400..<500).contains(problem.code.status), problem.code.status != 429 else { return }
        let refusal = LiveFeed.Refusal(at: now, reason: problem.code.rawValue, detail: problem.detail, isRequest: true, via: via)
        feed.withLock { $0.refused(projectID, refusal, .now) }
    }

    func keyWasUnknown() {
        feed.withLock { $0.keyWasUnknown() }
    }

    var unknownKeys: Int { feed.withLock { $0.unknownKeys } }

    func refusals(of projectID: Int32) -> (latest: [LiveFeed.Refusal], since: Timestamp) {
        feed.withLock { $0.refusals(of: projectID) }
    }

    func forgetRefusals(of projectID: Int32) {
        feed.withLock { $0.forgetRefusals(of: projectID, now) }
    }

    /// - Returns: nil if the project has ``ServerLimits/liveStreams`` streams already.
    func watch(_ projectID: Int32, _ filter: LiveFeed.Filter) -> Watch? {
        feed.withLock { $0.subscribe(projectID, filter, .now) }.map { Watch(live: self, projectID: projectID, id: $0) }
    }

    /// Ends every stream.
    func stop() {
        feed.withLock { $0.stop() }
    }

    /// One stream; ends with its last reference.
    final class Watch: Sendable {
        private let live: Live
        private let projectID: Int32
        private let id: LiveFeed.StreamID

        fileprivate init(live: Live, projectID: Int32, id: LiveFeed.StreamID) {
            self.live = live
            self.projectID = projectID
            self.id = id
        }

        deinit { live.feed.withLock { $0.unsubscribe(projectID, id) } }

        /// The messages since the last call; nil when the server stops.
        func messages() -> [LiveFeed.Message]? {
            live.feed.withLock { $0.take(projectID, id, .now) }
        }
    }
}

extension LiveFeed.Row {
    /// The rows of all events except refused ones, which a stream shows as refusals.
    fileprivate static func rows(_ request: IngestRequest, _ outcome: IngestOutcome, _ now: Timestamp) -> [LiveFeed.Row] {
        let others = Dictionary(outcome.results.map { ($0.index, $0.outcome) }, uniquingKeysWith: { $1 })
        return request.rows.keys.compactMap { key in
            let outcome = others[Int(key.entry)] ?? .stored
            if outcome.isRefusal { return nil }
            let record = EventRecord(key, in: request.rows.bytes)
            return LiveFeed.Row(outcome: outcome, name: record.name) { json(EventRow(record, receivedAt: now), outcome) }
        }
    }

    private static func json(_ event: EventRow, _ outcome: Receipt.Outcome) -> [UInt8] {
        var writer = JSONWriter(capacity: event.properties.count + 512)
        writer.object { writer in
            writer.member("outcome", outcome.rawValue)
            writer.member("at", event.receivedAt.description)
            writer.member("install_id", event.installID)
            writer.member("sequence", event.sequence)
            writer.member("event")
            writer.event(event)
        }
        return writer.bytes
    }
}

extension LiveFeed.Refusal {
    fileprivate init(_ request: IngestRequest, _ result: Receipt.Result, _ now: Timestamp) {
        var (name, bytes): ([UInt8], [UInt8]) = ([], [])
        if let record = request.record(at: result.index) {
            var writer = JSONWriter()
            writer.event(EventRow(record, receivedAt: now))
            (name, bytes) = (Array(record.name), writer.bytes)
        } else if let refusal = request.refusals.first(where: { $0.entry == result.index }) {
            (name, bytes) = (refusal.name, refusal.wire)
        }
        self.init(
            at: now, reason: result.reason ?? result.outcome.rawValue, detail: result.detail ?? "", via: request.via?.via,
            eventID: result.eventID,
            name: name.isEmpty ? nil : String(decoding: name.prefix(ServerLimits.refusedBytes), as: UTF8.self),
            sample: Array(bytes.prefix(ServerLimits.refusedBytes)))
    }
}

extension Receipt.Outcome {
    /// Whether the outcome is final and the event is not stored.
    fileprivate var isRefusal: Bool { [.rejected, .conflict, .expired].contains(self) }
}

extension EventRow {
    /// The row as a reader would return it.
    fileprivate init(_ record: EventRecord, receivedAt: Timestamp) {
        self.init(
            id: record.key.id, name: Array(record.name), distinctID: Array(record.distinctID), time: record.time, receivedAt: receivedAt,
            installID: record.installID, sequence: record.sequence, properties: Array(record.properties))
    }
}
