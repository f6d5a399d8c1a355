#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The right to be the only process that works on a file: `flock(2)` on a file beside it.
///
/// The kernel gives the lock up when the process ends, however it ends, and the descriptor is closed on exec, so neither a crash nor a
/// child leaves it behind. A process id in a file would do both.
package final class FileLock: Sendable {
    private let descriptor: Int32
    private let path: String

    package enum Failure: Error, Hashable {
        /// Another process, or another owner in this process, holds it.
        case taken
        /// The lock file cannot be opened or locked; the value is `errno`.
        case system(Int32)
    }

    /// Takes the lock without waiting; it is held until the last reference goes. The file stays behind.
    ///
    /// - Parameters:
    ///   - path: The lock file, readable by its owner only.
    ///   - creates: Whether it is created if missing.
    package init(path: String, creates: Bool = true) throws(Failure) {
        let descriptor = open(path, (creates ? O_CREAT : 0) | O_RDWR | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw .system(errno) }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let reason = errno
            close(descriptor)
            throw reason == EWOULDBLOCK ? .taken : .system(reason)
        }
        // Whoever held it before may have deleted the file meanwhile: a lock on a nameless file excludes nobody.
        guard let held = FileIdentity(descriptor: descriptor), held == FileIdentity(path: path) else {
            close(descriptor)
            throw .taken
        }
        self.descriptor = descriptor
        self.path = path
    }

    /// What the file holds, at most so many bytes; fewer if it cannot be read.
    package func contents(atMost count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = pread(descriptor, &bytes, count, 0)
        return Array(bytes.prefix(max(read, 0)))
    }

    /// Writes over what is there; durable on return.
    ///
    /// - Returns: `errno`, or 0.
    package func write(_ bytes: [UInt8], at offset: Int) -> Int32 {
        guard pwrite(descriptor, bytes, bytes.count, off_t(offset)) == bytes.count else { return errno == 0 ? EIO : errno }
        return DriveCache.synchronize(descriptor) == 0 ? 0 : errno
    }

    /// Empties the cache of the drive that it is on, see ``DriveCache``.
    ///
    /// - Returns: `errno`, or 0.
    package func flushDrive() -> Int32 { DriveCache.flush(descriptor) }

    /// Whether it keeps others from what is at its path: somebody may have deleted or moved the file, with its directory.
    package var isInPlace: Bool { FileIdentity(descriptor: descriptor) == FileIdentity(path: path) }

    deinit {
        // Closing alone would leave the lock to a child that has been forked and has not yet reached exec.
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }
}
