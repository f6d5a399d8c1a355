import Foundation

/// The account a cluster runs under: this one, or `postgres` when this one is root.
struct PostgresAccount: Sendable {
    struct Missing: Error, CustomStringConvertible {
        let description = "PostgreSQL does not run as root, and there is no user `postgres` to run it"
    }

    /// User and group to hand files to; nil if this account serves.
    private let owner: (user: uid_t, group: gid_t)?

    static func current() throws -> PostgresAccount {
        guard geteuid() == 0 else { return PostgresAccount(owner: nil) }
        guard let entry = getpwnam("postgres") else { throw Missing() }
        return PostgresAccount(owner: (entry.pointee.pw_uid, entry.pointee.pw_gid))
    }

    /// What stands before a command in a shell.
    var shellPrefix: String { owner == nil ? "" : "runuser -u postgres -- " }

    /// Runs a program under the account, in a folder that every account may enter.
    func run(_ program: String, _ arguments: [String]) async throws {
        let prefix = owner == nil ? [] : ["runuser", "-u", "postgres", "--"]
        try await Command.run("/bin/sh", ["-c", #"cd / && exec "$@""#, "sh"] + prefix + [program] + arguments)
    }

    /// Hands a directory over.
    func own(_ path: String) throws {
        guard let owner else { return }
        guard chown(path, owner.user, owner.group) == 0 else { throw CocoaError(.fileWriteNoPermission) }
    }

    /// Makes a directory that the account can reach and write to: in the package's build folder, or, where that lies behind a private
    /// one, among the temporary files.
    func makeDirectory() async throws -> String {
        let name = "postgres-\(UUID().uuidString.prefix(13))"
        let places = [PackageLayout.root.appending(path: ".build/test-clusters"), FileManager.default.temporaryDirectory]
        var refusal: any Error = Missing()
        for place in places {
            let directory = place.appending(path: name).path
            do {
                try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
                try FileManager.default.createDirectory(
                    atPath: directory, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
                try hand(over: directory)
                try await run("/bin/sh", ["-c", #"cd "$0" && test -w ."#, directory])
                return directory
            } catch {
                try? FileManager.default.removeItem(atPath: directory)
                refusal = error
            }
        }
        throw refusal
    }

    /// Writes a file that only the account can read.
    func write(_ text: String, to path: String) throws {
        try Descriptor.opened(path, O_WRONLY | O_CREAT | O_EXCL).write(text)
        try hand(over: path)
    }

    private func hand(over path: String) throws {
        guard let owner else { return }
        guard chown(path, owner.user, owner.group) == 0 else { throw Descriptor.Failure("chown") }
    }
}
