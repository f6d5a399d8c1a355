/// One foreign event, laid as one of ours into a buffer that ``EventScanner`` then reads: so every limit and every reason stay in one place, and a fault
/// here can refuse an event, but never store what the scanner would not.
///
/// `{"event_id":…,"event":…,"time":…,"distinct_id":…,"properties":{…,"$anonymous_id":…,"$via":{…,"batch":{…},"id":…,"sdk":…}}}`. What is not named is copied
/// as it was sent. What is ours stands last, and of repeated members the last counts: so no sender can forge it.
struct SenderEvent {
    private let format: SenderFormat
    private let body: UnsafeBufferPointer<UInt8>
    private let cursor: JSONCursor

    private var id: Range<Int>?
    private var name: Range<Int>?
    private var type: Range<Int>?
    private var time: (rank: Int, value: Range<Int>)?
    private var user: (rank: Int, value: Range<Int>)?
    private var anonymous: Range<Int>?
    private var properties: (rank: Int, value: Range<Int>, member: Range<Int>)?
    /// Members that are kept under `$via`, whole.
    private var others: [Range<Int>] = []

    /// - Returns: nil if no object begins there.
    init?(_ event: Range<Int>, in body: UnsafeBufferPointer<UInt8>, _ format: SenderFormat) {
        (self.format, self.body) = (format, body)
        cursor = JSONCursor(UnsafeBufferPointer(rebasing: body[..<event.upperBound]))
        var steps = JSONSteps(cursor.bytes, at: event.lowerBound)
        var members: [JSONSteps.Member] = []
        steps.skipWhitespace()
        guard steps.object({ members.append($0) }) else { return nil }
        for member in members { take(member) }
    }

    private mutating func take(_ member: JSONSteps.Member) {
        // `null` is absent, and so is an empty text, which some SDKs send until somebody logs in.
        let isAbsent = body[member.value.lowerBound] == UInt8(ascii: "n") || body[member.value].elementsEqual(#""""#.utf8)
        switch format.role(of: member.key, in: cursor) {
        case nil: others.append(member.range)
        case .dropped: break
        case .some where isAbsent: break
        case .id: id = member.value
        case .name: name = member.value
        case .type: type = member.value
        case .anonymous: anonymous = member.value
        case .time(let rank): if rank <= time?.rank ?? .max { time = (rank, member.value) }
        case .user(let rank): if rank <= user?.rank ?? .max { user = (rank, member.value) }
        case .properties(let rank):
            guard rank <= properties?.rank ?? .max, body[member.value.lowerBound] == UInt8(ascii: "{") else {
                return others.append(member.range)
            }
            if let properties, properties.rank != rank { others.append(properties.member) }
            properties = (rank, member.value, member.range)
        }
    }

    // MARK: - What it says

    /// A text, or a number's own digits; nil if the value is neither, or an empty text.
    private func text(_ value: Range<Int>) -> [UInt8]? {
        switch body[value.lowerBound] {
        case UInt8(ascii: "\""):
            var string = JSONCursor(cursor.bytes, at: value.lowerBound)
            guard let text = try? string.string(), !text.range.isEmpty else { return nil }
            return cursor.unescaped(text)
        case UInt8(ascii: "-"), 0x30...0x39: return Array(body[value])
        default: return nil
        }
    }

    private var milliseconds: Int64? {
        guard let value = time?.value, let text = text(value) else { return nil }
        if body[value.lowerBound] != UInt8(ascii: "\"") {
            let number = cursor.wholeNumber(value)
            return number.flatMap { (0...EventLimits.maximumTime).contains($0) ? $0 : nil }
        }
        return text.withUnsafeBufferPointer { SenderTime.milliseconds($0) }
    }

    /// Its name in the sender's bytes, as far as it is a text.
    var namePlace: EventFields.Text {
        guard let name, body[name.lowerBound] == UInt8(ascii: "\""), name.count >= 2 else { return .none }
        var string = JSONCursor(cursor.bytes, at: name.lowerBound)
        guard let text = try? string.string() else { return .none }
        return EventFields.Text(range: text.range, writing: text.hasEscapes ? .escaped : .plain)
    }

    // MARK: - Laying

    /// The event as one of ours.
    ///
    /// - Parameters:
    ///   - type: Of an event that does not say its own.
    ///   - shared: Members of the body that belong to each of its events.
    ///   - arrival: The time of an event without one, in Unix milliseconds.
    ///   - ordinal: How many equal events without an id the request had before.
    func laid(
        type defaultType: String, shared: [Range<Int>], arrival: Int64, _ door: EventID.SenderDoor, ordinal: ([UInt8]) -> Int
    ) -> (bytes: [UInt8], fields: EventFields) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(body.count < 4_096 ? body.count + 512 : 4_096)
        func append(_ text: String) { bytes += text.utf8 }
        func copy(_ range: Range<Int>) { bytes += UnsafeBufferPointer(rebasing: body[range]) }
        let time = milliseconds
        let sent = id.flatMap(text)
        let given = sent.map { EventID.sent($0, via: format, door) }
        append(#"{"event_id":"\#(given ?? .least)","event":"#)
        if let name {
            copy(name)
        } else {
            var writer = JSONWriter()
            writer.string("$" + (type.flatMap(text).map { String(decoding: $0, as: UTF8.self) } ?? defaultType))
            bytes += writer.bytes
        }
        append(#","time":\#(time ?? arrival),"distinct_id":"#)
        let user = user?.value ?? anonymous
        if let user { appendText(user, &bytes) } else { append(#""$unknown""#) }
        append(#","properties":{"#)
        if let properties {
            let inside = properties.value.lowerBound + 1..<properties.value.upperBound - 1
            if inside.contains(where: { body[$0] > 0x20 }) {
                copy(inside)
                append(",")
            }
        }
        if let anonymous, let user, user != anonymous {
            append(#""$anonymous_id":"#)
            appendText(anonymous, &bytes)
            append(",")
        }
        append(#""$via":{"#)
        for member in others {
            copy(member)
            append(",")
        }
        if !shared.isEmpty {
            append(#""batch":{"#)
            for (number, member) in shared.enumerated() {
                if number > 0 { append(",") }
                copy(member)
            }
            append("},")
        }
        if let id, sent.map({ $0 != Array("\(given ?? .least)".utf8) }) ?? false {
            append(#""id":"#)
            appendText(id, &bytes)
            append(",")
        }
        append(#""sdk":"\#(format.via)"}}}"#)
        var fields = EventScanner.fields(of: &bytes)
        if given == nil {
            if fields.problem == nil {
                let id = contentID(fields, bytes, time, door, ordinal)
                bytes.replaceSubrange(Self.idPlace, with: "\(id)".utf8)
                fields.id = id
            } else {
                fields.id = nil
            }
        }
        return (bytes, fields)
    }

    /// Where the id stands in a laid event.
    private static let idPlace = 13..<49

    /// A number becomes its text.
    private func appendText(_ value: Range<Int>, _ bytes: inout [UInt8]) {
        let isNumber = body[value.lowerBound] &- 0x30 < 10 || body[value.lowerBound] == UInt8(ascii: "-")
        if isNumber { bytes.append(UInt8(ascii: "\"")) }
        bytes += UnsafeBufferPointer(rebasing: body[value])
        if isNumber { bytes.append(UInt8(ascii: "\"")) }
    }

    private func contentID(
        _ fields: EventFields, _ bytes: [UInt8], _ time: Int64?, _ door: EventID.SenderDoor, _ ordinal: ([UInt8]) -> Int
    ) -> EventID {
        let laid = bytes[...]
        let (name, user) = (Array(fields.name.slice(of: laid)), Array(fields.distinctID.slice(of: laid)))
        let properties = properties.map { Array(body[$0.value]) } ?? Array("{}".utf8)
        let id = { (ordinal: Int) in
            EventID.content(via: format, door, name: name, user: user, time: time, properties: properties[...], ordinal: ordinal)
        }
        let first = id(0)
        let number = ordinal(first.bytes)
        return number == 0 ? first : id(number)
    }
}

extension EventScanner {
    /// Reads a laid event. JavaScript cuts texts within a character, and some texts hold U+0000: such escapes become U+FFFD, which takes as many bytes, and
    /// the event says how many.
    fileprivate static func fields(of laid: inout [UInt8]) -> EventFields {
        let fields = laid.withUnsafeBufferPointer { Self.fields(of: $0, 0..<$0.count) }
        guard let reason = fields.problem?.reason, reason == .loneSurrogate || reason == .nulCharacter else { return fields }
        let repaired = laid.withUnsafeMutableBufferPointer { Self.repair($0) }
        laid.removeLast(3)
        laid += Array(#","repaired":\#(repaired)}}}"#.utf8)
        return laid.withUnsafeBufferPointer { Self.fields(of: $0, 0..<$0.count) }
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
