#if canImport(CryptoKit)
private import CryptoKit
#else
private import CCrypto
#endif

/// SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104), as the system computes them: CryptoKit on Apple's systems, libcrypto elsewhere.
package struct SHA256Digest: Hashable, Sendable {
    /// The 32 bytes, as big-endian numbers.
    package let words: SIMD4<UInt64>

    package init(of bytes: UnsafeRawBufferPointer) {
        #if canImport(CryptoKit)
        words = SHA256.hash(data: bytes).withUnsafeBytes(Self.words)
        #else
        words = Self.words { EVP_Digest(bytes.baseAddress, bytes.count, $0, nil, Self.sha256, nil) == 1 }
        #endif
    }

    fileprivate init(words: SIMD4<UInt64>) { self.words = words }

    package init(of text: String) {
        var text = text
        self = text.withUTF8 { SHA256Digest(of: UnsafeRawBufferPointer($0)) }
    }

    /// The HMAC under a key.
    package init(of bytes: UnsafeRawBufferPointer, under key: [UInt8]) {
        #if canImport(CryptoKit)
        words = HMAC<SHA256>.authenticationCode(for: bytes, using: SymmetricKey(data: key)).withUnsafeBytes(Self.words)
        #else
        let start = bytes.bindMemory(to: UInt8.self).baseAddress
        words = Self.words { HMAC(Self.sha256, key, Int32(key.count), start, bytes.count, $0, nil) != nil }
        #endif
    }

    /// - Parameter hex: As ``hex`` gives it.
    package init?(hex: String) {
        guard hex.utf8.count == 64 else { return nil }
        let parts = stride(from: 0, to: 64, by: 16).compactMap { UInt64(hex.dropFirst($0).prefix(16), radix: 16) }
        guard parts.count == 4 else { return nil }
        words = SIMD4(parts)
    }

    /// 64 digits.
    package var hex: String {
        words.indices.map { index in
            let digits = String(words[index], radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        }.joined()
    }

    private static func words(_ bytes: UnsafeRawBufferPointer) -> SIMD4<UInt64> {
        func word(_ number: Int) -> UInt64 { UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8 * number, as: UInt64.self)) }
        return SIMD4(word(0), word(1), word(2), word(3))
    }

    #if !canImport(CryptoKit)
    /// libcrypto never changes it and never frees it.
    fileprivate nonisolated(unsafe) static let sha256 = hapax_sha256()

    fileprivate static func words(_ compute: (UnsafeMutablePointer<UInt8>?) -> Bool) -> SIMD4<UInt64> {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 32) { bytes in
            // It fails without memory, or where the machine's own settings forbid SHA-256: then no id and no key can be told from another.
            precondition(compute(bytes.baseAddress), "libcrypto does not compute SHA-256: see its settings (openssl.cnf)")
            return words(UnsafeRawBufferPointer(bytes))
        }
    }
    #endif
}

/// Hashes many short texts: what libcrypto allocates for one is used for all.
final class SHA256Hasher {
    #if !canImport(CryptoKit)
    private let context = EVP_MD_CTX_new()

    deinit { EVP_MD_CTX_free(context) }
    #endif

    func digest(of bytes: UnsafeRawBufferPointer) -> SHA256Digest {
        #if canImport(CryptoKit)
        return SHA256Digest(of: bytes)
        #else
        let words = SHA256Digest.words { result in
            EVP_DigestInit_ex(context, SHA256Digest.sha256, nil) == 1 && EVP_DigestUpdate(context, bytes.baseAddress, bytes.count) == 1
                && EVP_DigestFinal_ex(context, result, nil) == 1
        }
        return SHA256Digest(words: words)
        #endif
    }
}
