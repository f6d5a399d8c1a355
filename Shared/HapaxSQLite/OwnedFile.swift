#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Makes files that belong to their directory's owner, also if root makes them: a service whose directory root has worked in must still be able
/// to read what is there.
package enum OwnedFile {
    /// Opens a file for reading and writing, and makes it if it is missing, readable by its owner only.
    ///
    /// - Parameter isNew: Whether it must not be there yet.
    /// - Returns: A descriptor, or -1 with `errno` set.
    package static func descriptor(_ path: String, isNew: Bool = false) -> Int32 {
        let made = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0o600)
        if made < 0 { return isNew || errno != EEXIST ? made : open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600) }
        // Only what was made here: in somebody's directory any other name may be a link to a file that is none of theirs.
        if geteuid() == 0 { giveToOwnerOfDirectory(made, path) }
        return made
    }

    /// Where it fails, as on a file system without owners, the file stays root's.
    private static func giveToOwnerOfDirectory(_ descriptor: Int32, _ path: String) {
        let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        var status = stat()
        if stat(directory, &status) == 0, status.st_uid != 0 { _ = fchown(descriptor, status.st_uid, status.st_gid) }
    }
}
