/// What a request's body holds: the events in order, and what its envelope says.
package struct ScannedBody: Sendable {
    /// What the envelope says; empty for a bare array and for lines.
    package var envelope = EventBatch.Envelope()
    /// In the order of the body, bad ones included.
    package var events: [ScannedEvent] = []

    /// Reads an envelope, or a bare array of events.
    ///
    /// - Throws: ``BodyProblem`` if the envelope cannot be read or the end of an event cannot be found; an event that is bad in itself is
    ///   returned with its `problem`.
    package init(json body: ArraySlice<UInt8>) throws(BodyProblem) {
        var scan = BodyScan(body: body)
        let result: Result<Void, BodyProblem> = body.withUnsafeBufferPointer { buffer in
            Result { () throws(BodyProblem) in try scan.body(buffer) }
        }
        try result.get()
        self = scan.found
    }

    /// Reads newline-delimited JSON, one event a line; empty lines are skipped and a bad line costs only itself.
    ///
    /// - Throws: ``BodyProblem`` if there are more lines than a batch may have.
    package init(lines body: ArraySlice<UInt8>) throws(BodyProblem) {
        // Line by line: splitting first would build a slice for each of millions of empty lines.
        let result: Result<Void, BodyProblem> = body.withUnsafeBufferPointer { bytes in
            Result { () throws(BodyProblem) in
                var start = 0
                while start < bytes.count {
                    // Blank lines and blanks in front of an event cost a look each.
                    if bytes[start] == 0x0A || bytes[start] == 0x20 || bytes[start] == 0x0D || bytes[start] == 0x09 {
                        start += 1
                        continue
                    }
                    var end = start
                    while end < bytes.count, bytes[end] != 0x0A { end += 1 }
                    try Self.checkCount(events.count + 1)
                    events.append(EventScanner.scan(body[body.startIndex + start..<body.startIndex + end]))
                    start = end + 1
                }
            }
        }
        try result.get()
    }

    fileprivate init() {}

    fileprivate static func checkCount(_ count: Int) throws(BodyProblem) {
        guard count <= EventLimits.maximumEventsPerBatch else {
            throw BodyProblem("a batch holds more than \(EventLimits.maximumEventsPerBatch) events", code: .tooManyEvents)
        }
    }
}

private struct BodyScan {
    let body: ArraySlice<UInt8>
    var found = ScannedBody()

    mutating func body(_ bytes: UnsafeBufferPointer<UInt8>) throws(BodyProblem) {
        var cursor = JSONCursor(bytes)
        cursor.skipWhitespace()
        switch cursor.current {
        case UInt8(ascii: "["): try events(&cursor)
        case UInt8(ascii: "{"): try envelope(&cursor)
        default: throw BodyProblem("the body must be an object or an array")
        }
        cursor.skipWhitespace()
        guard cursor.isAtEnd else { throw BodyProblem("something follows the batch") }
    }

    private mutating func envelope(_ cursor: inout JSONCursor) throws(BodyProblem) {
        var hasEvents = false
        cursor.position += 1
        cursor.skipWhitespace()
        if !cursor.skip(UInt8(ascii: "}")) {
            repeat {
                cursor.skipWhitespace()
                let key = try self.key(&cursor)
                cursor.skipWhitespace()
                guard cursor.skip(UInt8(ascii: ":")) else { throw BodyProblem("the envelope is not valid JSON") }
                cursor.skipWhitespace()
                if cursor.equals(key, "events") {
                    guard cursor.current == UInt8(ascii: "[") else { throw BodyProblem("events must be an array") }
                    // Last key wins would make the events of the first array vanish without an outcome.
                    guard !hasEvents else { throw BodyProblem("events is given twice") }
                    hasEvents = true
                    try events(&cursor)
                } else {
                    try field(key, &cursor)
                }
                cursor.skipWhitespace()
            } while cursor.skip(UInt8(ascii: ","))
            guard cursor.skip(UInt8(ascii: "}")) else { throw BodyProblem("the envelope is not valid JSON") }
        }
        guard hasEvents else { throw BodyProblem("events is missing") }
    }

    private mutating func events(_ cursor: inout JSONCursor) throws(BodyProblem) {
        cursor.position += 1
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: "]")) { return }
        repeat {
            cursor.skipWhitespace()
            try ScannedBody.checkCount(found.events.count + 1)
            found.events.append(try EventScanner.scan(body, &cursor))
            cursor.skipWhitespace()
        } while cursor.skip(UInt8(ascii: ","))
        guard cursor.skip(UInt8(ascii: "]")) else { throw BodyProblem("the array of events is not valid JSON") }
    }

    private func key(_ cursor: inout JSONCursor) throws(BodyProblem) -> JSONCursor.Text {
        do throws(EventProblem) { return try cursor.string() } catch { throw Self.refusal(error) }
    }

    /// An optional field that cannot be used is as good as absent.
    private mutating func field(_ key: JSONCursor.Text, _ cursor: inout JSONCursor) throws(BodyProblem) {
        let start = cursor.position
        do throws(EventProblem) {
            if cursor.equals(key, "refused"), cursor.current == UInt8(ascii: "{") {
                return found.envelope.refused = try counts(&cursor)
            }
            try cursor.value(depth: 0)
        } catch {
            // JSON beyond the limits of an event is JSON all the same and is stepped over.
            guard error.reason != .invalidJSON, let end = LenientScan(cursor.bytes).endOfValue(from: start) else {
                throw Self.refusal(error)
            }
            cursor.position = end
            return
        }
        let value = JSONCursor(cursor.bytes, at: start)
        if cursor.equals(key, "batch_id") {
            found.envelope.batchID = id(value)
        } else if cursor.equals(key, "install_id") {
            found.envelope.installID = id(value)
        } else if cursor.equals(key, "sent_at") {
            found.envelope.sentAt = integer(value).flatMap { $0 <= EventLimits.maximumTime ? $0 : nil }
        } else if cursor.equals(key, "created") {
            found.envelope.created = integer(value)
        } else if cursor.equals(key, "word") {
            found.envelope.word = integer(value).flatMap { $0 > 0 ? $0 : nil }
        } else if cursor.equals(key, "acknowledged") {
            found.envelope.acknowledged = integer(value)
        } else if cursor.equals(key, "held") {
            found.envelope.held = ranges(value, hasReasons: false)?.map(\.sequences) ?? []
        } else if cursor.equals(key, "gone") {
            found.envelope.gone = ranges(value, hasReasons: true) ?? []
        }
    }

    /// - Parameter value: JSON that has been checked.
    /// - Returns: The first ``EventLimits/maximumSaidRanges``; nil if it is anything but a list of ranges.
    private func ranges(_ value: JSONCursor, hasReasons: Bool) -> [EventBatch.Envelope.Gone]? {
        var cursor = value
        var ranges: [EventBatch.Envelope.Gone] = []
        guard cursor.skip(UInt8(ascii: "[")) else { return nil }
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: "]")) { return [] }
        repeat {
            guard let range = range(&cursor, hasReason: hasReasons) else { return nil }
            ranges.append(range)
            cursor.skipWhitespace()
        } while ranges.count < EventLimits.maximumSaidRanges && cursor.skip(UInt8(ascii: ","))
        return ranges
    }

    private func range(_ cursor: inout JSONCursor, hasReason: Bool) -> EventBatch.Envelope.Gone? {
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
        guard cursor.current &- 0x30 < 10, let range = try? cursor.number(), let number = cursor.integer(range) else { return nil }
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
        guard let range = try? cursor.number(), let number = cursor.integer(range), number >= 0 else { return nil }
        return number
    }

    private func counts(_ cursor: inout JSONCursor) throws(EventProblem) -> [String: Int64] {
        var counts: [String: Int64] = [:]
        cursor.position += 1
        cursor.skipWhitespace()
        if cursor.skip(UInt8(ascii: "}")) { return counts }
        repeat {
            cursor.skipWhitespace()
            let key = try cursor.string()
            cursor.skipWhitespace()
            guard cursor.skip(UInt8(ascii: ":")) else { throw JSONCursor.invalid("a colon is expected") }
            cursor.skipWhitespace()
            let value = cursor
            try cursor.value(depth: 1)
            if counts.count < EventLimits.maximumDropReasons, key.range.count <= EventLimits.maximumNameBytes {
                counts[cursor.string(key)] = integer(value)
            }
            cursor.skipWhitespace()
        } while cursor.skip(UInt8(ascii: ","))
        guard cursor.skip(UInt8(ascii: "}")) else { throw JSONCursor.invalid("a comma or an end is expected") }
        return counts
    }

    /// What is wrong with the envelope itself is wrong with the whole request.
    private static func refusal(_ problem: EventProblem) -> BodyProblem {
        BodyProblem("the envelope is not valid: \(problem.detail)")
    }
}
