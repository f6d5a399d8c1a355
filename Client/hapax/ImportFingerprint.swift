import Crypto
import Foundation

/// SHA-256 of a file from its beginning to a place that only moves forward, of the bytes that were there when they were read.
struct ImportFingerprint: Sendable {
    private var hash = SHA256()
    private(set) var offset: Int64 = 0

    private static let chunkBytes = 256 * 1024

    /// Goes on by bytes that stand where it is.
    mutating func advance(by bytes: ArraySlice<UInt8>) {
        bytes.withUnsafeBytes { hash.update(bufferPointer: $0) }
        offset += Int64(bytes.count)
    }

    /// Goes on by what the file holds now.
    ///
    /// - Returns: Whether the file reaches there; if not, or if it was stopped, the fingerprint is of no use any more.
    mutating func advance(to end: Int64, descriptor: Int32, isStopped: () -> Bool = { false }) -> Bool {
        var chunk = [UInt8](repeating: 0, count: Self.chunkBytes)
        while offset < end {
            if isStopped() { return false }
            let count = pread(descriptor, &chunk, min(chunk.count, Int(end - offset)), off_t(offset))
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return false }
            advance(by: chunk[..<count])
        }
        return true
    }

    var text: String { Self.text(hash.finalize()) }

    static func text(of bytes: [UInt8]) -> String { text(SHA256.hash(data: bytes)) }

    private static func text(_ digest: SHA256.Digest) -> String { Data(digest).base64EncodedString() }
}
