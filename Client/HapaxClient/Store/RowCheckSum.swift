import HapaxModel

/// Finds bytes that changed on the disk, which SQLite itself does not notice: CRC-32 (RFC 1952, section 8) over an event's bytes and then over
/// what else its row says, its place included.
enum RowCheckSum {
    /// So that no row of one table passes for one of the other.
    enum Kind: UInt8 {
        case event = 1
        case deadLetter = 2
    }

    /// Of the bytes alone: taken where they are made, which is not where they are committed.
    static func ofPayload(_ bytes: [UInt8]) -> UInt32 {
        bytes.isEmpty ? 0 : bytes.withUnsafeBytes { CheckSum.crc32($0) }
    }

    static func ofRow(_ kind: Kind, sequence: Int64, id: EventID?, time: Int64, payload: UInt32) -> UInt32 {
        let id = id.map { ($0.high, $0.low) } ?? (0, 0)
        return withUnsafeBytes(
            of: (UInt64(kind.rawValue).bigEndian, UInt64(bitPattern: sequence).bigEndian, id.0.bigEndian, id.1.bigEndian, time.bigEndian)
        ) { CheckSum.crc32($0, after: payload) }
    }
}
