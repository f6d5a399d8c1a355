import Foundation
import HapaxModel
import HapaxSQLite

/// What a file's counters were after its owner's latest commit, for those who must not open the file. It stands in `N.status`, behind its check sum.
package struct FileStatus: Hashable, Sendable, Codable {
    package var install: String
    package var created, waiting, held, bytes, stored, duplicates, deadLettered, removed, deadLetters: Int64
    package var dropped: [String: Int64]
    package var oldest: Int64?
    /// Whether something is still to be recovered from a damaged file: nobody knows yet how many events that holds.
    package var recovering: Bool

    package init(_ counters: QueueCounters, oldest: Int64?, isRecovering: Bool) {
        recovering = isRecovering
        install = counters.installID.description
        (created, waiting, held, bytes) = (counters.created, counters.waiting, counters.held, counters.bytes)
        (stored, duplicates, deadLettered, removed) = (counters.stored, counters.duplicates, counters.deadLettered, counters.removed)
        (deadLetters, dropped, self.oldest) = (counters.deadLetters, counters.dropped, oldest)
    }

    /// - Returns: nil if nobody has written one as a whole: then nothing is known.
    package static func read(_ number: Int, in directory: QueueDirectory) -> FileStatus? {
        // Its owner may be writing it at this moment.
        for _ in 0..<10 {
            guard let data = FileManager.default.contents(atPath: directory.statusPath(number)) else { return nil }
            let text = data.dropFirst(sumLength + 1)
            if data.prefix(sumLength) == Data(sum(of: Array(text)).utf8) { return try? JSONDecoder().decode(FileStatus.self, from: text) }
        }
        return nil
    }

    fileprivate static let sumLength = 8

    /// Eight digits.
    fileprivate static func sum(of bytes: [UInt8]) -> String {
        let digits = String(bytes.withUnsafeBytes { CheckSum.crc32($0) }, radix: 16)
        return String(repeating: "0", count: sumLength - digits.count) + digits
    }

    /// As it is written; this runs at each commit.
    fileprivate func encoded(length: Int) -> [UInt8] {
        var writer = JSONWriter(capacity: length)
        writer.object([
            "install": .string(install), "created": .integer(created), "waiting": .integer(waiting), "held": .integer(held),
            "bytes": .integer(bytes), "stored": .integer(stored), "duplicates": .integer(duplicates),
            "deadLettered": .integer(deadLettered),
            "removed": .integer(removed), "deadLetters": .integer(deadLetters), "dropped": .object(dropped.mapValues { .integer($0) }),
            "oldest": oldest.map { .integer($0) } ?? .null, "recovering": .bool(recovering),
        ])
        let json = writer.bytes
        let padded = json + [UInt8](repeating: UInt8(ascii: " "), count: max(length - Self.sumLength - 1 - json.count, 0))
        return Array((Self.sum(of: padded) + " ").utf8) + padded
    }
}

/// Writes a file's status in its place after each commit: some microseconds, and no moment at which it is not there.
final class StatusFile: Sendable {
    private let path: String
    private let state: Locked<(descriptor: Int32, length: Int)>

    /// Room for every counter there is, so that a later one never leaves the end of an earlier one.
    private static let length = 1_024
    private static let maximumLength = 16 * 1_024

    init(path: String) {
        self.path = path
        // On a phone no other process looks.
        #if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
        state = Locked((-1, 0))
        #else
        let descriptor = OwnedFile.descriptor(path)
        var length = descriptor < 0 ? 0 : Int(lseek(descriptor, 0, SEEK_END))
        // What no owner has written so.
        if length > Self.maximumLength, ftruncate(descriptor, 0) == 0 { length = 0 }
        state = Locked((descriptor, max(Self.length, length)))
        if descriptor < 0 { unlink(path) }
        #endif
    }

    deinit { close() }

    /// One that cannot be written is taken away, so that nobody believes an earlier one.
    func write(_ status: @autoclosure () -> FileStatus) {
        state.withLock { state in
            guard state.descriptor >= 0 else { return }
            let bytes = status().encoded(length: state.length)
            state.length = bytes.count
            if pwrite(state.descriptor, bytes, bytes.count, 0) != bytes.count { unlink(path) }
        }
    }

    func close() {
        state.withLock { state in
            if state.descriptor >= 0 { Foundation.close(state.descriptor) }
            state.descriptor = -1
        }
    }
}

extension FileStatus {
    /// - Returns: nil if there is no file.
    /// - Throws: If nobody can tell.
    static func size(of path: String) throws(StorageFailure) -> Int64? {
        var status = stat()
        if stat(path, &status) == 0 { return Int64(status.st_size) }
        guard errno == ENOENT else { throw StorageFailure(errno: errno) }
        return nil
    }
}
