extension SenderFormat {
    /// Snowplow's trackers (https://docs.snowplow.io/docs/sources/trackers/snowplow-tracker-protocol/). Their application's name is no key: several may share a sender.
    static let snowplow = SenderFormat(
        via: "snowplow",
        body: [("data", .events), ("schema", .dropped)],
        event: [
            ("eid", .id), ("e", .type), ("event", .name), ("se_ac", .name), ("ttm", .time(rank: 0)), ("dtm", .time(rank: 1)),
            ("uid", .user(rank: 0)), ("duid", .anonymous(rank: 0)), ("tnuid", .anonymous(rank: 1)), ("properties", .properties(rank: 0)),
            // When it was sent.
            ("stm", .dropped), ("api_key", .hidden),
        ],
        typeNames: [("pv", "$page"), ("pp", "$page_ping")], unwrapped: SnowplowEvent.unwrapped,
        paths: ["/com.snowplowanalytics.snowplow/tp2", "/i"].map { ($0, "") }, pixels: ["/i"], isEventInAddress: true, named: ["se", "ue"],
        libraries: [("$via.tv", "")], retryAfter: 1)
}

/// What Snowplow's trackers write as a text of JSON, in base64 or not, as JSON: an event with a schema, and the entities that belong to it.
enum SnowplowEvent {
    /// - Returns: The event with `event`, `schema` and `properties` instead of `ue_px` or `ue_pr`, and `contexts` instead of `cx` or `co`. What cannot be read
    ///   stays as it is.
    @Sendable static func unwrapped(_ event: UnsafeBufferPointer<UInt8>) -> [UInt8] {
        var (steps, members) = (JSONSteps(event), [JSONSteps.Member]())
        guard steps.object(&members, { $0.append($1) }) else { return Array(event) }
        var writer = JSONWriter(capacity: event.count + 64)
        let cursor = JSONCursor(event)
        func isNamed(_ names: StaticString..., as member: JSONSteps.Member) -> Bool { names.contains { cursor.equals(member.key, $0) } }
        let texts = members.filter { isNamed("ue_px", "ue_pr", "cx", "co", as: $0) }
        writer.raw("{")
        for member in members where !isNamed("ue_px", "ue_pr", "cx", "co", as: member) {
            writer.raw(UnsafeBufferPointer(rebasing: event[member.range]))
            writer.raw(",")
        }
        // Last, so that members of these names do not count.
        for member in texts {
            let json = json(member.value, in: event, isCoded: isNamed("ue_px", "cx", as: member))
            let isEvent = isNamed("ue_px", "ue_pr", as: member)
            let isWritten = json.map { isEvent ? writeEvent($0, &writer) : writeContexts($0, &writer) } ?? false
            if !isWritten { writer.raw(UnsafeBufferPointer(rebasing: event[member.range])) }
            writer.raw(",")
        }
        writer.removeLast(members.isEmpty ? 0 : 1)
        writer.raw("}")
        return writer.bytes
    }

    /// The JSON that a text holds; nil if it is none, or not one value: then no part of it could be copied elsewhere.
    private static func json(_ value: Range<Int>, in event: UnsafeBufferPointer<UInt8>, isCoded: Bool) -> [UInt8]? {
        var text = JSONSteps(event, at: value.lowerBound)
        guard let text = text.string() else { return nil }
        let bytes = JSONCursor(event).withUnescaped(text) { Array($0) }
        guard let json = isCoded ? SenderForm.base64(bytes) : bytes else { return nil }
        return json.withUnsafeBufferPointer { bytes in
            var steps = JSONSteps(bytes)
            steps.skipWhitespace()
            guard steps.current == UInt8(ascii: "{"), steps.value() != nil else { return nil }
            steps.skipWhitespace()
            return steps.isAtEnd ? json : nil
        }
    }

    private static func writeEvent(_ json: [UInt8], _ writer: inout JSONWriter) -> Bool {
        json.withUnsafeBufferPointer { bytes in
            guard let outer = parts(of: 0..<bytes.count, in: bytes), let inner = parts(of: outer.data, in: bytes),
                let schema = inner.schema,
                bytes[inner.data.lowerBound] == UInt8(ascii: "{")
            else { return false }
            // iglu:VENDOR/NAME/FORMAT/VERSION
            let places = schema.split(separator: "/")
            guard places.count == 4 else { return false }
            writer.raw(#""event":"#)
            writer.string(String(places[1]))
            writer.raw(#","schema":"#)
            writer.string(schema)
            writer.raw(#","properties":"#)
            writer.raw(UnsafeBufferPointer(rebasing: bytes[inner.data]))
            return true
        }
    }

    private static func writeContexts(_ json: [UInt8], _ writer: inout JSONWriter) -> Bool {
        json.withUnsafeBufferPointer { bytes in
            guard let data = parts(of: 0..<bytes.count, in: bytes)?.data else { return false }
            writer.raw(#""contexts":"#)
            writer.raw(UnsafeBufferPointer(rebasing: bytes[data]))
            return true
        }
    }

    /// The schema of what describes itself, and its data.
    private static func parts(of value: Range<Int>, in bytes: UnsafeBufferPointer<UInt8>) -> (schema: String?, data: Range<Int>)? {
        var (steps, found) = (JSONSteps(bytes, at: value.lowerBound), (schema: Range<Int>?.none, data: Range<Int>?.none))
        let cursor = JSONCursor(bytes)
        steps.skipWhitespace()
        guard
            steps.object(
                &found,
                { found, member in
                    if cursor.equals(member.key, "schema") { found.schema = member.value }
                    if cursor.equals(member.key, "data") { found.data = member.value }
                }), let data = found.data
        else { return nil }
        let schema = found.schema.flatMap { value in
            var text = JSONSteps(bytes, at: value.lowerBound)
            return text.string().flatMap { cursor.withUnescaped($0) { String(decoding: $0, as: UTF8.self) } }
        }
        return (schema, data)
    }
}
