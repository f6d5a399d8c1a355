/// One foreign event, laid as one of ours into a buffer that ``EventScanner`` then reads: so every limit and every reason stay in one place, and a fault
/// here can refuse an event, but never store what the scanner would not.
///
/// `{"event_id":…,"event":…,"time":…,"distinct_id":…,"properties":{…,"$anonymous_id":…,"$via":{…,"batch":{…},"id":…,"sdk":…}}}`. What is not named is copied
/// as it was sent. What is ours stands last, and of repeated members the last counts: so no sender can forge it. A class, since it is handed on some times between being
/// stepped over and being laid, and is large.
final class SenderEvent {
    /// A longer one, with what belongs to all events of its body, is refused before it is laid: that may leave out fields of the transport, but not so many.
    static let maximumBytes = 2 * EventLimits.maximumEventBytes

    /// The whole event.
    private(set) var range: Range<Int>

    private var id: Range<Int>?
    private var name: Field?
    private var type: Field?
    /// The one that counts if it can be read, and another one.
    private var (time, otherTime): (Field?, Field?)
    private var (user, anonymous, source): (Field?, Field?, Field?)
    private var properties: Field?
    /// Members of the properties that stay there; nil for all.
    private var kept: [Range<Int>]?
    /// The member that says what is done to a profile, with its name.
    private var operation: (name: Range<Int>, value: Range<Int>, member: Range<Int>)?
    /// Whose event it is.
    private(set) var key: Range<Int>?
    /// A key that is shown to nobody.
    private(set) var hidden: Range<Int>?
    /// Members that are kept under `$via`, whole; those whose names are ours there, apart.
    private var (others, own): ([Range<Int>], [Range<Int>]) = ([], [])

    /// A member with a role.
    private struct Field {
        var rank = 0
        var value: Range<Int>
        var member: Range<Int>
    }

    /// What we write under `$via` ourselves, and where a sender's members of these names go.
    private static let ownNames: [StaticString] = ["sdk", "id", "batch", "repaired", "own"]

    /// Steps over the object that begins at the position, and notes where its fields are.
    ///
    /// - Returns: nil if no object begins there, or it cannot be stepped over.
    init?(_ steps: inout JSONSteps, _ format: SenderFormat) {
        let (start, cursor) = (steps.position, JSONCursor(steps.bytes))
        range = start..<start
        var nothing: Void = ()
        guard steps.object(&nothing, { take($1, format, cursor) }) else { return nil }
        range = start..<steps.position
        if format.hasNestedRoles { takeProperties(format, cursor) }
        settleOperation(in: cursor.bytes)
    }

    /// What is done to a profile names the event, and holds its properties, if nothing else does.
    private func settleOperation(in body: UnsafeBufferPointer<UInt8>) {
        guard let (_, value, member) = operation else { return }
        guard name == nil, properties == nil else { operation = nil; return others.append(member) }
        if body[value.lowerBound] == UInt8(ascii: "{") { properties = Field(value: value, member: member) } else { others.append(member) }
    }

    /// Takes what stands among the properties and is none.
    private func takeProperties(_ format: SenderFormat, _ cursor: JSONCursor) {
        guard let properties, range.count <= Self.maximumBytes else { return }
        var steps = JSONSteps(cursor.bytes, at: properties.value.lowerBound)
        var kept: [Range<Int>] = []
        _ = steps.object(&kept) { kept, member in
            guard let role = format.nestedRole(of: member.key, in: cursor) else { return kept.append(member.range) }
            // What cannot be used stays.
            let before = others.count
            take(member, as: role, cursor)
            kept += others[before...]
            others.removeSubrange(before...)
        }
        self.kept = kept
    }

    private func take(_ member: JSONSteps.Member, _ format: SenderFormat, _ cursor: JSONCursor) {
        guard member.range.upperBound - range.lowerBound <= Self.maximumBytes else { return }
        take(member, as: format.role(of: member.key, in: cursor), cursor)
    }

    private func take(_ member: JSONSteps.Member, as role: SenderFormat.Role?, _ cursor: JSONCursor) {
        let body = cursor.bytes
        // `null` is absent, and so is an empty text, which some SDKs send until somebody logs in.
        let isAbsent = Self.isBytes("null", member.value, in: body) || Self.isBytes(#""""#, member.value, in: body)
        switch role {
        case nil:
            if Self.ownNames.contains(where: { cursor.equals(member.key, $0) }) {
                own.append(member.range)
            } else {
                others.append(member.range)
            }
        case .dropped: break
        // To delete is told with an empty text.
        case .operation:
            guard operation == nil else { return others.append(member.range) }
            operation = (member.key.range, member.value, member.range)
        case .some where isAbsent: break
        case .key:
            key = key ?? member.value
            hidden = key
        case .hidden: hidden = member.value
        case .mediaType:
            let isJSON = Self.withText(member.value, in: body) { CloudEvent.isJSON(String(decoding: $0, as: UTF8.self)) }
            if isJSON != true { others.append(member.range) }
        // An id that is neither a text nor a number is none.
        case .id: if Self.isText(member.value, in: body) { id = member.value } else { others.append(member.range) }
        case .name: name = Field(value: member.value, member: member.range)
        case .type: type = Field(value: member.value, member: member.range)
        case .source: source = Field(value: member.value, member: member.range)
        case .time(let rank):
            let new = Field(rank: rank, value: member.value, member: member.range)
            guard let old = time, old.rank != rank else { return time = new }
            (time, otherTime) = rank < old.rank ? (new, old) : (old, new)
        case .user(let rank): user = settled(user, Field(rank: rank, value: member.value, member: member.range))
        case .anonymous(let rank): anonymous = settled(anonymous, Field(rank: rank, value: member.value, member: member.range))
        case .properties(let rank):
            guard body[member.value.lowerBound] == UInt8(ascii: "{") else { return others.append(member.range) }
            properties = settled(properties, Field(rank: rank, value: member.value, member: member.range))
        case .data:
            let isObject = body[member.value.lowerBound] == UInt8(ascii: "{")
            (properties, kept) = isObject ? (Field(value: member.value, member: member.range), nil) : (nil, [member.range])
        }
    }

    /// Of two fields the one with the lesser rank counts, and the other one is kept; of a repeated one the last counts.
    private func settled(_ old: Field?, _ new: Field) -> Field {
        guard let old, old.rank != new.rank else { return new }
        others.append(new.rank < old.rank ? old.member : new.member)
        return new.rank < old.rank ? new : old
    }

    // MARK: - What it says

    private static func isBytes(_ text: StaticString, _ range: Range<Int>, in body: UnsafeBufferPointer<UInt8>) -> Bool {
        range.count == text.utf8CodeUnitCount && range.indices.allSatisfy { body[$0] == text.utf8Start[$0 - range.lowerBound] }
    }

    /// A text, or a number's own digits; nil if the value is neither. A text that no event may hold as it is, as one that is cut within a character, counts by its bytes.
    private static func withText<Value>(
        _ value: Range<Int>, in body: UnsafeBufferPointer<UInt8>, _ use: (UnsafeBufferPointer<UInt8>) -> Value?
    ) -> Value? {
        guard body[value.lowerBound] == UInt8(ascii: "\"") else {
            return isNumber(value, in: body) ? use(UnsafeBufferPointer(rebasing: body[value])) : nil
        }
        var string = JSONCursor(body, at: value.lowerBound)
        guard let text = try? string.string() else {
            return use(UnsafeBufferPointer(rebasing: body[value.lowerBound + 1..<value.upperBound - 1]))
        }
        return string.withUnescaped(text, use)
    }

    private static func isText(_ value: Range<Int>, in body: UnsafeBufferPointer<UInt8>) -> Bool {
        body[value.lowerBound] == UInt8(ascii: "\"") || isNumber(value, in: body)
    }

    private static func isNumber(_ value: Range<Int>, in body: UnsafeBufferPointer<UInt8>) -> Bool {
        if body[value.lowerBound] == UInt8(ascii: "\"") { return false }
        var cursor = JSONCursor(body, at: value.lowerBound)
        return (try? cursor.number()) == value
    }

    private static func milliseconds(_ time: Field?, in body: UnsafeBufferPointer<UInt8>, _ format: SenderFormat) -> Int64? {
        guard let value = time?.value else { return nil }
        guard Self.isNumber(value, in: body) else { return Self.withText(value, in: body) { SenderTime.milliseconds($0) } }
        if format.mayBeInSeconds { return SenderTime.milliseconds(decimal: UnsafeBufferPointer(rebasing: body[value])) }
        return JSONCursor(body).wholeNumber(value).flatMap { (0...EventLimits.maximumTime).contains($0) ? $0 : nil }
    }

    /// Bytes of an id that is repeated to who sent it.
    private static let maximumRepeated = 200

    /// The id of an event as it was sent; nil if there is none, or it is too long to be repeated.
    static func sentID(of event: Range<Int>, in body: UnsafeBufferPointer<UInt8>, _ format: SenderFormat) -> String? {
        var (steps, id) = (JSONSteps(body, at: event.lowerBound), Range<Int>?.none)
        let cursor = JSONCursor(body)
        _ = steps.object(&id) { id, member in if format.role(of: member.key, in: cursor) == .id { id = member.value } }
        guard let id, id.count <= maximumRepeated else { return nil }
        return withText(id, in: body) { String(decoding: $0, as: UTF8.self) }
    }

    /// Whether it says both what its id is one with and the id.
    var hasSource: Bool { id != nil && source != nil }

    /// Its name in the sender's bytes, as far as it is a text.
    func namePlace(in body: UnsafeBufferPointer<UInt8>) -> EventFields.Text {
        guard let name = name?.value, body[name.lowerBound] == UInt8(ascii: "\""), name.count >= 2 else { return .none }
        var string = JSONCursor(body, at: name.lowerBound)
        guard let text = try? string.string() else { return .none }
        return EventFields.Text(range: text.range, writing: text.hasEscapes ? .escaped : .plain)
    }

    // MARK: - Laying

    /// Lays the event as one of ours and scans it.
    ///
    /// - Parameters:
    ///   - writer: Receives it; what it held before is gone.
    ///   - type: Of an event that does not say its own.
    ///   - shared: Members of the body that belong to each of its events.
    ///   - arrival: The time of an event without one, in Unix milliseconds.
    ///   - ordinal: How many equal events without an id the request had before.
    ///   - take: Receives the fields, and the laid event that holds them.
    func lay(
        in body: UnsafeBufferPointer<UInt8>, _ writer: inout JSONWriter, _ format: SenderFormat, type defaultType: String,
        shared: [Range<Int>], arrival: Int64,
        _ ids: SenderIDs, ordinal: (EventID) -> Int,
        _ take: (EventFields, UnsafeBufferPointer<UInt8>) -> Void
    ) {
        writer.removeLast(writer.count)
        func copy(_ range: Range<Int>, _ writer: inout JSONWriter) { writer.raw(UnsafeBufferPointer(rebasing: body[range])) }
        let read = Self.milliseconds(time, in: body, format)
        var time = read ?? Self.milliseconds(otherTime, in: body, format)
        // What says nothing here is kept as it was sent.
        var others = others
        if let otherTime, read != nil || time == nil { others.append(otherTime.member) }
        if read == nil, let unread = self.time { others.append(unread.member) }
        func bytes(_ value: Range<Int>?) -> [UInt8] { value.flatMap { Self.withText($0, in: body) { Array($0) } } ?? [] }
        let scope =
            switch format.scope {
            case .nothing: [[UInt8]]()
            case .anonymousUser: [bytes(anonymous?.value)]
            case .nameAndUser: [bytes(name?.value), bytes(user?.value)]
            case .source: [bytes(source?.value)]
            }
        var isItself = false
        let given = id.flatMap { id in
            Self.withText(id, in: body) { text -> EventID? in
                if format.scope != .source, let own = SenderIDs.itself(text) {
                    isItself = true
                    return own
                }
                return ids.id(hashing: text, in: scope)
            }
        }
        if format.isDatedByID, time == nil { time = given?.unixMilliseconds }
        writer.raw(#"{"event_id":"#)
        writer.id(given ?? .least)
        func isType(_ name: StaticString) -> Bool {
            var steps = JSONSteps(body, at: type?.value.lowerBound ?? body.count)
            return steps.string().map { JSONCursor(body).equals($0, name) } ?? false
        }
        let ruled = format.typeNames.first { isType($0.type) }
        if let ruled {
            writer.raw(#","event":"#)
            writer.raw("\"")
            writer.raw(ruled.name)
            writer.raw("\"")
            if let name { others.append(name.member) }
        } else if let name {
            writer.raw(#","event":"#)
            copy(name.value, &writer)
            if let type, !format.named.contains(where: isType) { others.append(type.member) }
        } else if let operation {
            writer.raw(#","event":"#)
            writer.string("$\(defaultType)_" + String(decoding: body[operation.name].dropFirst(), as: UTF8.self))
        } else {
            let type = type.flatMap { Self.withText($0.value, in: body) { String(decoding: $0, as: UTF8.self) } } ?? defaultType
            // What was tracked has a name of its own: without one it is refused as nameless.
            if !type.isEmpty, !format.named.contains(where: { "\($0)" == type }) {
                writer.raw(#","event":"#)
                writer.string("$" + type)
            }
        }
        writer.raw(#","time":"#)
        writer.integer(time ?? arrival)
        writer.raw(#","distinct_id":"#)
        let user = user?.value ?? anonymous?.value ?? source?.value
        if let source { others.append(source.member) }
        if let user { Self.copyText(user, in: body, &writer) } else { writer.raw(#""$unknown""#) }
        writer.raw(#","properties":{"#)
        if let kept {
            for member in kept {
                copy(member, &writer)
                writer.raw(",")
            }
        } else if let properties {
            let inside = properties.value.lowerBound + 1..<properties.value.upperBound - 1
            if inside.contains(where: { body[$0] > 0x20 }) {
                copy(inside, &writer)
                writer.raw(",")
            }
        }
        if let anonymous, user != anonymous.value {
            writer.raw(#""$anonymous_id":"#)
            Self.copyText(anonymous.value, in: body, &writer)
            writer.raw(",")
        }
        writer.raw(#""$via":{"#)
        for member in others {
            copy(member, &writer)
            writer.raw(",")
        }
        if !own.isEmpty { copyObject("own", own, in: body, &writer) }
        if !shared.isEmpty { copyObject("batch", shared, in: body, &writer) }
        if let id, given != nil, !isItself {
            writer.raw(#""id":"#)
            Self.copyText(id, in: body, &writer)
            writer.raw(",")
        }
        writer.raw(format.mark)
        var fields = EventScanner.fields(of: &writer)
        if given == nil {
            let parts = [others + own, shared, anonymous.map { [$0.value] } ?? []]
            fields.id = fields.problem == nil ? contentID(fields, &writer, parts, in: body, time ?? arrival, ids, ordinal) : nil
        }
        writer.withBytes { take(fields, UnsafeBufferPointer($0)) }
    }

    /// Where the id stands in a laid event, between its quotation marks.
    private static let idPlace = 13..<49

    private func copyObject(_ name: StaticString, _ members: [Range<Int>], in body: UnsafeBufferPointer<UInt8>, _ writer: inout JSONWriter)
    {
        writer.raw("\"")
        writer.raw(name)
        writer.raw(#"":{"#)
        for (number, member) in members.enumerated() {
            if number > 0 { writer.raw(",") }
            writer.raw(UnsafeBufferPointer(rebasing: body[member]))
        }
        writer.raw("},")
    }

    /// A number becomes its text.
    private static func copyText(_ value: Range<Int>, in body: UnsafeBufferPointer<UInt8>, _ writer: inout JSONWriter) {
        let isNumber = isNumber(value, in: body)
        if isNumber { writer.raw("\"") }
        writer.raw(UnsafeBufferPointer(rebasing: body[value]))
        if isNumber { writer.raw("\"") }
    }

    private func contentID(
        _ fields: EventFields, _ writer: inout JSONWriter, _ parts: [[Range<Int>]], in body: UnsafeBufferPointer<UInt8>, _ time: Int64,
        _ ids: SenderIDs,
        _ ordinal: (EventID) -> Int
    ) -> EventID {
        // All that is stored of it: a page's name and a group's id are no properties.
        var values: [UInt8] = []
        values.reserveCapacity(range.count + 64)
        func add(_ open: StaticString, _ members: [Range<Int>], _ close: StaticString) {
            values.append(contentsOf: UnsafeBufferPointer(start: open.utf8Start, count: open.utf8CodeUnitCount))
            for (number, member) in members.enumerated() {
                if number > 0 { values.append(UInt8(ascii: ",")) }
                values.append(contentsOf: UnsafeBufferPointer(rebasing: body[member]))
            }
            values.append(contentsOf: UnsafeBufferPointer(start: close.utf8Start, count: close.utf8CodeUnitCount))
        }
        if let kept { add("[{", kept, "}") } else if let properties { add("[", [properties.value], "") } else { add("[{", [], "}") }
        // Members of the event, members of the body that belong to it, and the anonymous user.
        add(",{", parts[0], "}")
        add(",{", parts[1], "}")
        add(",[", parts[2], "]]")
        func content(_ ordinal: Int) -> EventID {
            writer.withBytes { laid in
                let laid = UnsafeBufferPointer(laid)
                return fields.name.withBytes(of: laid) { name in
                    fields.distinctID.withBytes(of: laid) { user in
                        ids.id(name: name, user: user, time: time, values: values[...], ordinal: ordinal)
                    }
                }
            }
        }
        let first = content(0)
        let number = ordinal(first)
        let id = number == 0 ? first : content(number)
        writer.withBytes { id.write(to: UnsafeMutableBufferPointer(rebasing: $0[Self.idPlace])) }
        return id
    }
}

extension EventScanner {
    /// Reads a laid event. JavaScript cuts texts within a character, and some texts hold U+0000: such escapes become U+FFFD, which takes as many bytes, and
    /// the event says how many.
    fileprivate static func fields(of laid: inout JSONWriter) -> EventFields {
        let fields = laid.withBytes { Self.fields(of: UnsafeBufferPointer($0), 0..<$0.count) }
        guard let reason = fields.problem?.reason, reason == .loneSurrogate || reason == .nulCharacter else { return fields }
        let repaired = laid.withBytes { Self.repair($0) }
        laid.removeLast(3)
        laid.raw(#","repaired":"#)
        laid.integer(repaired)
        laid.raw("}}}")
        return laid.withBytes { Self.fields(of: UnsafeBufferPointer($0), 0..<$0.count) }
    }

    private static func repair(_ bytes: UnsafeMutableBufferPointer<UInt8>) -> Int {
        var (position, count) = (0, 0)
        func escape(_ start: Int) -> UInt16? {
            guard start + 6 <= bytes.count, bytes[start] == UInt8(ascii: "\\"), bytes[start + 1] == UInt8(ascii: "u") else { return nil }
            return UInt16(String(decoding: bytes[start + 2..<start + 6], as: UTF8.self), radix: 16)
        }
        while position < bytes.count {
            guard bytes[position] == UInt8(ascii: "\\") else {
                position += 1
                continue
            }
            guard let unit = escape(position) else {
                position += 2
                continue
            }
            if 0xD800...0xDBFF ~= unit, let low = escape(position + 6), 0xDC00...0xDFFF ~= low {
                position += 12
                continue
            }
            if unit == 0 || 0xD800...0xDFFF ~= unit {
                for (offset, byte) in "fffd".utf8.enumerated() { bytes[position + 2 + offset] = byte }
                count += 1
            }
            position += 6
        }
        return count
    }
}
