import Crypto
import Foundation
import HapaxModel

/// Users of one project whose events are refused. Of each an HMAC is kept, under a key that no other project has: the list names nobody, and cannot
/// be compared with another one.
package struct BlockedUsers: Sendable {
    private let key: SymmetricKey
    private var digests: Set<Data> = []

    /// - Parameter key: The project's, as ``Registry`` keeps it.
    init(key: String) { self.key = SymmetricKey(data: Array(key.utf8)) }

    var count: Int { digests.count }

    /// - Parameter hex: As ``hex(_:)`` gives it.
    mutating func insert(hex: String) {
        let digits = Array(hex.utf8)
        guard digits.count == 64 else { return }
        digests.insert(
            Data(stride(from: 0, to: 64, by: 2).map { UInt8(String(decoding: digits[$0..<$0 + 2], as: UTF8.self), radix: 16) ?? 0 }))
    }

    /// - Parameter user: A distinct id, unescaped.
    func contains(_ user: UnsafeBufferPointer<UInt8>) -> Bool {
        digests.contains(Data(HMAC<SHA256>.authenticationCode(for: user, using: key)))
    }

    /// What is kept of a user.
    func hex(_ user: String) -> String {
        HMAC<SHA256>.authenticationCode(for: Data(user.utf8), using: key).map { byte in
            (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }.joined()
    }

    /// A key for a project that has none: 256 bits of randomness.
    static func makeKey() -> String {
        var random = SystemRandomNumberGenerator()
        return (0..<4).map { _ in String(UInt64.random(in: 0 ... .max, using: &random), radix: 16) }.joined(separator: "-")
    }
}
