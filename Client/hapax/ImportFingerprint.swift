import Crypto
import Foundation

/// SHA-256 of a file from its beginning to a place that only moves forward, so that each byte is hashed once.
struct ImportFingerprint: Sendable {
    private var hash = SHA256()
    private(set) var offset: Int64 = 0

    private static let chunkBytes = 256 * 1024

    /// - Returns: Whether the file reaches there; if not, or for a place behind, the fingerprint is of no use any more.
    mutating func advance(to end: Int64, descriptor: Int32) -> Bool {
        guard end >= offset else { return false }
        var chunk = [UInt8](repeating: 0, count: Self.chunkBytes)
        while offset < end {
            let count = pread(descriptor, &chunk, min(chunk.count, Int(end - offset)), off_t(offset))
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return false }
            hash.update(data: chunk[..<count])
            offset += Int64(count)
        }
        return true
    }

    var text: String { Self.text(hash.finalize()) }

    static func text(of bytes: [UInt8]) -> String { text(SHA256.hash(data: bytes)) }

    private static func text(_ digest: SHA256.Digest) -> String { Data(digest).base64EncodedString() }
}
