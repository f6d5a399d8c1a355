import CZlib

/// Finds bytes that changed on a disk: CRC-32 (RFC 1952, section 8).
package enum CheckSum {
    /// - Parameter start: The check sum of the bytes before these; 0 if there are none.
    package static func crc32(_ bytes: UnsafeRawBufferPointer, after start: UInt32 = 0) -> UInt32 {
        UInt32(truncatingIfNeeded: CZlib.crc32_z(UInt(start), bytes.bindMemory(to: UInt8.self).baseAddress, bytes.count))
    }
}
