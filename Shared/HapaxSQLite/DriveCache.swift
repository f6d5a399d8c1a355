#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A drive's own cache, which a power cut empties.
///
/// On Linux `fsync(2)` writes it out. On Apple's systems only `F_FULLFSYNC` does (https://developer.apple.com/documentation/xcode/reducing-disk-writes),
/// and the SQLite that they ship makes of `PRAGMA fullfsync` a barrier, which keeps writes in order and not on the disk. So whoever promises
/// that a commit survives a power cut asks for it behind the commit.
package enum DriveCache {
    /// Writes out what any file on the drive was flushed with before.
    ///
    /// - Parameter descriptor: Of a file on it.
    /// - Returns: `errno`, or 0; 0 as well where there is nothing to do, or the drive knows no such thing.
    package static func flush(_ descriptor: Int32) -> Int32 {
        #if canImport(Darwin)
        while fcntl(descriptor, F_FULLFSYNC) != 0 {
            let reason = errno
            // What file systems that know no such thing answer: those of other systems, and of networks.
            if reason == ENOTSUP || reason == ENOTTY || reason == EINVAL { return 0 }
            if reason != EINTR { return reason }
        }
        return 0
        #else
        return 0
        #endif
    }

    /// Flushes a file or a directory through the drive's cache.
    ///
    /// - Returns: 0, or -1 with `errno` set.
    package static func synchronize(_ descriptor: Int32) -> Int32 {
        #if canImport(Darwin)
        if fcntl(descriptor, F_FULLFSYNC) == 0 { return 0 }
        #endif
        return fsync(descriptor)
    }
}
