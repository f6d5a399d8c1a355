import Foundation
import HapaxClient
import HapaxModel

/// How far a file has been imported to one project of one server: a line of text beside the file, there only while an import is unfinished.
///
/// It counts only for that server and key, while the bytes before its place are what they were, and while each queue file that was given lines of
/// them is there and has lost none; otherwise the import begins at the first line, and what is sent twice is stored once.
struct ImportNote: Hashable {
    /// Everything before it is stored in the queue.
    var offset: Int64 = 0
    var lines: Int64 = 0
    /// Lines of which no event could be made, and the length of the file that they are in.
    var rejected = 0
    var rejectedBytes: Int64 = 0
    /// The installs that were given lines, and how each stood before that. A damaged file goes on as another install.
    var installs: [EventID: Before] = [:]

    /// What a queue file had come to before it was given lines.
    struct Before: Hashable {
        /// Events that it had removed unsent.
        var removals: Int64
        var deadLettered: Int64
    }

    static func path(of file: String) -> String { file + ".hapax-import" }

    /// Compared before an import goes on, of what stands before its place.
    private static let comparedBytes = 64 * 1024

    /// Why a note does not count, for people.
    struct Unusable: Error {
        let reason: String

        static let ofAnotherVersion = Unusable(reason: "another version of hapax has noted where")

        static func unreadable(_ failure: StorageFailure) -> Unusable { Unusable(reason: "where it stopped cannot be read: \(failure)") }
        static let ofAnotherDestination = Unusable(reason: "that was to another server, with another key or with other options")
        static let ofAnotherFile = Unusable(reason: "the file has changed before that place")
        static let ofAnotherQueue = Unusable(
            reason: "a queue file that was given lines is not here, is another process's by now, or has lost events or had them purged")
    }

    /// - Returns: nil if there is none.
    static func read(_ file: String, descriptor: Int32, destination: EventID) throws(Unusable) -> ImportNote? {
        let data: Data
        do {
            data = try Data(contentsOf: URL(fileURLWithPath: path(of: file)))
        } catch let error as CocoaError where error.code == .fileReadNoSuchFile {
            return nil
        } catch {
            throw .unreadable(StorageFailure(error))
        }
        let parts = String(decoding: data, as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard parts.count >= 6, let offset = Int64(parts[1]), let lines = Int64(parts[2]), let rejected = Int(parts[3]),
            let rejectedBytes = Int64(parts[4]), offset >= 0, rejectedBytes >= 0
        else { throw .ofAnotherVersion }
        guard parts[0] == destination.description else { throw .ofAnotherDestination }
        guard let sum = checkSum(before: offset, descriptor), "\(sum)" == parts[5] else { throw .ofAnotherFile }
        let installs = parts[6...].compactMap { part -> (EventID, Before)? in
            let words = part.split(separator: ":")
            guard words.count == 3, let install = EventID(uuidString: String(words[0])), let removals = Int64(words[1]),
                let letters = Int64(words[2])
            else { return nil }
            return (install, Before(removals: removals, deadLettered: letters))
        }
        // A note that names none, or in another way, was written by an earlier version.
        guard !installs.isEmpty, installs.count == parts.count - 6 else { throw .ofAnotherVersion }
        return ImportNote(
            offset: offset, lines: lines, rejected: rejected, rejectedBytes: rejectedBytes,
            installs: Dictionary(installs, uniquingKeysWith: { $1 }))
    }

    func write(_ file: String, descriptor: Int32, destination: EventID) throws {
        guard let sum = Self.checkSum(before: offset, descriptor) else { throw POSIXError(.EIO) }
        let parts = installs.map { " \($0.key):\($0.value.removals):\($0.value.deadLettered)" }.sorted().joined()
        let text = "\(destination) \(offset) \(lines) \(rejected) \(rejectedBytes) \(sum)\(parts)\n"
        try Data(text.utf8).write(to: URL(fileURLWithPath: Self.path(of: file)), options: .atomic)
    }

    static func remove(_ file: String) throws {
        if unlink(path(of: file)) != 0, errno != ENOENT { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    /// nil if the file does not reach so far.
    private static func checkSum(before offset: Int64, _ descriptor: Int32) -> UInt32? {
        let count = Int(min(offset, Int64(comparedBytes)))
        guard count > 0 else { return 0 }
        var bytes = [UInt8](repeating: 0, count: count)
        guard pread(descriptor, &bytes, count, off_t(offset - Int64(count))) == count else { return nil }
        return bytes.withUnsafeBytes { CheckSum.crc32($0) }
    }
}
