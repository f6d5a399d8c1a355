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
        self.projectID = projectID
        self.bytes = bytes + body.events.count * ServerLimits.bytesPerEvent
        report = InstallReport(body.envelope, projectID: projectID)
        entries = body.events.map { event in
            let sent = Sent(name: event.name, wire: event.wire)
            if let problem = event.problem { return .refused(problem, id: event.id, sent: sent) }
            guard let id = event.id else { return .refused(EventProblem(.missingID, detail: "event_id is missing"), id: nil, sent: sent) }
            return .record(EventRecord(event, id: id, projectID: projectID, envelope: body.envelope))
        }
    }
}
