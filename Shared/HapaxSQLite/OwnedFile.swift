import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Makes files and directories that belong to their directory's owner, also if root makes them: a service whose directory root has worked in must still be able
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

    /// Makes a directory, and those above it that are missing, readable by their owner only.
    package static func makeDirectory(_ path: String) throws {
        var (missing, above) = ([URL](), URL(filePath: path))
        while !FileManager.default.fileExists(atPath: above.path), above.path != "/" {
            missing.append(above)
            above.deleteLastPathComponent()
        }
        try FileManager.default.createDirectory(
            atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        guard geteuid() == 0 else { return }
        for directory in missing.reversed() {
            // Not through a link that its owner has put in the place meanwhile.
            let descriptor = open(directory.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
            guard descriptor >= 0 else { continue }
            giveToOwnerOfDirectory(descriptor, directory.path)
            close(descriptor)
        }
    }

    /// Where it fails, as on a file system without owners, the file stays root's.
    private static func giveToOwnerOfDirectory(_ descriptor: Int32, _ path: String) {
        let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        var status = stat()
        if stat(directory, &status) == 0, status.st_uid != 0 { _ = fchown(descriptor, status.st_uid, status.st_gid) }
    }
}
