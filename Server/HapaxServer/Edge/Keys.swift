import Crypto
import Foundation
import HapaxModel

/// What each key may do.
///
/// Keys are compared by their SHA-256, so that the time a look-up takes says nothing about them, and are not kept.
package struct Keys: Sendable {
    package enum Holder: Hashable, Sendable {
        /// May send events of one project.
        case writer(projectID: Int32)
        /// May look at all of the server.
        case admin
    }

    private let holders: [Data: Holder]

    /// - Parameter writers: The number of a project for each write key.
    package init(writers: [String: Int32], admin: String? = nil) {
        var holders: [Data: Holder] = [:]
        for (key, projectID) in writers { holders[Self.digest(key)] = .writer(projectID: projectID) }
        if let admin { holders[Self.digest(admin)] = .admin }
        self.holders = holders
    }

    /// - Parameter authorization: The header field; the scheme `Bearer` in any case (RFC 6750 §2.1).
    /// - Returns: The project that events go to.
    func writer(_ authorization: String?) throws(RequestProblem) -> Int32 {
        guard case .writer(let projectID) = try holder(authorization) else {
            throw RequestProblem(.wrongKeyKind, detail: "events are sent with a write key")
        }
        return projectID
    }

    func checkAdmin(_ authorization: String?) throws(RequestProblem) {
        guard case .admin = try holder(authorization) else {
            throw RequestProblem(.wrongKeyKind, detail: "this needs the admin key")
        }
    }

    private func holder(_ authorization: String?) throws(RequestProblem) -> Holder {
        let parts = (authorization ?? "").split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer",
            let holder = holders[Self.digest(parts[1].trimmingCharacters(in: .whitespaces))]
        else { throw RequestProblem(.unknownKey, detail: "the header Authorization: Bearer must carry a known key") }
        return holder
    }

    private static func digest(_ key: String) -> Data {
        Data(SHA256.hash(data: Data(key.utf8)))
    }
}
