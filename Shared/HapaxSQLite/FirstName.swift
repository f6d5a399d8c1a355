#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Gives a finished file its name in one step, if no file has that name yet.
package enum FirstName {
    package enum Failure: Error, Hashable {
        /// There is such a file.
        case taken
        /// The file system can do it in no way.
        case unsupported
        /// The value is `errno`.
        case system(Int32)
    }

    /// The file loses the name that it had.
    package static func give(_ name: String, to path: String) throws(Failure) {
        if link(path, name) == 0 {
            unlink(path)
            return
        }
        var reason = errno
        // FAT and some mounts have no hard links.
        if [EPERM, ENOTSUP, EOPNOTSUPP, ENOSYS, EMLINK].contains(reason) {
            if renameToFree(path, name) == 0 { return }
            guard errno == EEXIST else { throw .unsupported }
            reason = EEXIST
        }
        throw reason == EEXIST ? .taken : .system(reason)
    }

    private static func renameToFree(_ path: String, _ name: String) -> Int32 {
        #if canImport(Darwin)
        return renamex_np(path, name, UInt32(RENAME_EXCL))
        #else
        // Glibc's headers show it to C alone (https://man7.org/linux/man-pages/man2/renameat2.2.html).
        typealias Rename = @convention(c) (Int32, UnsafePointer<CChar>, Int32, UnsafePointer<CChar>, UInt32) -> Int32
        guard let function = dlsym(nil, "renameat2") else {
            errno = ENOSYS
            return -1
        }
        let (currentDirectory, noReplace) = (Int32(-100), UInt32(1))
        return unsafeBitCast(function, to: Rename.self)(currentDirectory, path, currentDirectory, name, noReplace)
        #endif
    }
}
