import Crypto

extension EventID {
    /// An id computed from a business key (UUIDv8, RFC 9562 §5.8), so that an application's own retry is the same event.
    ///
    /// The same name and key give the same id on every machine and in every version of this library: it is the first 128 bits of SHA-256
    /// over `"hapax-derived-1"`, the name and the key, each preceded by its length as eight bytes, with version and variant bits set.
    ///
    /// The server does not compare the content of derived ids: the first write stays and the second is answered `duplicate`.
    ///
    /// - Parameters:
    ///   - name: What kind of thing happened, such as `order_paid`.
    ///   - key: What it happened to, such as the order's number. It does not travel.
    public static func derived(name: String, key: String) -> EventID {
        var hash = SHA256()
        for part in ["hapax-derived-1", name, key] {
            withUnsafeBytes(of: UInt64(part.utf8.count).bigEndian) { hash.update(bufferPointer: $0) }
            var part = part
            part.withUTF8 { hash.update(bufferPointer: UnsafeRawBufferPointer($0)) }
        }
        let (high, low) = hash.finalize().withUnsafeBytes {
            (UInt64(bigEndian: $0.load(as: UInt64.self)), UInt64(bigEndian: $0.load(fromByteOffset: 8, as: UInt64.self)))
        }
        return EventID(
            versionedHigh: high & ~0xF000 | 0x8000,
            low: low & (.max >> 2) | (0b10 << 62)
        )
    }
}
