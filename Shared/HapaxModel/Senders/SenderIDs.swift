/// The ids of foreign events (docs/senders.md). The rules are never changed: another one gets another first part.
final class SenderIDs {
    private let hasher = SHA256Hasher()
    private let datedPrefixes: [String]
    /// What is hashed before an id, and before a content.
    private let (beforeID, beforeContent): ([UInt8], [UInt8])

    init(_ format: SenderFormat, _ door: SenderDoor) {
        datedPrefixes = format.datedPrefixes
        func start(_ kind: String) -> [UInt8] {
            ["hapax-sender-1", format.via, door.rawValue, kind].reduce(into: []) { Self.add(Array($1.utf8), to: &$0) }
        }
        (beforeID, beforeContent) = (start("id"), start("content"))
    }

    /// The id of an event to which its SDK has given one.
    ///
    /// A UUID that is not of version 8 is itself, and so are the 32 digits of one of version 4. Any other text is hashed, to a UUID of version 8; if it begins
    /// with its instant, as Segment's `ajs-next-MS-UUID`, to one of version 7 in that instant's month.
    ///
    func id(of text: UnsafeBufferPointer<UInt8>) -> EventID { Self.itself(text) ?? id(hashing: text) }

    /// - Parameter scope: What the id is unique in, where its SDK says so.
    func id(hashing text: UnsafeBufferPointer<UInt8>, in scope: [[UInt8]] = []) -> EventID {
        var bytes = beforeID
        for part in scope { Self.add(part, to: &bytes) }
        Self.add(text, to: &bytes)
        return id(hashing: bytes, at: instant(of: text))
    }

    /// The id that a text is, however it is written; nil if it is none.
    static func itself(_ text: UnsafeBufferPointer<UInt8>) -> EventID? {
        if text.count == 32 { return id(digits: text) }
        return EventID(utf8: text).flatMap { $0.version == 8 ? nil : $0 }
    }

    /// The id of an event without one: equal events of one time and one request are told apart by their ordinal.
    ///
    /// - Parameters:
    ///   - time: The event's own, or that of its arrival, in Unix milliseconds: what has neither id nor time is an event of its own each time.
    ///   - values: All else that is stored of it: JSON that ``EventScanner`` has accepted.
    func id(name: UnsafeBufferPointer<UInt8>, user: UnsafeBufferPointer<UInt8>, time: Int64, values: ArraySlice<UInt8>, ordinal: Int)
        -> EventID
    {
        var bytes = beforeContent
        Self.add(name, to: &bytes)
        Self.add(user, to: &bytes)
        Self.add("\(time)".utf8, to: &bytes)
        // Not even the sender of both could gain by two contents with one hash: he alone loses one of them.
        withUnsafeBytes(of: ValueHash.hash(json: values).bigEndian) { Self.add($0, to: &bytes) }
        Self.add("\(ordinal)".utf8, to: &bytes)
        return id(hashing: bytes, at: time)
    }

    private static func id(digits: UnsafeBufferPointer<UInt8>) -> EventID? {
        var text = Array(digits)
        for place in [20, 16, 12, 8] { text.insert(UInt8(ascii: "-"), at: place) }
        let id = text.withUnsafeBufferPointer { EventID(utf8: $0) }
        return id.flatMap { $0.version == 4 && $0.hasStandardVariant ? $0 : nil }
    }

    private func instant(of text: UnsafeBufferPointer<UInt8>) -> Int64? {
        guard let prefix = datedPrefixes.first(where: { text.starts(with: $0.utf8) }) else { return nil }
        let digits = text.dropFirst(prefix.utf8.count).prefix { $0 &- 0x30 < 10 }
        guard digits.endIndex < text.count, text[digits.endIndex] == UInt8(ascii: "-"), digits.count <= 14 else { return nil }
        return Int64(String(decoding: digits, as: UTF8.self))
    }

    /// - Parameter milliseconds: Of an id that lies in its month; nil: of one without a day.
    private func id(hashing bytes: [UInt8], at milliseconds: Int64?) -> EventID {
        let words = bytes.withUnsafeBytes { hasher.digest(of: $0) }.words
        let (high, low) = (words[0], words[1] & (.max >> 2) | (0b10 << 62))
        if let milliseconds { return EventID(versionedHigh: UInt64(milliseconds) << 16 | 0x7000 | high & 0xFFF, low: low) }
        let isMarked = high & 0xFFF == EventID.datedMark
        return EventID(versionedHigh: (isMarked ? high ^ 1 : high) & ~0xF000 | 0x8000, low: low)
    }

    private static func add(_ part: some Collection<UInt8>, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: UInt64(part.count).bigEndian) { bytes.append(contentsOf: $0) }
        bytes.append(contentsOf: part)
    }
}

/// Who may occupy an id: the holder of a key that is in every app must not occupy those of a server.
package enum SenderDoor: String, Sendable {
    case secret
    case `public`
}
