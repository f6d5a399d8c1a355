import Foundation

/// What kind of disk a directory is on.
package enum FileSystem {
    /// Whether the system shows that the directory is on a network file system: SQLite's log works on one machine only
    /// (https://www.sqlite.org/wal.html#overview), and so may locks.
    package static func isShared(_ path: String) -> Bool {
        #if canImport(Darwin)
        var status = statfs()
        return statfs(path, &status) == 0 && status.f_flags & UInt32(MNT_LOCAL) == 0
        #else
        var status = stat()
        guard stat(path, &status) == 0, let mounts = FileManager.default.contents(atPath: "/proc/self/mountinfo") else { return false }
        return isShared(device: UInt64(status.st_dev), mounts: String(decoding: mounts, as: UTF8.self))
        #endif
    }

    /// - Parameters:
    ///   - device: The device number that `stat` gives (makedev(3)).
    ///   - mounts: The kernel's list (proc_pid_mountinfo(5)): the third field is the device, the first after a dash the type.
    package static func isShared(device: UInt64, mounts: String) -> Bool {
        let major = device >> 8 & 0xFFF | device >> 32 & ~0xFFF
        let minor = device & 0xFF | device >> 12 & ~0xFF
        return mounts.split(separator: "\n").contains { line in
            let fields = line.split(separator: " ")
            guard fields.count > 2, fields[2] == "\(major):\(minor)", let dash = fields.firstIndex(of: "-"), dash + 1 < fields.count else {
                return false
            }
            return sharedTypes.contains(String(fields[dash + 1]))
        }
    }

    private static let sharedTypes: Set = [
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "coda", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "ocfs2",
        "lustre", "beegfs",
    ]
}
