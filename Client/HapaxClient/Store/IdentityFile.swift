import Foundation
import HapaxModel
import HapaxSQLite

/// Whom events concern that do not say it themselves, as it is kept for all of a directory's clients (R56).
package struct KeptIdentity: Hashable, Sendable {
    package var anonymousID: String
    package var loginID: String?
    /// What each event of an app says besides.
    package var common: Properties = [:]

    package var distinctID: String { loginID ?? anonymousID }
}

extension KeptIdentity: Codable {
    private enum CodingKeys: String, CodingKey {
        case anonymousID = "anonymous_id"
        case loginID = "login_id"
        /// An object as text: a decoder would round its numbers.
        case common = "common_properties"
    }

    package init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        anonymousID = try values.decode(String.self, forKey: .anonymousID)
        loginID = try values.decodeIfPresent(String.self, forKey: .loginID)
        // What no event may hold is not worth the identity.
        common = (try? values.decodeIfPresent(String.self, forKey: .common)).flatMap { $0 }.flatMap { Properties(json: $0) } ?? [:]
    }

    package func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(anonymousID, forKey: .anonymousID)
        try values.encodeIfPresent(loginID, forKey: .loginID)
        if !common.isEmpty { try values.encode(EncodedProperties(common).json, forKey: .common) }
    }
}

/// `identity.json`, which survives any queue file. Another client sees a change at its next start.
package struct IdentityFile: Sendable {
    private let path: String

    package init(_ directory: QueueDirectory) { path = directory.identityPath }

    /// - Returns: nil if there is none.
    /// - Throws: Also if it cannot be understood, or if nobody can tell whether it is there, as where a file stands in the directory's place.
    package func read() throws -> KeptIdentity? {
        if access(path, F_OK) != 0 {
            let code = errno
            guard code == ENOENT else { throw POSIXError(.init(rawValue: code) ?? .EIO) }
            return nil
        }
        return try JSONDecoder().decode(KeptIdentity.self, from: try Data(contentsOf: URL(fileURLWithPath: path)))
    }

    /// What is there, or a new one; who comes first makes it. One that cannot be understood, or is
    /// another user's, is set aside.
    ///
    /// - Returns: Also why an earlier one could not be read.
    func load(newID: String) throws -> (identity: KeptIdentity, failure: StorageFailure?) {
        var failure: StorageFailure?
        do {
            if let identity = try read() { return (identity, nil) }
        } catch {
            // Of another user it is as good as none.
            let isUnreadable = access(path, R_OK) != 0 && errno == EACCES
            guard error is DecodingError || isUnreadable else { throw error }
            failure =
                isUnreadable ? StorageFailure(errno: EACCES) : StorageFailure(code: 0, description: "identity.json holds something else")
            _ = rename(path, path + ".damaged")
        }
        let new = KeptIdentity(anonymousID: newID)
        let temporary = path + ".\(newID)"
        try write(new, to: temporary)
        defer { unlink(temporary) }
        // Unlike a rename, it fails if another client was first.
        if link(temporary, path) == 0 || errno == EEXIST, let identity = try read() { return (identity, failure) }
        throw POSIXError(.init(rawValue: errno) ?? .EIO)
    }

    /// Changes what is there; durable on return. Changes of several processes follow each other.
    package func change(_ change: (inout KeptIdentity) -> Void) throws -> KeptIdentity {
        let directory = open((path as NSString).deletingLastPathComponent, O_RDONLY | O_CLOEXEC)
        guard directory >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(directory) }
        Self.lock(directory)
        defer { flock(directory, LOCK_UN) }
        var ids = UUIDv7Generator()
        let name = ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000)).description
        var identity = try load(newID: name).identity
        change(&identity)
        try write(identity, to: path + ".\(name)")
        guard rename(path + ".\(name)", path) == 0 else {
            let failure = POSIXError(.init(rawValue: errno) ?? .EIO)
            unlink(path + ".\(name)")
            throw failure
        }
        guard DriveCache.synchronize(directory) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        return identity
    }

    /// Waits for whoever changes it at this moment, but not for a process that was stopped while it did.
    private static func lock(_ directory: Int32) {
        for _ in 0..<lockAttempts {
            if flock(directory, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR) { return }
            usleep(lockPause)
        }
    }

    private static let lockAttempts = 1_000
    private static let lockPause: UInt32 = 1_000

    private func write(_ identity: KeptIdentity, to path: String) throws {
        let bytes = [UInt8](try JSONEncoder().encode(identity))
        let descriptor = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(descriptor) }
        guard Foundation.write(descriptor, bytes, bytes.count) == bytes.count, DriveCache.synchronize(descriptor) == 0 else {
            unlink(path)
            throw POSIXError(.init(rawValue: errno) ?? .EIO)
        }
    }
}
