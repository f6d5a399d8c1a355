import Foundation
import HapaxClient
import HapaxModel

/// How far a file has been imported to one project of one server, so that an interrupted import goes on there.
///
/// What stands before `offset` is not sent again. So a checkpoint counts only for the server, the key, the file and the very bytes for which
/// it was made; in any other case the import begins at the first line, and what is sent twice is stored once.
struct ImportCheckpoint: Codable, Hashable {
    /// Everything before it has been settled.
    var offset: Int64 = 0
    var lines: Int64 = 0
    /// Lines before `offset` that became dead letters.
    var deadLettered = 0
    /// Of all bytes before `offset`.
    var fingerprint = ""

    /// The name under which an import is known: a hash of server, key, path, device and inode. nil for what cannot be read again.
    static func name(descriptor: Int32, path: String, endpoint: Endpoint) -> String? {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        let whole = URL(fileURLWithPath: path).standardizedFileURL.path
        // The key enters by its hash alone.
        let parts = [endpoint.url, ImportFingerprint.text(of: Array(endpoint.key.utf8)), "\(status.st_dev) \(status.st_ino)", whole]
        return EventID.derived(name: "import", key: parts.joined(separator: "\n")).description
    }

    static func path(queue: String, name: String) -> String { queue + "/import/" + name + ".json" }

    /// - Returns: nil if there is no checkpoint or it is of other contents; else with the fingerprint up to it.
    static func load(path: String, descriptor: Int32) -> (checkpoint: ImportCheckpoint, fingerprint: ImportFingerprint)? {
        guard let data = FileManager.default.contents(atPath: path),
            let checkpoint = try? JSONDecoder().decode(ImportCheckpoint.self, from: data), checkpoint.offset > 0, checkpoint.lines > 0
        else { return nil }
        var fingerprint = ImportFingerprint()
        guard fingerprint.advance(to: checkpoint.offset, descriptor: descriptor), fingerprint.text == checkpoint.fingerprint else {
            return nil
        }
        return (checkpoint, fingerprint)
    }

    /// Replaces the file by rename: whoever reads it finds the old one or the new one.
    func save(path: String) throws {
        let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        // Under a name of its own, which the next one takes again if a kill leaves it.
        let new = path + ".new"
        try JSONEncoder().encode(self).write(to: URL(fileURLWithPath: new))
        guard rename(new, path) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    static func remove(path: String) {
        for name in [path, path + ".new"] { try? FileManager.default.removeItem(atPath: name) }
    }
}
