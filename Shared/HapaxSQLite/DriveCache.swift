#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A drive's own cache, which a power cut empties.
///
/// On Linux `fsync(2)` writes the cache to the disk. On Apple's systems only `F_FULLFSYNC` does
/// (https://developer.apple.com/documentation/xcode/reducing-disk-writes), and their SQLite turns `PRAGMA fullfsync` into a barrier, which
/// orders writes but does not put them on the disk. So code that promises that a commit survives a power cut flushes the cache after it.
package enum DriveCache {
    /// Writes the cache to the disk: all that was flushed before, of any file on the drive.
    ///
    /// - Parameter descriptor: Any file on the drive.
    /// - Returns: `errno`, or 0; also 0 on other systems than Apple's, and where the call is not supported.
    package static func flush(_ descriptor: Int32) -> Int32 {
        #if canImport(Darwin)
        while fcntl(descriptor, F_FULLFSYNC) != 0 {
            let reason = errno
            // File systems of other systems and of networks do not support the call.
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
