#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The right to be the only process that works on a file: `flock(2)` on a lock file next to it.
///
/// The kernel releases the lock when the process ends, however it ends, and the descriptor is closed on exec, so no lock remains after a
/// crash or in a child process. A process id in a file would remain.
package final class FileLock: Sendable {
    private let descriptor: Int32
    private let path: String

    package enum Failure: Error, Hashable {
        /// Another process, or another owner in this process, holds it.
        case taken
        /// The lock file cannot be opened or locked; the value is `errno`.
        case system(Int32)
    }

    /// Takes the lock without waiting; it is held until the last reference is released. The file is not deleted.
    ///
    /// - Parameters:
    ///   - path: The lock file, readable by its directory's owner only.
    ///   - creates: Whether it is created if missing.
    package init(path: String, creates: Bool = true) throws(Failure) {
        let descriptor = creates ? OwnedFile.descriptor(path) : open(path, O_RDWR | O_CLOEXEC)
        guard descriptor >= 0 else { throw .system(errno) }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let reason = errno
            close(descriptor)
            throw reason == EWOULDBLOCK ? .taken : .system(reason)
        }
        // Another process may have deleted the file meanwhile: a lock on a file without a name excludes no process.
        guard let held = FileIdentity(descriptor: descriptor), held == FileIdentity(path: path) else {
            close(descriptor)
            throw .taken
        }
        self.descriptor = descriptor
        self.path = path
    }

    /// The file's first `count` bytes, fewer if it is shorter.
    package func contents(atMost count: Int) throws(Failure) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = pread(descriptor, &bytes, count, 0)
        guard read >= 0 else { throw .system(errno) }
        return Array(bytes.prefix(read))
    }

    /// Overwrites the file's bytes from `offset` on; durable on return.
    ///
    /// - Returns: `errno`, or 0.
    package func write(_ bytes: [UInt8], at offset: Int) -> Int32 {
        guard pwrite(descriptor, bytes, bytes.count, off_t(offset)) == bytes.count else { return errno == 0 ? EIO : errno }
        return DriveCache.synchronize(descriptor) == 0 ? 0 : errno
    }

    /// Flushes the cache of the drive that the lock file is on, see ``DriveCache``.
    ///
    /// - Returns: `errno`, or 0.
    package func flushDrive() -> Int32 { DriveCache.flush(descriptor) }

    /// Whether the file is still at its path: if it was deleted or moved, perhaps with its directory, the lock protects nothing.
    package var isInPlace: Bool { FileIdentity(descriptor: descriptor) == FileIdentity(path: path) }

    deinit {
        // After closing alone, a child that has been forked and has not yet reached exec would keep the lock.
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }
}
