import HapaxModel

/// SHA-256 of a whole key: all that a server keeps of it. Keys are compared by it, so that the time of a look-up says nothing about them.
package struct KeyDigest: Hashable, Sendable {
    private let digest: SHA256Digest

    package init(_ key: String) { digest = SHA256Digest(of: key) }

    /// - Parameter hex: As ``hex`` gives it.
    init?(hex: String) {
        guard let digest = SHA256Digest(hex: hex) else { return nil }
        self.digest = digest
    }

    /// 64 digits.
    var hex: String { digest.hex }
}
