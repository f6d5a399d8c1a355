import HapaxModel

/// One request's events, scanned and ready to be committed together with other requests'.
package struct IngestRequest: Sendable {
    package var projectID: Int32
    package var entries: [Entry]
    package var report: InstallReport?
    /// Bytes that this request keeps in memory until it is answered: its body and what it unfolded to.
    package var bytes: Int

    /// Whether there is nothing to store.
    var isEmpty: Bool { entries.isEmpty && report == nil }

    /// What a sender most likely did not mean, though it can be stored.
    var hint: String? {
        inSeconds > 0 ? "events whose time looks like seconds instead of milliseconds, and so lies before 1973: \(inSeconds)" : nil
    }
    private var inSeconds = 0

    package enum Entry: Sendable {
        case record(EventRecord)
        /// Cannot be stored as it is; looked up all the same if its id could be read.
        case refused(EventProblem, id: EventID?, sent: Sent)

        var id: EventID? {
            switch self {
            case .record(let record): record.key.id
            case .refused(_, let id, _): id
            }
        }
    }

    /// What came of an event that cannot be stored, to show it to people.
    package struct Sent: Sendable {
        /// Unescaped UTF-8; empty if it could not be read.
        package var name: ArraySlice<UInt8> = []
        /// The whole event, as it was sent.
        package var wire: ArraySlice<UInt8> = []
    }

    /// - Parameter bytes: Of the body, decompressed.
    package init(_ body: ScannedBody, projectID: Int32, bytes: Int) {
        self.init(empty: body, projectID: projectID, bytes: bytes)
        for event in body.events { add(event, body.envelope) }
    }

    /// The same in a turn that lets others go first.
    init(_ body: ScannedBody, projectID: Int32, bytes: Int, in turn: inout Turns.Turn) async {
        self.init(empty: body, projectID: projectID, bytes: bytes)
        for event in body.events {
            add(event, body.envelope)
            if turn.isOver(after: event.wire.count) { await turn.giveWay() }
        }
    }

    private init(empty body: ScannedBody, projectID: Int32, bytes: Int) {
        self.projectID = projectID
        self.bytes = bytes + body.events.count * ServerLimits.bytesPerEvent
        report = InstallReport(body.envelope, projectID: projectID)
        entries = []
        entries.reserveCapacity(body.events.count)
    }

    private mutating func add(_ event: ScannedEvent, _ envelope: EventBatch.Envelope) {
        let sent = Sent(name: event.name, wire: event.wire)
        if let problem = event.problem {
            entries.append(.refused(problem, id: event.id, sent: sent))
        } else if let id = event.id {
            if ScannedEvent.looksLikeSeconds(event.time) { inSeconds += 1 }
            entries.append(.record(EventRecord(event, id: id, projectID: projectID, envelope: envelope)))
        } else {
            entries.append(.refused(EventProblem(.missingID, detail: "event_id is missing"), id: nil, sent: sent))
        }
    }
}
