import Crypto
import Foundation

/// Which project a write key writes to.
///
/// Keys are compared by their SHA-256, so that the time a look-up takes says nothing about them, and are not kept.
package struct WriteKeys: Sendable {
    private let projectIDs: [Data: Int32]

    /// - Parameter keys: The number of a project for each key.
    package init(_ keys: [String: Int32]) {
        projectIDs = Dictionary(keys.map { (Self.digest($0.key), $0.value) }, uniquingKeysWith: { first, _ in first })
    }

    /// - Parameter authorization: The header field; the scheme `Bearer` in any case (RFC 6750 §2.1).
    func projectID(authorization: String?) -> Int32? {
        guard let authorization else { return nil }
        let parts = authorization.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        return projectIDs[Self.digest(parts[1].trimmingCharacters(in: .whitespaces))]
    }

    private static func digest(_ key: String) -> Data {
        Data(SHA256.hash(data: Data(key.utf8)))
    }
}
