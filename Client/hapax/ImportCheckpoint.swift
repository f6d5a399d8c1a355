import Foundation
import HapaxModel

/// How far a file has been imported, so that an interrupted import goes on there.
///
/// A guess that saves time and nothing else: what is sent twice is stored once.
struct ImportCheckpoint: Codable, Hashable {
    /// Everything before it has been settled.
    var offset: Int64 = 0
    var lines: Int64 = 0
    /// Of the bytes just before `offset`: a file that was rewritten under the same name is read from its beginning.
    var fingerprint = ""

    private static let fingerprintBytes: Int64 = 4_096

    /// The file's name among checkpoints: its path, device and inode.
    static func name(descriptor: Int32, path: String) -> String? {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        let whole = URL(fileURLWithPath: path).standardizedFileURL.path
        return EventID.derived(name: "import", key: "\(status.st_dev) \(status.st_ino) \(whole)").description
    }

    static func path(queue: String, name: String) -> String { queue + "/import/" + name + ".json" }

    /// What stands just before `offset`; nil if the file does not reach there.
    static func fingerprint(descriptor: Int32, offset: Int64) -> String? {
        let start = max(0, offset - fingerprintBytes)
        let count = Int(offset - start)
        var bytes = [UInt8](repeating: 0, count: count)
        guard pread(descriptor, &bytes, count, off_t(start)) == count else { return nil }
        return EventID.derived(name: "\(offset)", key: String(decoding: bytes, as: UTF8.self)).description
    }

    /// - Returns: The beginning if there is no checkpoint or it is of other contents.
    static func load(path: String, descriptor: Int32) -> ImportCheckpoint {
        guard let data = FileManager.default.contents(atPath: path),
            let checkpoint = try? JSONDecoder().decode(ImportCheckpoint.self, from: data), checkpoint.offset > 0, checkpoint.lines > 0,
            fingerprint(descriptor: descriptor, offset: checkpoint.offset) == checkpoint.fingerprint
        else { return ImportCheckpoint() }
        return checkpoint
    }

    /// Replaces the file by rename: whoever reads it finds the old one or the new one.
    func save(path: String) throws {
        let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        try JSONEncoder().encode(self).write(to: URL(fileURLWithPath: path), options: .atomic)
    }

    static func remove(path: String) {
        try? FileManager.default.removeItem(atPath: path)
    }
}
