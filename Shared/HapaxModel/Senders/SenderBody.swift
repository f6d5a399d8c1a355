/// Reads the body of another SDK's request: first it steps over all of it, since what belongs to each event often stands after them; then it lays one event a call
/// (``SenderEvent``). What it steps over is not checked: each laid event is.
package struct SenderBody: EventSource {
    private let body: [UInt8]
    private let format: SenderFormat
    private let type: String
    private let ids: SenderIDs
    private let writer = ReusedWriter()
    private let arrival: Int64

    /// Bytes that were stepped over and laid so far.
    package private(set) var position = 0
    package private(set) var envelope = EventBatch.Envelope()
    package var envelopeChanged: Bool { false }
    package var via: SenderFormat? { format }

    private enum Stage {
        /// Another member of the body comes next.
        case members(isFirst: Bool)
        /// Another event comes next, or the end of their array.
        case elements(isFirst: Bool)
        /// Everything was stepped over; the event with this number is to be laid.
        case laying(Int)
    }

    private var stage = Stage.members(isFirst: true)
    private var place = 0
    /// Each event, and where it is; nil if the body has no array of them: then it is one itself.
    private var events: [(range: Range<Int>, fields: SenderEvent?)]?
    /// Whether the body is the array of its events.
    private var isArray = false
    /// The key of the first event that has one.
    private var key: Range<Int>?
    /// Members of the body that belong to each event.
    private var shared: [Range<Int>] = []
    private var sharedBytes = 0
    private var laidBytes = 0
    private var ordinals: [EventID: Int] = [:]
    /// Bytes that are stepped over before other work may go first.
    private static let piece = 64 * 1024

    /// - Parameters:
    ///   - type: Of events that do not say their own, as the path has it.
    ///   - arrival: When the request arrived, in Unix milliseconds.
    package init(_ body: [UInt8], _ format: SenderFormat, type: String, _ door: SenderDoor, arrival: Int64) {
        let format = format.actual(of: body)
        (self.body, self.format, self.type, self.arrival) = (body, format, type, arrival)
        ids = SenderIDs(format, door)
    }

    /// The key that stands in a body, which may be anything, or in its first event; nil if none can be found.
    package static func key(in body: [UInt8], _ format: SenderFormat) -> String? {
        body.withUnsafeBufferPointer { bytes in
            var (found, steps) = (Range<Int>?.none, JSONSteps(bytes, at: JSONSteps.startOfText(bytes)))
            steps.skipWhitespace()
            let (start, cursor) = (steps.position, JSONCursor(bytes))
            _ = steps.object(&found) { found, member in
                if format.bodyRole(of: member.key, in: cursor) == .key { found = member.value }
            }
            if found == nil {
                // The first event that has one: another one may be bad.
                steps.position = start
                let isArray = steps.skip(UInt8(ascii: "["))
                repeat {
                    steps.skipWhitespace()
                    let place = steps.position
                    let event = SenderEvent(&steps, format)
                    found = event?.key
                    if event == nil {
                        steps.position = place
                        guard steps.value() != nil else { break }
                    }
                    steps.skipWhitespace()
                } while found == nil && isArray && steps.skip(UInt8(ascii: ","))
            }
            return found.flatMap { value in
                var value = JSONSteps(bytes, at: value.lowerBound)
                return value.string().flatMap { cursor.withUnescaped($0) { String(decoding: $0, as: UTF8.self) } }
            }
        }
    }

    /// The id of each event as it was sent, in their order; nil of one without.
    package static func sentIDs(in body: [UInt8], _ format: SenderFormat) -> [String?] {
        var scan = SenderBody(body, format, type: "", .public, arrival: 0)
        return body.withUnsafeBufferPointer { bytes in
            // What cannot be stepped over has no events.
            while true {
                if case .laying = scan.stage { break }
                guard (try? scan.step(bytes, { _, _, _ in })) != nil else { return [] }
            }
            // Of an event that is too large as well, since what has no result counts as stored.
            return (scan.events ?? []).map { SenderEvent.sentID(of: $0.range, in: bytes, format) }
        }
    }

    package mutating func next(_ take: BodyScan.Take) throws(BodyProblem) -> Bool {
        let body = body
        let result: Result<Bool, BodyProblem> = body.withUnsafeBufferPointer { bytes in
            do throws(BodyProblem) { return .success(try step(bytes, take)) } catch { return .failure(error) }
        }
        return try result.get()
    }

    private mutating func step(_ bytes: UnsafeBufferPointer<UInt8>, _ take: BodyScan.Take) throws(BodyProblem) -> Bool {
        var steps = JSONSteps(bytes, at: place)
        switch stage {
        case .members(let isFirst): try member(&steps, isFirst: isFirst)
        case .elements(let isFirst): try elements(&steps, isFirst: isFirst)
        case .laying(let number):
            guard number < events?.count ?? 1 else { return false }
            let event = events?[number] ?? single(bytes)
            let before = laidBytes
            lay(event, bytes, take)
            position += max(event.range.count, laidBytes - before)
            // What belongs to all events is stored with each: a small body must not become a large one.
            guard laidBytes <= EventLimits.maximumDecompressedBodyBytes else {
                throw BodyProblem("the events, each with what belongs to all, take more than a body may", code: .bodyTooLarge)
            }
            stage = .laying(number + 1)
            return true
        }
        position += steps.position - place
        place = steps.position
        return true
    }

    private mutating func member(_ steps: inout JSONSteps, isFirst: Bool) throws(BodyProblem) {
        if isFirst { steps.position = JSONSteps.startOfText(steps.bytes) }
        steps.skipWhitespace()
        if isFirst {
            if steps.skip(UInt8(ascii: "[")) {
                (isArray, events, stage) = (true, [], .elements(isFirst: true))
                return
            }
            guard steps.skip(UInt8(ascii: "{")) else { throw BodyProblem("the body must be a JSON object, or an array of events") }
            steps.skipWhitespace()
        } else if steps.skip(UInt8(ascii: ",")) {
            steps.skipWhitespace()
        } else if steps.current != UInt8(ascii: "}") {
            throw Self.invalid
        }
        if steps.skip(UInt8(ascii: "}")) {
            steps.skipWhitespace()
            guard steps.isAtEnd else { throw BodyProblem("something follows the body") }
            stage = .laying(0)
            return
        }
        stage = .members(isFirst: false)
        let (start, cursor) = (steps.position, JSONCursor(steps.bytes))
        guard let key = steps.string() else { throw Self.invalid }
        steps.skipWhitespace()
        guard steps.skip(UInt8(ascii: ":")) else { throw Self.invalid }
        steps.skipWhitespace()
        let role = format.bodyRole(of: key, in: cursor)
        if role == .events, steps.skip(UInt8(ascii: "[")) {
            // If the last one won, the events of the first array would get no outcome.
            guard events == nil else { throw BodyProblem("the events are given twice") }
            (events, stage) = ([], .elements(isFirst: true))
            return
        }
        guard let value = steps.value() else { throw Self.invalid }
        switch role {
        case .events: throw BodyProblem("the events must be an array")
        case .shared, nil:
            shared.append(start..<steps.position)
            sharedBytes += steps.position - start
        case .sentAt:
            var text = JSONSteps(steps.bytes, at: value.lowerBound)
            envelope.sentAt = text.string().flatMap { cursor.withUnescaped($0) { SenderTime.milliseconds($0) } }
        case .key, .dropped: break
        }
    }

    private mutating func elements(_ steps: inout JSONSteps, isFirst: Bool) throws(BodyProblem) {
        var isFirst = isFirst
        while steps.position - place < Self.piece {
            steps.skipWhitespace()
            if steps.skip(UInt8(ascii: "]")) {
                stage = .members(isFirst: false)
                guard isArray else { return }
                steps.skipWhitespace()
                guard steps.isAtEnd else { throw BodyProblem("something follows the body") }
                stage = .laying(0)
                return
            }
            if !isFirst {
                guard steps.skip(UInt8(ascii: ",")) else { throw Self.invalid }
                steps.skipWhitespace()
            }
            isFirst = false
            let start = steps.position
            // What is no object is refused alone, if its end can be found.
            let fields = steps.current == UInt8(ascii: "{") ? SenderEvent(&steps, format) : nil
            if fields == nil {
                steps.position = start
                guard steps.value() != nil else { throw Self.invalid }
            }
            events?.append((start..<steps.position, fields))
            guard events?.count ?? 0 <= EventLimits.maximumEventsPerBatch else {
                throw BodyProblem("a batch holds more than \(EventLimits.maximumEventsPerBatch) events", code: .tooManyEvents)
            }
        }
        stage = .elements(isFirst: isFirst)
    }

    private static let invalid = BodyProblem("the body is not valid JSON")

    /// The whole body as one event.
    private func single(_ bytes: UnsafeBufferPointer<UInt8>) -> (range: Range<Int>, fields: SenderEvent?) {
        guard bytes.count <= SenderEvent.maximumBytes else { return (0..<bytes.count, nil) }
        var steps = JSONSteps(bytes, at: JSONSteps.startOfText(bytes))
        steps.skipWhitespace()
        return (0..<bytes.count, SenderEvent(&steps, format))
    }

    private mutating func lay(
        _ event: (range: Range<Int>, fields: SenderEvent?), _ bytes: UnsafeBufferPointer<UInt8>, _ take: BodyScan.Take
    ) {
        guard let unwrapped = format.unwrapped, let sent = event.fields, sent.range.count <= SenderEvent.maximumBytes else {
            return lay(event, bytes, in: bytes, take)
        }
        unwrapped(UnsafeBufferPointer(rebasing: bytes[sent.range])).withUnsafeBufferPointer { own in
            var steps = JSONSteps(own)
            lay((event.range, SenderEvent(&steps, format)), bytes, in: own, take)
        }
    }

    /// - Parameters:
    ///   - bytes: What was sent.
    ///   - own: What the event's fields lie in.
    private mutating func lay(
        _ event: (range: Range<Int>, fields: SenderEvent?), _ bytes: UnsafeBufferPointer<UInt8>, in own: UnsafeBufferPointer<UInt8>,
        _ take: BodyScan.Take
    ) {
        var fields = EventFields()
        fields.wire = event.range
        guard event.range.count + (events == nil ? 0 : sharedBytes) <= SenderEvent.maximumBytes else {
            // Refused before all that belongs to it is copied.
            fields.problem = EventProblem(
                .eventTooLarge, detail: "the event is larger than \(EventLimits.maximumEventBytes) bytes with what belongs to all")
            return take(fields, bytes, envelope)
        }
        guard let sent = event.fields else {
            let isObject = bytes[event.range].first { $0 > 0x20 } == UInt8(ascii: "{")
            fields.problem =
                isObject
                ? JSONCursor.invalid("the members of an event cannot be told apart")
                : EventProblem(.notAnObject, detail: "an event must be an object")
            return take(fields, bytes, envelope)
        }
        if format.scope == .source, !sent.hasSource {
            fields.problem = EventProblem(.missingID, detail: "id and source are required")
            return take(fields, bytes, envelope)
        }
        if let its = sent.key {
            guard bytes[its].elementsEqual(bytes[key ?? its]) else {
                fields.problem = EventProblem(.otherProject, detail: "the event has another key than the first one of its request")
                return take(fields, bytes, envelope)
            }
            key = key ?? its
        }
        sent.lay(in: own, &writer.place.pointee, format, type: type, shared: events == nil ? [] : shared, arrival: arrival, ids) { id in
            let equals = (ordinals[id] ?? -1) + 1
            ordinals[id] = equals
            return equals
        } _: { fields, laid in
            laidBytes += laid.count
            guard let problem = fields.problem else { return take(fields, laid, envelope) }
            // A refusal shows what was sent, not what was made of it.
            var refused = EventFields()
            (refused.id, refused.problem, refused.wire) = (fields.id, problem, event.range)
            // What was rewritten lies elsewhere.
            if format.unwrapped == nil { refused.name = sent.namePlace(in: bytes) }
            guard format.unwrapped == nil, let hidden = sent.hidden else { return take(refused, bytes, envelope) }
            // And no key: who may read must not learn how to write.
            var shown = Array(bytes[event.range])
            for place in hidden.dropFirst().dropLast() { shown[place - event.range.lowerBound] = UInt8(ascii: "*") }
            refused.wire = 0..<shown.count
            if !refused.name.range.isEmpty { refused.name.range = refused.name.range.shifted(by: -event.range.lowerBound) }
            shown.withUnsafeBufferPointer { take(refused, $0, envelope) }
        }
    }
}

/// One buffer for all events of a body. Behind a pointer, since it is written to throughout the laying of an event, whose every other access would be compared with that.
private final class ReusedWriter {
    let place = UnsafeMutablePointer<JSONWriter>.allocate(capacity: 1)

    init() { place.initialize(to: JSONWriter(capacity: 2_048)) }

    deinit {
        place.deinitialize(count: 1)
        place.deallocate()
    }
}

extension Range<Int> {
    fileprivate func shifted(by distance: Int) -> Self { lowerBound + distance..<upperBound + distance }
}
