/// The ids of foreign events (docs/senders.md). Never changed: another rule gets another first part.
extension EventID {
    /// Who may occupy an id: the holder of a key that is in every app must not occupy those of a server.
    package enum SenderDoor: String, Sendable {
        case secret
        case `public`
    }

    /// The id of an event to which its SDK has given one.
    ///
    /// A UUID that is not of version 8 is itself, and so are the 32 digits of one of version 4. Any other text is hashed, to a UUID of version 8; if it begins
    /// with its instant, as Segment's `ajs-next-MS-UUID`, to one of version 7 in that instant's month.
    static func sent(_ text: [UInt8], via: SenderFormat, _ door: SenderDoor, scope: [[UInt8]] = []) -> EventID {
        if let id = text.withUnsafeBufferPointer({ EventID(utf8: $0) }), id.version != 8 { return id }
        if text.count == 32, let id = EventID(digits: text), id.version == 4, id.hasStandardVariant { return id }
        let hash = hash(via, door, "id", scope + [text])
        if let milliseconds = instant(of: text, after: via.datedPrefixes) { return dated(hash, milliseconds) }
        return undated(hash)
    }

    /// The id of an event without one: equal events of one time and one request are told apart by their ordinal.
    ///
    /// - Parameters:
    ///   - time: The event's own, in Unix milliseconds; nil if it has none.
    ///   - properties: A JSON object that ``EventScanner`` has accepted.
    static func content(
        via: SenderFormat, _ door: SenderDoor, name: [UInt8], user: [UInt8], time: Int64?, properties: ArraySlice<UInt8>, ordinal: Int
    ) -> EventID {
        let values = [0, 1].flatMap { seed in
            withUnsafeBytes(of: ValueHash.hash(json: properties, seed: seed).bigEndian) { Array($0) }
        }
        let parts = [name, user, Array((time.map { "\($0)" } ?? "").utf8), values, Array("\(ordinal)".utf8)]
        let hash = hash(via, door, "content", parts)
        return time.map { dated(hash, $0) } ?? undated(hash)
    }

    private init?(digits: [UInt8]) {
        var text = digits
        for place in [20, 16, 12, 8] { text.insert(UInt8(ascii: "-"), at: place) }
        guard let id = text.withUnsafeBufferPointer({ EventID(utf8: $0) }) else { return nil }
        self = id
    }

    private static func instant(of text: [UInt8], after prefixes: [String]) -> Int64? {
        guard let prefix = prefixes.first(where: { text.starts(with: $0.utf8) }) else { return nil }
        let digits = text.dropFirst(prefix.utf8.count).prefix { $0 &- 0x30 < 10 }
        guard digits.endIndex < text.count, text[digits.endIndex] == UInt8(ascii: "-"), digits.count <= 14,
            let milliseconds = Int64(String(decoding: digits, as: UTF8.self))
        else { return nil }
        return milliseconds
    }

    private static func undated(_ hash: (high: UInt64, low: UInt64)) -> EventID {
        let isMarked = hash.high & 0xFFF == datedMark
        return EventID(versionedHigh: (isMarked ? hash.high ^ 1 : hash.high) & ~0xF000 | 0x8000, low: hash.low & (.max >> 2) | (0b10 << 62))
    }

    private static func dated(_ hash: (high: UInt64, low: UInt64), _ milliseconds: Int64) -> EventID {
        EventID(
            versionedHigh: UInt64(milliseconds) << 16 | 0x7000 | hash.high & 0xFFF, low: hash.low & (.max >> 2) | (0b10 << 62))
    }

    private static func hash(_ via: SenderFormat, _ door: SenderDoor, _ kind: String, _ parts: [[UInt8]]) -> (high: UInt64, low: UInt64) {
        var bytes: [UInt8] = []
        for part in ["hapax-sender-1", via.via, door.rawValue, kind].map({ Array($0.utf8) }) + parts {
            withUnsafeBytes(of: UInt64(part.count).bigEndian) { bytes += $0 }
            bytes += part
        }
        let words = bytes.withUnsafeBytes { SHA256Digest(of: $0) }.words
        return (words[0], words[1])
    }
}
