/// Reads events from JSON in one pass: finds their fields, leaves `properties` as raw bytes, and checks every limit.
///
/// The client checks its events with the same code before it stores them, so the server has no reason to refuse what the client uploads.
package enum EventScanner {
    /// Checks one encoded event, as the server will, and says where in it the problem is.
    package static func check(_ bytes: [UInt8]) -> EventProblem? {
        scan(bytes[...]).problem
    }

    /// Reads one event that must fill `bytes` except for surrounding white space, as a line of newline-delimited JSON does. Its problem says
    /// where in the event it is, which a server does not look for.
    package static func scan(_ bytes: ArraySlice<UInt8>) -> ScannedEvent {
        bytes.withUnsafeBufferPointer { buffer in
            var fields = fields(of: buffer, 0..<buffer.count)
            if let problem = fields.problem { fields.problem = problem.located(at: failure(in: buffer), in: buffer) }
            return fields
        }.event(in: bytes)
    }

    /// Where reading an event fails.
    private static func failure(in bytes: UnsafeBufferPointer<UInt8>) -> Int {
        var scan = EventScan(from: JSONCursor(bytes))
        do throws(EventProblem) { try scan.event() } catch { return scan.cursor.position }
        return 0
    }

    /// The same for one line of a body.
    static func fields(of body: UnsafeBufferPointer<UInt8>, _ line: Range<Int>) -> EventFields {
        let buffer = UnsafeBufferPointer(rebasing: body[..<line.upperBound])
        var cursor = JSONCursor(buffer, at: line.lowerBound)
        cursor.skipWhitespace()
        let start = cursor.position
        var scan = EventScan(from: cursor)
        do throws(EventProblem) {
            try scan.event()
            cursor.position = scan.cursor.position
            cursor.skipWhitespace()
            guard cursor.isAtEnd else { throw JSONCursor.invalid("something follows the event") }
        } catch {
            // An event that was read to its end keeps its id, whatever follows it.
            if scan.found.wire.isEmpty { scan.found.id = LenientScan(buffer).eventID(from: start) }
            scan.fail(error, bytes: (LenientScan(buffer).endOfValue(from: start) ?? buffer.count) - start)
            scan.found.wire = line
        }
        return scan.found
    }

    /// Reads the event that begins at the cursor, and moves the cursor past its end even if the event is invalid.
    ///
    /// - Throws: ``BodyProblem`` if the event's end cannot be found.
    static func scan(_ cursor: inout JSONCursor) throws(BodyProblem) -> EventFields {
        let start = cursor.position
        var scan = EventScan(from: cursor)
        do throws(EventProblem) {
            try scan.event()
            cursor.position = scan.cursor.position
        } catch {
            let lenient = LenientScan(cursor.bytes)
            guard let end = lenient.endOfValue(from: start) else { throw BodyProblem("the end of an event cannot be found") }
            scan.fail(error, bytes: end - start)
            scan.found.id = lenient.eventID(from: start)
            scan.found.wire = start..<end
            cursor.position = end
        }
        return scan.found
    }
}

/// Why no event of a body can be read safely. Nothing of the body is stored.
package struct BodyProblem: Error, Hashable, Sendable {
    /// The code that the whole request is refused with.
    package let code: RequestProblem.Code
    /// For people; holds nothing of the body.
    package let detail: String

    init(_ detail: String, code: RequestProblem.Code = .malformed) {
        self.code = code
        self.detail = detail
    }
}

private struct EventScan {
    var cursor: JSONCursor
    var found = EventFields()

    /// Problems with fields are kept until the event's end is reached: the rest must still be valid JSON, the id may follow, and a repeated
    /// key replaces the value that was wrong (the last of repeated keys wins).
    private var fieldProblems: [(field: Fields, problem: () -> EventProblem)] = []
    private var seen: Fields = []

    private struct Fields: OptionSet {
        let rawValue: UInt8
        static let id = Fields(rawValue: 1)
        static let name = Fields(rawValue: 2)
        static let time = Fields(rawValue: 4)
        static let distinctID = Fields(rawValue: 8)
        static let sequence = Fields(rawValue: 16)
        static let properties = Fields(rawValue: 32)
    }

    /// - Parameter start: Where the event begins. The scan ends one byte after the limit of an event; the rest of a larger event is skipped.
    init(from start: JSONCursor) {
        let end = min(start.bytes.count, start.position + EventLimits.maximumEventBytes + 1)
        cursor = JSONCursor(UnsafeBufferPointer(rebasing: start.bytes[..<end]), at: start.position)
    }

    /// - Parameter bytes: The length of the whole event.
    mutating func fail(_ problem: EventProblem, bytes: Int) {
        if found.problem == nil { found.problem = Self.sizeProblem(bytes) ?? problem }
    }

    private static func sizeProblem(_ bytes: Int) -> EventProblem? {
        bytes <= EventLimits.maximumEventBytes
            ? nil : EventProblem(.eventTooLarge, detail: "the event is \(bytes) bytes, limit \(EventLimits.maximumEventBytes)")
    }

    mutating func event() throws(EventProblem) {
        cursor.skipWhitespace()
        let start = cursor.position
        guard cursor.skip(UInt8(ascii: "{")) else {
            throw EventProblem(.notAnObject, detail: "an event must be an object")
        }
        var keys = 0
        cursor.skipWhitespace()
        if !cursor.skip(UInt8(ascii: "}")) {
            repeat {
                cursor.skipWhitespace()
                keys += 1
                let key = try cursor.string()
                cursor.skipWhitespace()
                guard cursor.skip(UInt8(ascii: ":")) else { throw JSONCursor.invalid("a colon is expected") }
                cursor.skipWhitespace()
                try field(key)
                cursor.skipWhitespace()
            } while cursor.skip(UInt8(ascii: ","))
            guard cursor.skip(UInt8(ascii: "}")) else { throw JSONCursor.invalid("a comma or an end is expected") }
        }
        found.wire = start..<cursor.position
        if !seen.contains(.properties) { found.properties = EventFields.noProperties }
        found.problem = verdict(keys: keys)
    }

    /// The first thing wrong with an event that is valid JSON.
    private func verdict(keys: Int) -> EventProblem? {
        if let problem = Self.sizeProblem(found.wire.count) { return problem }
        if keys > EventLimits.maximumKeysPerObject {
            return EventProblem(.tooManyKeys, detail: "an object has more than \(EventLimits.maximumKeysPerObject) keys")
        }
        if let first = fieldProblems.first { return first.problem() }
        if !seen.contains(.id) { return EventProblem(.missingID, detail: "event_id is missing") }
        if !seen.contains(.name) { return EventProblem(.missingName, detail: "event is missing") }
        if !seen.contains(.time) { return EventProblem(.missingTime, detail: "time is missing") }
        if !seen.contains(.distinctID) { return EventProblem(.missingDistinctID, detail: "distinct_id is missing") }
        return nil
    }

    private mutating func field(_ key: JSONCursor.Text) throws(EventProblem) {
        if cursor.equals(key, "properties") {
            try properties()
        } else if cursor.equals(key, "event_id") {
            try id()
        } else if cursor.equals(key, "event") {
            begin(.name)
            found.name = try text(
                .name, "event", maximum: EventLimits.maximumNameBytes, invalid: .invalidName, tooLong: .nameTooLong)
        } else if cursor.equals(key, "time") {
            begin(.time)
            found.time = try integer(.time, "time", upTo: EventLimits.maximumTime, invalid: .invalidTime) ?? 0
        } else if cursor.equals(key, "distinct_id") {
            begin(.distinctID)
            found.distinctID = try text(
                .distinctID, "distinct_id", maximum: EventLimits.maximumDistinctIDBytes, invalid: .invalidDistinctID,
                tooLong: .distinctIDTooLong)
        } else if cursor.equals(key, "sequence") {
            begin(.sequence)
            if cursor.current == UInt8(ascii: "n") {
                try cursor.value(depth: 1)
                found.sequence = nil
            } else {
                found.sequence = try integer(.sequence, "sequence", upTo: .max, invalid: .invalidSequence)
            }
        } else {
            try cursor.value(depth: 1)
        }
    }

    private mutating func id() throws(EventProblem) {
        begin(.id)
        found.id = nil
        guard cursor.current == UInt8(ascii: "\"") else {
            try cursor.value(depth: 1)
            return note(.id, EventProblem(.invalidID, detail: "event_id must be a string"))
        }
        let text = try cursor.string()
        if text.hasEscapes {
            found.id = cursor.unescaped(text).withUnsafeBufferPointer { EventID(utf8: $0) }
        } else {
            found.id = EventID(utf8: UnsafeBufferPointer(rebasing: cursor.bytes[text.range]))
        }
        if found.id == nil { note(.id, EventProblem(.invalidID, detail: "event_id must be a UUID, neither nil nor max")) }
    }

    private mutating func text(
        _ field: Fields, _ name: String, maximum: Int, invalid: EventProblem.Reason, tooLong: EventProblem.Reason
    ) throws(EventProblem) -> EventFields.Text {
        guard cursor.current == UInt8(ascii: "\"") else {
            try cursor.value(depth: 1)
            note(field, EventProblem(invalid, detail: "\(name) must be a string"))
            return .none
        }
        let text = try cursor.string()
        let count = text.hasEscapes ? cursor.withUnescaped(text) { $0.count } : text.range.count
        if count == 0 { note(field, EventProblem(invalid, detail: "\(name) is empty")) }
        if count > maximum { note(field, EventProblem(tooLong, detail: "\(name) is \(count) bytes, limit \(maximum)")) }
        return EventFields.Text(range: text.range, writing: text.hasEscapes ? .escaped : .plain)
    }

    private mutating func integer(
        _ field: Fields, _ name: String, upTo maximum: Int64, invalid: EventProblem.Reason
    ) throws(EventProblem) -> Int64? {
        guard cursor.current == UInt8(ascii: "-") || cursor.current &- 0x30 < 10 else {
            try cursor.value(depth: 1)
            note(field, EventProblem(invalid, detail: "\(name) must be an integer\(field == .time ? ", in milliseconds since 1970" : "")"))
            return nil
        }
        let range = try cursor.number()
        guard let value = cursor.wholeNumber(range), value >= 0, value <= maximum else {
            let cursor = cursor
            note(field, Self.outOfRange(name, upTo: maximum, invalid, time: field == .time ? cursor.double(range) : nil))
            return nil
        }
        return value
    }

    private static func outOfRange(_ name: String, upTo maximum: Int64, _ reason: EventProblem.Reason, time: Double?) -> EventProblem {
        let hint = time.flatMap(unit).map { ", in milliseconds; this looks like \($0)" } ?? ""
        return EventProblem(reason, detail: "\(name) must be an integer from 0 to \(maximum)\(hint)")
    }

    /// The unit that an invalid time is probably in: the one in which it lies between 1973 and 5138.
    private static func unit(_ time: Double) -> String? {
        for (unit, scale) in [("seconds", 1.0), ("microseconds", 1e6), ("nanoseconds", 1e9)] {
            if ScannedEvent.secondsOfToday ~= time / scale { return unit }
        }
        return nil
    }

    private mutating func properties() throws(EventProblem) {
        begin(.properties)
        let start = cursor.position
        let kind = cursor.current
        try cursor.value(depth: 1)
        if kind == UInt8(ascii: "{") {
            found.properties = EventFields.Text(range: start..<cursor.position)
        } else if kind == UInt8(ascii: "n") {
            found.properties = EventFields.noProperties
        } else {
            note(.properties, EventProblem(.invalidProperties, detail: "properties must be an object"))
        }
    }

    /// A field's value follows. The last of repeated fields counts, so forget an earlier problem.
    private mutating func begin(_ field: Fields) {
        seen.insert(field)
        if !fieldProblems.isEmpty { fieldProblems.removeAll { $0.field == field } }
    }

    /// - Parameter problem: Evaluated only if it is reported.
    private mutating func note(_ field: Fields, _ problem: @escaping @autoclosure () -> EventProblem) {
        fieldProblems.append((field, problem))
    }
}
