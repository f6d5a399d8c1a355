import Foundation
import HapaxModel
import HapaxSQLite

/// A disk whose power is cut: of what SQLite has written and not flushed since, all may be there, or nothing, or some sectors.
///
/// That files are made, renamed and removed is taken to be there at once. A disk that says it has flushed and has not is not in here: of
/// such a one nothing can be promised.
package final class PowerCutDisk: Sendable {
    fileprivate struct File: Sendable {
        var flushed: [UInt8]
        var pending: [DiskLayer.Change] = []

        /// As whoever reads it sees it.
        var current: [UInt8] { pending.reduce(into: flushed) { PowerCutDisk.apply($1, to: &$0) } }
    }

    private let directory: String
    private let files = Locked<[FileIdentity: File]>([:])
    private let observer = Locked<@Sendable () -> Void>({})

    package init(_ directory: String) {
        self.directory = directory
        DiskLayer.watch(directory, DiskLayer.Watcher(changed: { [files, observer] in Self.changed($0, $1, files, observer) }))
    }

    deinit { DiskLayer.watch(directory, nil) }

    /// - Parameter observer: Called behind each change, on the thread that made it.
    package func observe(_ observer: @escaping @Sendable () -> Void) {
        self.observer.withLock { $0 = observer }
    }

    private static func changed(
        _ identity: FileIdentity, _ change: DiskLayer.Change, _ files: Locked<[FileIdentity: File]>,
        _ observer: Locked<@Sendable () -> Void>
    ) {
        files.withLock { files in
            switch change {
            case .opened(let path):
                // What a test writes by itself is there, and so is a file that has got the number of one that is gone.
                let bytes = (try? Data(contentsOf: URL(fileURLWithPath: path))).map { [UInt8]($0) } ?? []
                if files[identity]?.current != bytes { files[identity] = File(flushed: bytes) }
            case .wrote, .truncated: files[identity]?.pending.append(change)
            case .synced:
                guard let current = files[identity]?.current else { return }
                files[identity] = File(flushed: current)
            }
        }
        observer.withLock { $0 }()
    }

    private static func apply(_ change: DiskLayer.Change, to bytes: inout [UInt8]) {
        switch change {
        case .wrote(let written, let offset):
            if bytes.count < offset + written.count { bytes += [UInt8](repeating: 0, count: offset + written.count - bytes.count) }
            bytes.replaceSubrange(offset..<offset + written.count, with: written)
        case .truncated(let size):
            if bytes.count > size {
                bytes.removeLast(bytes.count - size)
            } else {
                bytes += [UInt8](repeating: 0, count: size - bytes.count)
            }
        case .opened, .synced: break
        }
    }

    // MARK: - What a cut leaves

    /// How much of what was not flushed is there.
    package enum Survival: CaseIterable, Sendable {
        case nothing, everything, some
    }

    /// The directory at one moment.
    package struct Cut: Sendable {
        fileprivate var files: [(name: String, file: File)]

        /// Whether nothing was waiting to be flushed.
        package var isFlushed: Bool { files.allSatisfy(\.file.pending.isEmpty) }

        /// How many databases were set aside as damaged.
        package var filesSetAside: Int {
            files.count { $0.name.wholeMatch(of: /[0-9]+\.sqlite\.damaged-[0-9]+/) != nil }
        }

        /// Writes what is left to a directory of its own.
        package func restore(to path: String, _ survival: Survival, using random: inout SeededRandom) throws {
            for (name, file) in files {
                var bytes = file.flushed
                for change in file.pending {
                    for part in change.sectors where survival == .everything || (survival == .some && Bool.random(using: &random)) {
                        PowerCutDisk.apply(part, to: &bytes)
                    }
                }
                let place = URL(fileURLWithPath: path + "/" + name)
                try FileManager.default.createDirectory(at: place.deletingLastPathComponent(), withIntermediateDirectories: true)
                try Data(bytes).write(to: place)
            }
        }
    }

    /// Without the ballast, which holds nothing, and the memory that SQLite's readers share, which is made anew.
    package func cut() -> Cut {
        let names = (FileManager.default.enumerator(atPath: directory)?.allObjects as? [String] ?? []).filter { name in
            !name.hasSuffix("-shm") && !name.hasSuffix("queue.ballast")
        }
        let known = files.withLock { $0 }
        return Cut(
            files: names.sorted().compactMap { name in
                let path = directory + "/" + name
                if let identity = FileIdentity(path: path), let file = known[identity] { return (name, file) }
                // Its own files are flushed by who writes them, or are marks without content.
                return FileManager.default.contents(atPath: path).map { (name, File(flushed: [UInt8]($0))) }
            })
    }
}

extension DiskLayer.Change {
    /// What a disk does at once.
    fileprivate var sectors: [DiskLayer.Change] {
        guard case .wrote(let bytes, let offset) = self else { return [self] }
        return stride(from: 0, to: bytes.count, by: 512).map { start in
            .wrote(Array(bytes[start..<min(start + 512, bytes.count)]), offset: offset + start)
        }
    }
}
