/// The identity of one event: a UUID (RFC 9562), compared by its 128 bits.
///
/// Two requests that carry the same id for the same project carry the same event; the server stores it once. The nil and the max UUID
/// identify nothing and cannot be made.
public struct EventID: Hashable, Sendable {
    /// Bytes 0 to 7, most significant first.
    public let high: UInt64
    /// Bytes 8 to 15, most significant first.
    public let low: UInt64

    /// - Returns: nil for the nil UUID and for the max UUID.
    public init?(high: UInt64, low: UInt64) {
        if high == 0 && low == 0 { return nil }
        if high == .max && low == .max { return nil }
        self.high = high
        self.low = low
    }

    /// No event's: given as an id it says that the client makes one (UUIDv7).
    public static let made = EventID(versionedHigh: 0, low: 0)

    /// The smallest id.
    package static let least = EventID(versionedHigh: 0, low: 1)

    /// Unchecked: for bits that cannot be those of nil or max, as when version and variant are set, and for ``made``.
    init(versionedHigh high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// The four bits of the version field: 7 for ids made by ``UUIDv7Generator``, 8 for derived ids.
    public var version: Int { Int((high >> 12) & 0xF) }

    /// Whether the variant bits are those of RFC 9562; without them the version has no meaning.
    var hasStandardVariant: Bool { low >> 62 == 0b10 }

    /// Whether this id was computed from a business key (UUIDv8). The server does not compare the content of such events.
    public var isDerived: Bool { version == 8 && hasStandardVariant }

    /// The Unix milliseconds inside a version 7 id, 0…2⁴⁸−1; nil for other versions.
    public var unixMilliseconds: Int64? {
        version == 7 && hasStandardVariant ? Int64(high >> 16) : nil
    }

    /// The sixteen bytes in network order.
    public var bytes: [UInt8] {
        withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Array($0) }
    }

    /// - Returns: nil unless there are sixteen bytes that are neither all zero nor all ones.
    public init?(bytes: some Collection<UInt8>) {
        let id =
            bytes.withContiguousStorageIfAvailable { Self(raw: UnsafeRawBufferPointer($0)) }
            ?? Array(bytes).withUnsafeBytes { Self(raw: $0) }
        guard let id else { return nil }
        self = id
    }

    /// The same for bytes in raw memory.
    package init?(raw bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 16 else { return nil }
        self.init(
            high: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
            low: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
    }
}

extension EventID: Comparable {
    /// The order of the bytes, which PostgreSQL's `uuid` and SQLite's blobs share.
    public static func < (left: EventID, right: EventID) -> Bool {
        left.high != right.high ? left.high < right.high : left.low < right.low
    }
}

// MARK: - Text

extension EventID: CustomStringConvertible {
    /// Reads a UUID's 36 characters in either case. The id of a business key, as an order's number, is ``derived(name:key:)``.
    ///
    /// - Returns: nil for any other text, as one with braces or without hyphens, and for the nil and the max UUID.
    public init?(uuidString: String) {
        var text = uuidString
        let id = text.withUTF8 { EventID(utf8: $0) }
        guard let id else { return nil }
        self = id
    }

    init?(utf8 text: UnsafeBufferPointer<UInt8>) {
        guard text.count == 36, [8, 13, 18, 23].allSatisfy({ text[$0] == UInt8(ascii: "-") }) else { return nil }
        let raw = UnsafeRawBufferPointer(text)
        func eight(_ start: Int) -> UInt64 { UInt64(bigEndian: raw.loadUnaligned(fromByteOffset: start, as: UInt64.self)) }
        func four(_ start: Int) -> UInt64 { UInt64(UInt32(bigEndian: raw.loadUnaligned(fromByteOffset: start, as: UInt32.self))) }
        guard let first = Self.number(eight(0)), let second = Self.number(four(9) << 32 | four(14)),
            let third = Self.number(four(19) << 32 | four(24)), let fourth = Self.number(eight(28))
        else { return nil }
        self.init(high: first << 32 | second, low: third << 32 | fourth)
    }

    /// Reads eight hexadecimal digits at once, each in its byte of a word.
    ///
    /// - Parameter digits: The first one in the highest byte.
    /// - Returns: nil if a byte is not a hexadecimal digit.
    private static func number(_ digits: UInt64) -> UInt64? {
        let (ones, highest) = (0x0101_0101_0101_0101 as UInt64, 0x8080_8080_8080_8080 as UInt64)
        guard digits & highest == 0 else { return nil }
        // No byte is above 0x7F, so that no sum runs over into the next one: it reaches 0x80 where the byte is at least 10, 1 or 7.
        let decimal = digits ^ (ones &* 0x30)
        let letter = (digits | (ones &* 0x20)) ^ (ones &* 0x60)
        let valid = ~(decimal &+ ones &* 0x76) | ((letter &+ ones &* 0x7F) & ~(letter &+ ones &* 0x79))
        guard valid & highest == highest else { return nil }
        var value = (digits & (ones &* 0x0F)) &+ ((digits >> 6) & ones) &* 9
        value = (value | value >> 4) & 0x00FF_00FF_00FF_00FF
        value = (value | value >> 8) & 0x0000_FFFF_0000_FFFF
        return (value | value >> 16) & 0xFFFF_FFFF
    }

    /// The lower-case 36 character form.
    public var description: String {
        String(unsafeUninitializedCapacity: 36) { buffer in
            write(to: buffer)
            return 36
        }
    }

    func write(to buffer: UnsafeMutableBufferPointer<UInt8>) {
        var position = 0
        for index in 0..<32 {
            if index == 8 || index == 12 || index == 16 || index == 20 {
                buffer[position] = UInt8(ascii: "-")
                position += 1
            }
            let word = index < 16 ? high : low
            let digit = UInt8(truncatingIfNeeded: word >> UInt64(60 - 4 * (index % 16))) & 0xF
            buffer[position] = digit < 10 ? 0x30 + digit : 0x61 + digit - 10
            position += 1
        }
    }
}

extension EventID: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let text = try container.decode(String.self)
        guard let id = EventID(uuidString: text) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a UUID")
        }
        self = id
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}
