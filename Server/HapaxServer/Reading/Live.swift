import HapaxModel

/// Tells ``LiveFeed`` what happens, and those who watch what it has for them.
package final class Live: Sendable {
    private let feed: Locked<LiveFeed>
    private let currentTime: @Sendable () -> Int64

    /// - Parameter currentTime: The wall clock in Unix milliseconds.
    init(currentTime: @escaping @Sendable () -> Int64) {
        self.currentTime = currentTime
        feed = Locked(LiveFeed(startedAt: Timestamp(clampingUnixMilliseconds: currentTime())))
    }

    /// The clock of this server.
    var now: Timestamp { Timestamp(clampingUnixMilliseconds: currentTime()) }

    /// A request has been answered. With nobody watching and nothing refused this costs a look.
    func answered(_ request: IngestRequest, _ results: [Receipt.Result]) {
        var counts = LiveFeed.Counts()
        var refused: [(IngestRequest.Entry, Receipt.Result)] = []
        counts.received = results.count
        for (entry, result) in zip(request.entries, results) {
            switch result.outcome {
            case .stored: counts.stored += 1
            case .duplicate: counts.duplicates += 1
            case .retry: break
            case .rejected, .conflict, .expired:
                counts.refused += 1
                refused.append((entry, result))
            }
        }
        let now = now
        let refusals = refused.suffix(ServerLimits.refusals).map { LiveFeed.Refusal($0, $1, now) }
        let isWatched = feed.withLock { $0.isWatched(request.projectID) }
        guard isWatched || !refusals.isEmpty else { return }
        // Outside of the lock: whoever answers another project's request waits for it.
        let rows = isWatched ? zip(request.entries, results).compactMap { LiveFeed.Row($0, $1, now) } : []
        feed.withLock { feed in
            feed.answered(request.projectID, counts, rows: rows)
            for refusal in refusals { feed.refused(request.projectID, refusal, .now) }
        }
    }

    /// A whole request of a project has been refused, for a reason that sending it again does not change.
    func refused(_ projectID: Int32, _ problem: RequestProblem) {
        guard (400..<500).contains(problem.code.status), problem.code.status != 429 else { return }
        let refusal = LiveFeed.Refusal(at: now, reason: problem.code.rawValue, detail: problem.detail, isRequest: true)
        feed.withLock { $0.refused(projectID, refusal, .now) }
    }

    func keyWasUnknown() {
        feed.withLock { $0.keyWasUnknown() }
    }

    var unknownKeys: Int { feed.withLock { $0.unknownKeys } }

    func refusals(of projectID: Int32) -> (latest: [LiveFeed.Refusal], since: Timestamp) {
        feed.withLock { $0.refusals(of: projectID) }
    }

    /// - Returns: nil if the project has as many streams as it may.
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

        /// What has gathered since the last time; nil when the server stops.
        func messages() -> [LiveFeed.Message]? {
            live.feed.withLock { $0.take(projectID, id, .now) }
        }
    }
}

extension LiveFeed.Row {
    /// - Returns: nil for what is told as a refusal.
    fileprivate init?(_ entry: IngestRequest.Entry, _ result: Receipt.Result, _ now: Timestamp) {
        guard case .record(let record) = entry, ![.rejected, .conflict, .expired].contains(result.outcome) else { return nil }
        self.init(outcome: result.outcome, name: record.name) { Self.json(EventRow(record, receivedAt: now), result.outcome) }
    }

    private static func json(_ event: EventRow, _ outcome: Receipt.Outcome) -> [UInt8] {
        var writer = JSONWriter(capacity: event.properties.count + 512)
        writer.raw(#"{"outcome":"#)
        writer.string(outcome.rawValue)
        writer.raw(#","at":"#)
        writer.string(event.receivedAt.description)
        writer.raw(#","install_id":"#)
        writer.optional(event.installID)
        writer.raw(#","sequence":"#)
        writer.optional(event.sequence)
        writer.raw(#","event":"#)
        writer.event(event)
        writer.raw("}")
        return writer.bytes
    }
}

extension LiveFeed.Refusal {
    fileprivate init(_ entry: IngestRequest.Entry, _ result: Receipt.Result, _ now: Timestamp) {
        let (name, bytes): (ArraySlice<UInt8>, ArraySlice<UInt8>)
        switch entry {
        case .record(let record):
            var writer = JSONWriter()
            writer.event(EventRow(record, receivedAt: now))
            (name, bytes) = (record.name, writer.bytes[...])
        case .refused(_, _, let sent): (name, bytes) = (sent.name, sent.wire)
        }
        self.init(
            at: now, reason: result.reason ?? result.outcome.rawValue, detail: result.detail ?? "", eventID: result.eventID,
            name: name.isEmpty ? nil : String(decoding: name.prefix(ServerLimits.refusedBytes), as: UTF8.self),
            sample: Array(bytes.prefix(ServerLimits.refusedBytes)))
    }
}

extension EventRow {
    /// As it would be read back.
    fileprivate init(_ record: EventRecord, receivedAt: Timestamp) {
        self.init(
            id: record.key.id, name: Array(record.name), distinctID: Array(record.distinctID), time: record.time, receivedAt: receivedAt,
            installID: record.installID, sequence: record.sequence, properties: Array(record.properties))
    }
}
