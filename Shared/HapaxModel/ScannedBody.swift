/// The content of a request's body: its envelope, and its events in order.
package struct ScannedBody: Sendable {
    /// Empty for a bare array and for lines.
    package var envelope = EventBatch.Envelope()
    /// In the order of the body, invalid ones included.
    package var events: [ScannedEvent] = []

    /// Reads an envelope, or a bare array of events.
    ///
    /// - Throws: ``BodyProblem`` if the envelope cannot be read, the end of an event cannot be found, or there are more events than a batch may
    ///   have. An invalid event is returned with its `problem`.
    package init(json body: ArraySlice<UInt8>) throws(BodyProblem) {
        self = try BodyScan(body, isLines: false).wholeBody()
    }

    /// Reads newline-delimited JSON, one event a line. Skips empty lines; an invalid line does not affect the others.
    ///
    /// - Throws: ``BodyProblem`` if there are more lines than a batch may have.
    package init(lines body: ArraySlice<UInt8>) throws(BodyProblem) {
        self = try BodyScan(body, isLines: true).wholeBody()
    }

    fileprivate init() {}
}

/// What reads a body event by event: ``BodyScan`` our own, ``SenderBody`` those of other SDKs.
package protocol EventSource {
    /// Bytes read so far.
    var position: Int { get }
    /// As far as it has been read.
    var envelope: EventBatch.Envelope { get }
    /// Whether the envelope gives another `sent_at` or `install_id` than the one that the events were read with.
    var envelopeChanged: Bool { get }
    /// How another vendor's SDK has sent it; nil for events as ours.
    var via: SenderFormat? { get }

    /// Reads one event, or one field of the envelope.
    ///
    /// - Returns: false at the body's end.
    mutating func next(_ take: BodyScan.Take) throws(BodyProblem) -> Bool
}

extension BodyScan: EventSource {
    package var envelope: EventBatch.Envelope { found.envelope }
    package var via: SenderFormat? { nil }
}

/// Scans a body piece by piece, so that its caller can let other work go first between two events.
package struct BodyScan {
    private enum Stage {
        case start
        /// A field of the envelope comes next.
        case fields
        case events(isBare: Bool)
        case lines
        /// Only white space may follow.
        case end
    }

    private let body: ArraySlice<UInt8>
    private var stage: Stage
    /// Bytes read so far.
    package private(set) var position = 0
    private var hasEvents = false
    private var looksLikeEvent = false
    /// Where each field's value begins; of repeated fields the last. Values are read at the envelope's end, so that repeating a field costs little.
    private var fields = [Int?](repeating: nil, count: Field.allCases.count)
    package private(set) var found = ScannedBody()
    private var events = 0
    /// Whether the envelope gives another `sent_at` or `install_id` than the one that the events were read with.
    package private(set) var envelopeChanged = false

    private enum Field: CaseIterable {
        case batchID, installID, sentAt, created, reportVersion, acknowledged, held, removed, refused

        var name: StaticString {
            switch self {
            case .batchID: "batch_id"
            case .installID: "install_id"
            case .sentAt: "sent_at"
            case .created: "created"
            case .reportVersion: "report_version"
            case .acknowledged: "acknowledged"
            case .held: "held"
            case .removed: "removed"
            case .refused: "refused"
            }
        }
    }

    /// - Parameter isLines: Whether the body is newline-delimited JSON.
    package init(_ body: ArraySlice<UInt8>, isLines: Bool) {
        // A leading byte order mark may be ignored (RFC 8259 §8.1), and some programs write one.
        self.body = body.starts(with: [0xEF, 0xBB, 0xBF]) ? body.dropFirst(3) : body
        stage = isLines ? .lines : .start
    }

    fileprivate consuming func wholeBody() throws(BodyProblem) -> ScannedBody {
        let body = body
        var events: [ScannedEvent] = []
        while try next({ fields, _, _ in events.append(fields.event(in: body)) }) {}
        found.events = events
        return found
    }

    /// Receives an event's fields, their body, and the envelope as far as it has been read.
    package typealias Take = (EventFields, UnsafeBufferPointer<UInt8>, EventBatch.Envelope) -> Void

    /// Reads one event, or one field of the envelope.
    ///
    /// - Returns: false at the body's end.
    /// - Throws: ``BodyProblem``.
    package mutating func next(_ take: Take) throws(BodyProblem) -> Bool {
        let body = body
        let result: Result<Bool, BodyProblem> = body.withUnsafeBufferPointer { bytes in
            var cursor = JSONCursor(bytes, at: position)
            let result: Result<Bool, BodyProblem>
            do throws(BodyProblem) { result = .success(try step(&cursor, take)) } catch { result = .failure(error) }
            position = cursor.position
            return result
        }
        return try result.get()
    }

    private mutating func step(_ cursor: inout JSONCursor, _ take: Take) throws(BodyProblem) -> Bool {
        switch stage {
        case .start: try begin(&cursor)
        case .fields: try field(&cursor)
        case .events(let isBare): try event(&cursor, isBare: isBare, take)
        case .lines: return try line(&cursor, take)
        case .end:
            cursor.skipWhitespace()
            guard cursor.isAtEnd else { throw BodyProblem("something follows the batch") }
            return false
        }
        return true
    }

    private mutating func begin(_ cursor: inout JSONCursor) throws(BodyProblem) {
        cursor.skipWhitespace()
        switch cursor.current {
        case UInt8(ascii: "["): beginEvents(&cursor, isBare: true)
        case UInt8(ascii: "{"):
            cursor.position += 1
            cursor.skipWhitespace()
            if cursor.skip(UInt8(ascii: "}")) { throw eventsAreMissing }
            stage = .fields
        default: throw BodyProblem("the body must be an object or an array")
        }
    }

    private var eventsAreMissing: BodyProblem {
        BodyProblem(
            looksLikeEvent
                ? "events is missing; this looks like an event itself: send one a line as application/x-ndjson, or an array of them"
                : "events is missing")
    }

    /// - Returns: Whether the array is empty.
    @discardableResult
    private mutating func beginEvents(_ cursor: inout JSONCursor, isBare: Bool) -> Bool {
        cursor.position += 1
        cursor.skipWhitespace()
        let isEmpty = cursor.skip(UInt8(ascii: "]"))
        stage = isEmpty && isBare ? .end : .events(isBare: isBare)
        return isEmpty
    }

    private mutating func event(_ cursor: inout JSONCursor, isBare: Bool, _ take: Take) throws(BodyProblem) {
        cursor.skipWhitespace()
        try countEvent()
        take(try EventScanner.scan(&cursor), cursor.bytes, found.envelope)
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: ",")) { return }
        guard cursor.skip(UInt8(ascii: "]")) else { throw BodyProblem("the array of events is not valid JSON") }
        if isBare { stage = .end } else { try endField(&cursor) }
    }

    private mutating func line(_ cursor: inout JSONCursor, _ take: Take) throws(BodyProblem) -> Bool {
        // Skips blank lines here, all in one step, so that a body of them costs little.
        cursor.skipWhitespace()
        if cursor.isAtEnd { return false }
        let start = cursor.position
        while !cursor.isAtEnd, cursor.current != 0x0A { cursor.position += 1 }
        try countEvent()
        take(EventScanner.fields(of: cursor.bytes, start..<cursor.position), cursor.bytes, found.envelope)
        return true
    }

    private mutating func countEvent() throws(BodyProblem) {
        events += 1
        guard events <= EventLimits.maximumEventsPerBatch else {
            throw BodyProblem("a batch holds more than \(EventLimits.maximumEventsPerBatch) events", code: .tooManyEvents)
        }
    }

    private mutating func field(_ cursor: inout JSONCursor) throws(BodyProblem) {
        cursor.skipWhitespace()
        let key = try self.key(&cursor)
        cursor.skipWhitespace()
        guard cursor.skip(UInt8(ascii: ":")) else { throw BodyProblem("the envelope is not valid JSON") }
        cursor.skipWhitespace()
        guard cursor.equals(key, "events") else {
            if cursor.equals(key, "event") || cursor.equals(key, "event_id") { looksLikeEvent = true }
            try value(of: key, &cursor)
            return try endField(&cursor)
        }
        guard cursor.current == UInt8(ascii: "[") else { throw BodyProblem("events must be an array") }
        // If the last key won, the events of the first array would get no outcome.
        guard !hasEvents else { throw BodyProblem("events is given twice") }
        hasEvents = true
        // Most envelopes give both before their events.
        read([.sentAt, .installID], cursor.bytes)
        if beginEvents(&cursor, isBare: false) { try endField(&cursor) }
    }

    /// Expects another field or the envelope's end.
    private mutating func endField(_ cursor: inout JSONCursor) throws(BodyProblem) {
        stage = .fields
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: ",")) { return }
        guard cursor.skip(UInt8(ascii: "}")) else { throw BodyProblem("the envelope is not valid JSON") }
        guard hasEvents else { throw eventsAreMissing }
        let before = found.envelope
        read(Field.allCases, cursor.bytes)
        envelopeChanged = before.sentAt != found.envelope.sentAt || before.installID != found.envelope.installID
        stage = .end
    }

    private func key(_ cursor: inout JSONCursor) throws(BodyProblem) -> JSONCursor.Text {
        do throws(EventProblem) { return try cursor.string() } catch { throw Self.refusal(error) }
    }

    /// Skips a field's value and keeps its place. A value that cannot be used counts as absent.
    private mutating func value(of key: JSONCursor.Text, _ cursor: inout JSONCursor) throws(BodyProblem) {
        let start = cursor.position
        do throws(EventProblem) {
            try cursor.value(depth: 0)
        } catch {
            // An event's limits do not apply to the envelope: skip a value that exceeds them.
            guard error.reason != .invalidJSON, let end = LenientScan(cursor.bytes).endOfValue(from: start) else {
                throw Self.refusal(error)
            }
            cursor.position = end
            return
        }
        if let field = Field.allCases.firstIndex(where: { cursor.equals(key, $0.name) }) { fields[field] = start }
    }

    private mutating func read(_ wanted: [Field], _ bytes: UnsafeBufferPointer<UInt8>) {
        for (field, start) in zip(Field.allCases, fields) where wanted.contains(field) {
            if let start { read(field, JSONCursor(bytes, at: start)) }
        }
    }

    /// - Parameter value: JSON that has been checked.
    private mutating func read(_ field: Field, _ value: JSONCursor) {
        switch field {
        case .batchID: found.envelope.batchID = id(value)
        case .installID: found.envelope.installID = id(value)
        case .sentAt: found.envelope.sentAt = integer(value).flatMap { $0 <= EventLimits.maximumTime ? $0 : nil }
        case .created: found.envelope.created = integer(value)
        case .reportVersion: found.envelope.reportVersion = integer(value).flatMap { $0 > 0 ? $0 : nil }
        case .acknowledged: found.envelope.acknowledged = integer(value)
        case .held: found.envelope.held = ranges(value, hasReasons: false)?.map(\.sequences) ?? []
        case .removed: found.envelope.removed = ranges(value, hasReasons: true) ?? []
        case .refused: found.envelope.refused = counts(value)
        }
    }

    /// - Parameter value: JSON that has been checked.
    /// - Returns: The first ``EventLimits/maximumReportedRanges`` ranges; nil if the value is not a list of ranges.
    private func ranges(_ value: JSONCursor, hasReasons: Bool) -> [EventBatch.Envelope.Removed]? {
        var cursor = value
        var ranges: [EventBatch.Envelope.Removed] = []
        guard cursor.skip(UInt8(ascii: "[")) else { return nil }
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: "]")) { return [] }
        repeat {
            guard let range = range(&cursor, hasReason: hasReasons) else { return nil }
            ranges.append(range)
            cursor.skipWhitespace()
        } while ranges.count < EventLimits.maximumReportedRanges && cursor.skip(UInt8(ascii: ","))
        return ranges
    }

    private func range(_ cursor: inout JSONCursor, hasReason: Bool) -> EventBatch.Envelope.Removed? {
        cursor.skipWhitespace()
        guard cursor.skip(UInt8(ascii: "[")), let first = element(&cursor), cursor.skip(UInt8(ascii: ",")), let last = element(&cursor),
            first <= last
        else { return nil }
        var reason = ""
        if hasReason {
            guard cursor.skip(UInt8(ascii: ",")) else { return nil }
            cursor.skipWhitespace()
            guard let text = try? cursor.string(), text.range.count <= EventLimits.maximumNameBytes else { return nil }
            reason = cursor.string(text)
            cursor.skipWhitespace()
        }
        return cursor.skip(UInt8(ascii: "]")) ? .init(first...last, reason: reason) : nil
    }

    private func element(_ cursor: inout JSONCursor) -> Int64? {
        cursor.skipWhitespace()
        guard cursor.current &- 0x30 < 10, let range = try? cursor.number(), let number = cursor.wholeNumber(range) else { return nil }
        cursor.skipWhitespace()
        return number
    }

    private func id(_ value: JSONCursor) -> EventID? {
        var cursor = value
        guard let text = try? cursor.string() else { return nil }
        return cursor.unescaped(text).withUnsafeBufferPointer { EventID(utf8: $0) }
    }

    private func integer(_ value: JSONCursor) -> Int64? {
        var cursor = value
        guard let range = try? cursor.number(), let number = cursor.wholeNumber(range), number >= 0 else { return nil }
        return number
    }

    private func counts(_ value: JSONCursor) -> [String: Int64] {
        var cursor = value
        var counts: [String: Int64] = [:]
        guard cursor.skip(UInt8(ascii: "{")) else { return counts }
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: "}")) { return counts }
        repeat {
            cursor.skipWhitespace()
            let key = cursor.checkedString()
            cursor.skipWhitespace()
            _ = cursor.skip(UInt8(ascii: ":"))
            cursor.skipWhitespace()
            let value = cursor
            guard cursor.skipCheckedValue() else { return counts }
            if key.range.count <= EventLimits.maximumNameBytes { counts[cursor.string(key)] = integer(value) }
            cursor.skipWhitespace()
        } while counts.count < EventLimits.maximumDropReasons && cursor.skip(UInt8(ascii: ","))
        return counts
    }

    /// A problem with the envelope refuses the whole request.
    private static func refusal(_ problem: EventProblem) -> BodyProblem {
        BodyProblem("the envelope is not valid: \(problem.detail)")
    }
}
