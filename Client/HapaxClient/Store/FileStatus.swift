import Foundation
import HapaxModel

/// What the owner of a file last wrote beside it, in `N.status`, for those who must not open the file.
package struct FileStatus: Hashable, Sendable, Codable {
    package var install: String
    package var created, waiting, held, bytes, stored, duplicates, deadLettered, gone, deadLetters: Int64
    package var dropped: [String: Int64]
    package var oldest: Int64?

    package init(_ counters: QueueCounters, oldest: Int64?) {
        install = counters.installID.description
        (created, waiting, held, bytes) = (counters.created, counters.waiting, counters.held, counters.bytes)
        (stored, duplicates, deadLettered, gone) = (counters.stored, counters.duplicates, counters.deadLettered, counters.gone)
        (deadLetters, dropped, self.oldest) = (counters.letters, counters.dropped, oldest)
    }

    /// One that cannot be written is missing until the next.
    func write(_ file: QueueFile) {
        guard file.hasFile, let data = try? JSONEncoder().encode(self) else { return }
        try? data.write(to: URL(fileURLWithPath: file.directory.statusPath(file.number)), options: .atomic)
    }

    /// - Returns: nil if its owner has not written one yet.
    package static func read(_ number: Int, in directory: QueueDirectory) -> FileStatus? {
        FileManager.default.contents(atPath: directory.statusPath(number)).flatMap { try? JSONDecoder().decode(FileStatus.self, from: $0) }
    }
}

extension FileStatus {
    /// - Returns: nil if there is no file, or nobody can see it.
    static func size(of path: String) -> Int64? {
        (try? FileManager.default.attributesOfItem(atPath: path))?[.size].flatMap { ($0 as? NSNumber)?.int64Value }
    }
}
