import Foundation
import HapaxClient
import HapaxModel
import HapaxSQLite

/// How far a file has been imported to one project of one server, so that an interrupted import goes on there.
///
/// What stands before `offset` is not sent again. So a checkpoint counts only for the server, the key, the file and the very bytes for which
/// it was made; in any other case the import begins at the first line, and what is sent twice is stored once.
struct ImportCheckpoint: Codable, Hashable {
    /// A place between two lines.
    struct Place: Codable, Hashable {
        var offset: Int64 = 0
        /// Before it.
        var lines: Int64 = 0
        /// Of all bytes before it.
        var fingerprint = ""
    }

    /// Everything before it has been settled.
    var offset: Int64 = 0
    var lines: Int64 = 0
    /// Lines before `offset` that became dead letters.
    var deadLettered = 0
    /// Of all bytes before `offset`.
    var fingerprint = ""
    /// Up to where the lines that are no events have been kept, though an event before them still waits. They are not kept again: who has
    /// purged them to make room would only have them back.
    var kept = Place()

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
            var checkpoint = try? JSONDecoder().decode(ImportCheckpoint.self, from: data),
            checkpoint.lines > 0 || checkpoint.kept.lines > 0
        else { return nil }
        var fingerprint = ImportFingerprint()
        guard fingerprint.advance(to: checkpoint.offset, descriptor: descriptor), fingerprint.text == checkpoint.fingerprint else {
            return nil
        }
        var kept = fingerprint
        let holdsKept = kept.advance(to: checkpoint.kept.offset, descriptor: descriptor) && kept.text == checkpoint.kept.fingerprint
        if !holdsKept { checkpoint.kept = Place() }
        return (checkpoint, fingerprint)
    }

    /// The file has this size from its first writing on, and is written over in its place: that takes no room on a disk that has become full.
    private static let fileBytes = 4096

    /// One write, so that a kill leaves the old one or the new one; what a power cut makes of it is either of them, or counts for nothing.
    func save(path: String) throws {
        let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        var bytes = [UInt8](try JSONEncoder().encode(self))
        bytes += [UInt8](repeating: UInt8(ascii: " "), count: max(Self.fileBytes - bytes.count, 0))
        let file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Self.failure }
        defer { close(file) }
        var count: Int
        repeat { count = pwrite(file, bytes, bytes.count, 0) } while count < 0 && errno == EINTR
        guard count == bytes.count else { throw Self.failure }
    }

    /// - Throws: `POSIXError` if it may still be there, also after a power cut.
    static func remove(path: String) throws {
        if unlink(path) != 0, errno != ENOENT { throw failure }
        let directory = open(URL(fileURLWithPath: path).deletingLastPathComponent().path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else {
            if errno == ENOENT { return }
            throw failure
        }
        defer { close(directory) }
        guard DriveCache.synchronize(directory) == 0 else { throw failure }
    }

    private static var failure: POSIXError { POSIXError(.init(rawValue: errno) ?? .EIO) }
}
