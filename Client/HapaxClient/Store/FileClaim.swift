import Foundation
import HapaxModel
import HapaxSQLite

/// The right to be the only one who works on a queue's file, as long as it lives: `flock(2)` on `N.lock`, which says whose the file is.
package final class FileClaim: Sendable {
    package let directory: QueueDirectory
    package let number: Int
    private let lock: Locked<FileLock?>
    private let noted: Locked<FileNote>

    /// Whose file it is, as `N.lock` says, also to those who do not hold it.
    package struct FileNote: Hashable, Sendable {
        /// Where its events go: server and key, as a hash.
        package var destination: EventID
        package var install: EventID
        /// Nothing in the file is to be sent: nobody has to open it to find out.
        package var isClean: Bool
        /// Nothing has ever been committed to it.
        package var isNew = false

        private static let start = "hapax 1 "
        fileprivate static let cleanOffset = start.utf8.count + 2 * 37
        fileprivate static let byteCount = cleanOffset + 2

        init(destination: EventID, install: EventID, isClean: Bool, isNew: Bool = false) {
            (self.destination, self.install, self.isClean, self.isNew) = (destination, install, isClean, isNew)
        }

        /// nil for what nobody has written yet, or somebody else has.
        init?(_ bytes: [UInt8]) {
            let text = String(decoding: bytes, as: UTF8.self)
            guard bytes.count == Self.byteCount, text.hasPrefix(Self.start) else { return nil }
            let parts = text.dropFirst(Self.start.count).split(whereSeparator: \.isWhitespace)
            guard parts.count == 3, let destination = EventID(uuidString: String(parts[0])),
                let install = EventID(uuidString: String(parts[1]))
            else { return nil }
            self.init(destination: destination, install: install, isClean: parts[2] == "c", isNew: parts[2] == "n")
        }

        fileprivate var bytes: [UInt8] { Array("\(Self.start)\(destination) \(install) \(isNew ? "n" : isClean ? "c" : "-")\n".utf8) }
    }

    package var note: FileNote { noted.withLock { $0 } }

    /// Takes the next number.
    ///
    /// - Parameters:
    ///   - taken: The numbers that there are.
    ///   - install: Names the new file's install.
    static func next(
        after taken: Set<Int>, of destination: EventID, in directory: QueueDirectory, install: EventID
    ) throws(QueueOpenError) -> FileClaim {
        // Others may begin one at the same moment.
        for number in 1... where !taken.contains(number) {
            guard number <= QueueDirectory.maximumFiles else { throw .unusable(.tooManyFiles) }
            do throws(QueueOpenError) {
                return try FileClaim(
                    newFile: number, in: directory, FileNote(destination: destination, install: install, isClean: false, isNew: true))
            } catch {
                if error != .taken { throw error }
            }
        }
        throw .taken
    }

    /// - Returns: nil if there is none, none that was written as a whole, or none that can be read: then whoever needs it claims the file, and
    ///   learns why.
    package static func note(of number: Int, in directory: QueueDirectory) -> FileNote? {
        guard let file = FileHandle(forReadingAtPath: directory.lockPath(number)) else { return nil }
        return (try? file.read(upToCount: FileNote.byteCount + 1)).flatMap { FileNote([UInt8]($0)) }
    }

    /// Takes a file that is there.
    ///
    /// - Parameter destinations: Whose it may be; nil for anybody's.
    package init(_ number: Int, in directory: QueueDirectory, of destinations: Set<EventID>? = nil) throws(QueueOpenError) {
        // Where somebody has deleted it, the file's owner may still live.
        guard try Self.isThere(directory.lockPath(number)) else { throw .unusable(.withoutNote) }
        let lock = try Self.lock(directory.lockPath(number), creates: false)
        guard let note = FileNote(try Self.contents(of: lock)) else { throw .unusable(.withoutNote) }
        guard destinations?.contains(note.destination) != false else { throw .taken }
        (self.directory, self.number, self.lock, noted) = (directory, number, Locked(lock), Locked(note))
    }

    private init(newFile number: Int, in directory: QueueDirectory, _ note: FileNote) throws(QueueOpenError) {
        let lock = try Self.lock(directory.lockPath(number), creates: true)
        // Somebody has begun it at the same moment, and has ended since; or works on it, and somebody else has deleted the lock file.
        guard try Self.contents(of: lock).isEmpty, try !Self.isThere(directory.databasePath(number)) else { throw .taken }
        let failure = lock.write(note.bytes, at: 0)
        guard failure == 0 else { throw .unusable(StorageFailure(errno: failure)) }
        (self.directory, self.number, self.lock, noted) = (directory, number, Locked(lock), Locked(note))
    }

    private static func lock(_ path: String, creates: Bool) throws(QueueOpenError) -> FileLock {
        try Self.locking { () throws(FileLock.Failure) in try FileLock(path: path, creates: creates) }
    }

    /// As far as it may be a note.
    private static func contents(of lock: FileLock) throws(QueueOpenError) -> [UInt8] {
        try Self.locking { () throws(FileLock.Failure) in try lock.contents(atMost: FileNote.byteCount + 1) }
    }

    private static func locking<Value>(_ work: () throws(FileLock.Failure) -> Value) throws(QueueOpenError) -> Value {
        do throws(FileLock.Failure) { return try work() } catch {
            switch error {
            case .taken: throw .taken
            case .system(let number): throw .unusable(StorageFailure(errno: number))
            }
        }
    }

    private static func isThere(_ path: String) throws(QueueOpenError) -> Bool {
        do throws(StorageFailure) { return try FileStatus.size(of: path) != nil } catch { throw .unusable(error) }
    }

    /// The file that is made now is a new install's.
    func beginAnew() throws {
        var ids = UUIDv7Generator()
        let install = ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
        try change { ($0.install, $0.isClean, $0.isNew) = (install, false, true) }
    }

    /// - Parameter isClean: Whether nothing in the file is to be sent. Taken back before the commit that makes it untrue.
    func mark(clean isClean: Bool) throws {
        if note.isClean != isClean || note.isNew { try change { ($0.isClean, $0.isNew) = (isClean, false) } }
    }

    private func change(_ body: (inout FileNote) -> Void) throws {
        try noted.withLock { note in
            var changed = note
            body(&changed)
            let failure = lock.withLock { $0?.write(changed.bytes, at: 0) } ?? EBADF
            guard failure == 0 else { throw POSIXError(.init(rawValue: failure) ?? .EIO) }
            note = changed
        }
    }

    /// Whether it keeps others from the file: somebody may have deleted or moved the directory.
    var isInPlace: Bool { lock.withLock { $0?.isInPlace == true } }

    /// See ``FileLock/flushDrive()``.
    func flushDrive() -> Int32 { lock.withLock { $0?.flushDrive() } ?? 0 }

    /// Gives the file up, for whoever comes.
    package func release() { lock.withLock { $0 = nil } }
}
