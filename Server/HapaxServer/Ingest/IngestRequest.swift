import HapaxModel

/// One request's events, scanned and ready to be committed together with other requests'.
package struct IngestRequest: Sendable {
    package let projectID: Int32
    private let derivedIDs: DerivedIDRule
    private let blocked: BlockedUsers?
    /// How another vendor's SDK has sent it; nil for events as ours.
    let via: SenderFormat?
    /// Whether contents under one derived id are compared: a foreign sender's id is hashed into one and says nothing of who made it.
    var comparesDerived: Bool { via != nil }
    /// The rows of the events that can be stored.
    package private(set) var rows = RowBatch()
    /// The events that cannot be stored.
    private(set) var refusals: [Refused] = []
    private(set) var report: InstallReport?
    /// The install's number of each event; -1 for one without.
    private(set) var sequences: [Int64] = []
    /// How many events its body held.
    private(set) var count = 0
    /// Bytes that this request keeps in memory until it is answered.
    package private(set) var bytes = 0
    private var inSeconds = 0
    /// By the names of their events, if somebody counts them.
    private(set) var derived: [[UInt8]: Int] = [:]

    /// An event that cannot be stored as it is. If its id could be read, the store is asked for it: `duplicate` beats `rejected`.
    struct Refused: Sendable {
        /// Its place in the body.
        var entry: Int
        var problem: EventProblem
        var id: EventID?
        /// The first bytes of its name, in unescaped UTF-8; empty if it could not be read.
        var name: [UInt8]
        /// The first bytes of the event, as it was sent.
        var wire: [UInt8]
    }

    /// Whether there is nothing to store.
    var isEmpty: Bool { count == 0 && report == nil }

    /// A note for people about events that can be stored but are probably a mistake; nil if there are none.
    var hint: String? {
        inSeconds > 0 ? "events whose time looks like seconds instead of milliseconds, and so lies before 1973: \(inSeconds)" : nil
    }

    /// Has no events yet.
    ///
    /// - Parameters:
    ///   - blocked: Whose events are refused.
    ///   - bodyBytes: The size of the body whose events follow.
    init(
        projectID: Int32, derivedIDs: DerivedIDRule = .taken, blocked: BlockedUsers? = nil, via: SenderFormat? = nil, bodyBytes: Int
    ) {
        self.projectID = projectID
        self.derivedIDs = derivedIDs
        self.blocked = blocked
        self.via = via
        rows.reserve(bodyBytes)
    }

    /// - Parameter body: JSON.
    /// - Throws: ``BodyProblem``.
    package init(json body: ArraySlice<UInt8>, projectID: Int32) throws(BodyProblem) {
        self.init(projectID: projectID, bodyBytes: body.count)
        var scan = BodyScan(body, isLines: false)
        while try scan.next({ add($0, in: $1, $2) }) {}
        end(scan)
    }

    /// - Parameters:
    ///   - body: The bytes that hold the event's fields.
    ///   - envelope: The envelope as read so far; ``end(_:)`` adds what comes after the events.
    mutating func add(_ event: EventFields, in body: UnsafeBufferPointer<UInt8>, _ envelope: EventBatch.Envelope) {
        let refusal = event.problem ?? refusal(of: event, in: body)
        if let id = event.id, refusal == nil {
            if ScannedEvent.looksLikeSeconds(event.time) { inSeconds += 1 }
            rows.append(event, in: body, EventKey(id: id, projectID: projectID), entry: count, envelope)
        } else {
            let problem = refusal ?? EventProblem(.missingID, detail: "event_id is missing")
            // Copied, so that a refusal does not keep the whole body.
            refusals.append(
                Refused(
                    entry: count, problem: problem, id: event.id,
                    name: event.name.withBytes(of: body) { Array($0.prefix(ServerLimits.refusedBytes)) },
                    wire: problem == Self.blocked ? [] : Array(body[event.wire.prefix(ServerLimits.refusedBytes)])))
        }
        sequences.append(event.sequence ?? -1)
        count += 1
    }

    /// Why the project does not take an event that is one.
    private mutating func refusal(of event: EventFields, in body: UnsafeBufferPointer<UInt8>) -> EventProblem? {
        if let blocked, event.distinctID.withBytes(of: body, blocked.contains) { return Self.blocked }
        guard derivedIDs != .taken, event.id?.isDerived == true else { return nil }
        if derivedIDs == .refused { return Self.guarded }
        event.name.withBytes(of: body) { derived[Array($0), default: 0] += 1 }
        return nil
    }

    private static let blocked = EventProblem(.userBlocked, detail: "this project takes no events of this user")
    private static let guarded = EventProblem(
        .derivedIDNeedsServerKey, detail: "this project takes derived ids (version 8) only from senders with a server key")

    /// Call after the last event.
    mutating func end(_ scan: some EventSource) {
        let envelope = scan.envelope
        if scan.envelopeChanged { rows = rows.with(sentAt: envelope.sentAt, installID: envelope.installID) }
        report = InstallReport(envelope, projectID: projectID)
        if report == nil { sequences = [] }
        bytes += rows.bytes.capacity + (count + 1) * ServerLimits.bytesPerEvent
        if let report { bytes += report.held.count + report.removed.count + report.refused.count + ServerLimits.bytesPerBook }
    }

    /// The event at a place; nil if it cannot be stored.
    func record(at entry: Int) -> EventRecord? { row(at: entry).map { EventRecord($0, in: rows.bytes) } }

    func row(at entry: Int) -> RowKey? {
        // Rows are in the order of their events.
        var (low, high) = (0, rows.keys.count)
        while low < high {
            let middle = (low + high) / 2
            if Int(rows.keys[middle].entry) < entry { low = middle + 1 } else { high = middle }
        }
        guard low < rows.keys.count, Int(rows.keys[low].entry) == entry else { return nil }
        return rows.keys[low]
    }
}
