import Crypto

/// SHA-256 of a whole key: all that a server keeps of it. Keys are compared by it, so that the time of a look-up says nothing about them.
package struct KeyDigest: Hashable, Sendable {
    private let words: SIMD4<UInt64>

    package init(_ key: String) {
        var (key, hash) = (key, SHA256())
        key.withUTF8 { hash.update(bufferPointer: UnsafeRawBufferPointer($0)) }
        words = hash.finalize().withUnsafeBytes { bytes in
            SIMD4((0..<4).map { UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self)) })
        }
    }

    /// - Parameter hex: As ``hex`` gives it.
    init?(hex: String) {
        guard hex.utf8.count == 64 else { return nil }
        let parts = stride(from: 0, to: 64, by: 16).compactMap { UInt64(hex.dropFirst($0).prefix(16), radix: 16) }
        guard parts.count == 4 else { return nil }
        words = SIMD4(parts)
    }

    /// 64 digits.
    var hex: String {
        words.indices.map { index in
            let digits = String(words[index], radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        }.joined()
    }
}
