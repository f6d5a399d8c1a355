import HapaxModel

/// Users of one project whose events are refused. Of each an HMAC is kept, under a key that no other project has: the list names nobody, and cannot
/// be compared with another one.
package struct BlockedUsers: Sendable {
    private let key: [UInt8]
    private var digests: Set<SHA256Digest> = []

    /// - Parameter key: The project's, as ``Registry`` keeps it.
    init(key: String) { self.key = Array(key.utf8) }

    var count: Int { digests.count }

    /// - Parameter hex: As ``hex(_:)`` gives it.
    mutating func insert(hex: String) {
        guard let digest = SHA256Digest(hex: hex) else { return }
        digests.insert(digest)
    }

    /// - Parameter user: A distinct id, unescaped.
    func contains(_ user: UnsafeBufferPointer<UInt8>) -> Bool {
        digests.contains(SHA256Digest(of: UnsafeRawBufferPointer(user), under: key))
    }

    /// What is kept of a user.
    func hex(_ user: String) -> String {
        Array(user.utf8).withUnsafeBytes { SHA256Digest(of: $0, under: key).hex }
    }

    /// A key for a project that has none: 256 bits of randomness.
    static func makeKey() -> String {
        var random = SystemRandomNumberGenerator()
        return (0..<4).map { _ in String(UInt64.random(in: 0 ... .max, using: &random), radix: 16) }.joined(separator: "-")
    }
}
