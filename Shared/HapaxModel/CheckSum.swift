import CZlib

/// Finds bytes that changed on a disk.
package enum CheckSum {
    /// CRC-32 (RFC 1952, section 8) of the id's sixteen bytes and the event's.
    package static func crc32(_ id: EventID, _ event: [UInt8]) -> UInt32 {
        let start = withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) {
            CZlib.crc32_z(0, $0.bindMemory(to: UInt8.self).baseAddress, $0.count)
        }
        return UInt32(truncatingIfNeeded: CZlib.crc32_z(start, event, event.count))
    }
}
