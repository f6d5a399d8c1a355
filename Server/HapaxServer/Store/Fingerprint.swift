import Crypto

/// Tells whether two events with one id are the same event.
enum Fingerprint {
    /// The first 64 bits of SHA-256 over name, distinct_id and properties as they were sent, each of the first two preceded by its length.
    ///
    /// Time, sequence and install take no part: a client that lost its clock or its queue and tells the same thing again is a duplicate, not
    /// a conflict. Stored, so it must never change.
    static func of(name: ArraySlice<UInt8>, distinctID: ArraySlice<UInt8>, properties: ArraySlice<UInt8>) -> Int64 {
        var hash = SHA256()
        for part in [name, distinctID] {
            withUnsafeBytes(of: UInt32(truncatingIfNeeded: part.count).bigEndian) { hash.update(bufferPointer: $0) }
            part.withUnsafeBytes { hash.update(bufferPointer: $0) }
        }
        properties.withUnsafeBytes { hash.update(bufferPointer: $0) }
        return hash.finalize().withUnsafeBytes { Int64(bigEndian: $0.loadUnaligned(as: Int64.self)) }
    }
}
