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

    /// No id lies before it.
    package static let least = EventID(versionedHigh: 0, low: 1)

    /// For bits whose version and variant are already set, which makes nil and max impossible.
    init(versionedHigh high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// The four bits of the version field: 7 for ids made by ``UUIDv7Generator``, 8 for derived ids.
    public var version: Int { Int((high >> 12) & 0xF) }

    /// Whether the variant bits are those of RFC 9562; without them the version says nothing.
    var hasStandardVariant: Bool { low >> 62 == 0b10 }

    /// Whether this id was computed from a business key (UUIDv8), so that its content need not be the same each time.
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

    /// The same, for bytes that lie in memory as they are.
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

extension EventID: LosslessStringConvertible {
    /// Reads the 36 character form in either case; braces, missing hyphens, nil and max are refused.
    public init?(_ text: String) {
        var text = text
        let id = text.withUTF8 { EventID(utf8: $0) }
        guard let id else { return nil }
        self = id
    }

    init?(utf8 text: UnsafeBufferPointer<UInt8>) {
        guard text.count == 36 else { return nil }
        var high: UInt64 = 0
        var low: UInt64 = 0
        var digits = 0
        for index in 0..<36 {
            let character = text[index]
            if index == 8 || index == 13 || index == 18 || index == 23 {
                guard character == UInt8(ascii: "-") else { return nil }
                continue
            }
            let digit: UInt8
            switch character {
            case 0x30...0x39: digit = character - 0x30
            case 0x61...0x66: digit = character - 0x61 + 10
            case 0x41...0x46: digit = character - 0x41 + 10
            default: return nil
            }
            if digits < 16 { high = high << 4 | UInt64(digit) } else { low = low << 4 | UInt64(digit) }
            digits += 1
        }
        self.init(high: high, low: low)
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
        guard let id = EventID(text) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a UUID")
        }
        self = id
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}
