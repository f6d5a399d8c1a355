import Foundation
import HapaxModel
import HapaxSQLite

/// Whom events concern that do not say it themselves, as it is kept for all of a directory's clients (R56).
package struct KeptIdentity: Hashable, Sendable {
    package var anonymousID: String
    package var loginID: String?
    /// What each event of an app says besides.
    package var common: Properties = [:]
    /// Whose `$identify` is tracked, the latest last.
    var identified: [Identified] = []

    package init(anonymousID: String, loginID: String? = nil, common: Properties = [:]) {
        (self.anonymousID, self.loginID, self.common) = (anonymousID, loginID, common)
    }

    package var distinctID: String { loginID ?? anonymousID }
}

extension KeptIdentity: Codable {
    private enum CodingKeys: String, CodingKey {
        case anonymousID = "anonymous_id"
        case loginID = "login_id"
        /// An object as text: a decoder would round its numbers.
        case common = "common_properties"
        case identified
    }

    package init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        anonymousID = try values.decode(String.self, forKey: .anonymousID)
        loginID = try values.decodeIfPresent(String.self, forKey: .loginID)
        // What no event may hold is not worth the identity.
        identified = (try? values.decodeIfPresent([Identified].self, forKey: .identified)) ?? []
        common = (try? values.decodeIfPresent(String.self, forKey: .common)).flatMap { $0 }.flatMap { Properties(json: $0) } ?? [:]
    }

    package func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(anonymousID, forKey: .anonymousID)
        try values.encodeIfPresent(loginID, forKey: .loginID)
        if !identified.isEmpty { try values.encode(identified, forKey: .identified) }
        if !common.isEmpty { try values.encode(EncodedProperties(common).json, forKey: .common) }
    }
}

/// `identity.json`. Another client sees a change at its next start.
package struct IdentityFile: Sendable {
    private let file: SmallFile

    package init(_ directory: QueueDirectory) { file = SmallFile(path: directory.identityPath) }

    /// - Returns: nil if there is none.
    /// - Throws: Also if it cannot be understood, or if it is not known whether it is there.
    package func read() throws -> KeptIdentity? { try file.decoded(KeptIdentity.self) }

    /// What is there, or a new one; who comes first makes it. One that cannot be understood is set aside.
    ///
    /// - Parameter first: The anonymous id where there is none yet. Not in place of one that cannot be read: that may be another person's.
    /// - Returns: Also why an earlier one could not be understood.
    /// - Throws: Also if it is there and cannot be read, as another user's: it may name somebody.
    func load(newID: String, first: String? = nil) throws -> (identity: KeptIdentity, failure: StorageFailure?) {
        var failure: StorageFailure?
        do {
            if let identity = try read() { return (identity, nil) }
        } catch let error as UnreadableFile where error.isForeign {
            failure = error.failure
            file.setAside()
        }
        try file.begin(try JSONEncoder().encode(KeptIdentity(anonymousID: failure == nil ? first ?? newID : newID)))
        guard let identity = try read() else { throw POSIXError(.ENOENT) }
        return (identity, failure)
    }

    /// Forgets the `$identify` events that are not known to be stored: the user has denied consent, and no file keeps what was taken before.
    func forgetWaiting() throws {
        guard try read()?.identified.contains(where: { $0.event != nil }) == true else { return }
        _ = try change { $0.identified.removeAll { $0.event != nil } }
    }

    /// Changes what is there; durable on return. Changes of several processes follow each other.
    package func change(_ change: (inout KeptIdentity) -> Void) throws -> KeptIdentity {
        var ids = UUIDv7Generator()
        let newID = ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000)).description
        var identity = KeptIdentity(anonymousID: newID)
        try file.replace {
            identity = try load(newID: newID).identity
            change(&identity)
            return try JSONEncoder().encode(identity)
        }
        return identity
    }
}
