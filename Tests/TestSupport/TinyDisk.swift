#if canImport(Glibc)
import Foundation
import Glibc

/// A file system of its own with so many bytes, which goes when the last reference does. Mounting one takes root.
package final class TinyDisk: Sendable {
    package let path: String
    private let bytes: Int

    /// - Returns: nil if this process may not mount.
    package init?(bytes: Int) {
        self.bytes = bytes
        path = FileManager.default.temporaryDirectory.path + "/hapax-disk-\(UUID().uuidString)"
        guard mkdir(path, 0o700) == 0 else { return nil }
        guard mount("none", path, "tmpfs", 0, "size=\(bytes)") == 0 else {
            rmdir(path)
            return nil
        }
    }

    deinit {
        umount2(path, Int32(MNT_DETACH))
        rmdir(path)
    }

    package var freeBytes: Int {
        var status = statvfs()
        statvfs(path, &status)
        return Int(status.f_bavail) * Int(status.f_frsize)
    }

    /// Takes what is left, all but so many bytes.
    package func fill(except rest: Int = 0) {
        // What has no name any more, and a process that another test has just begun still holds, would be room again a moment later.
        let start = ContinuousClock.now
        while freeBytes + namedBytes < bytes, ContinuousClock.now - start < .seconds(10) { sched_yield() }
        let descriptor = open(path + "/filler", O_CREAT | O_WRONLY, 0o600)
        defer { close(descriptor) }
        while posix_fallocate(descriptor, 0, max(freeBytes - rest, 0)) == EINTR {}
    }

    /// What the files in it take.
    private var namedBytes: Int {
        let names = FileManager.default.enumerator(atPath: path)?.compactMap { $0 as? String } ?? []
        return names.reduce(0) { sum, name in
            var status = stat()
            return lstat(path + "/" + name, &status) == 0 ? sum + Int(status.st_blocks) * 512 : sum
        }
    }

    package func unfill() { unlink(path + "/filler") }

    /// Whether this process may mount one.
    package static let isPossible = TinyDisk(bytes: 64 * 1024) != nil
}
#else
/// Nothing here mounts one.
package final class TinyDisk: Sendable {
    package let path = ""
    package init?(bytes: Int) { return nil }
    package var freeBytes: Int { 0 }
    package func fill(except rest: Int = 0) {}
    package func unfill() {}
    package static let isPossible = false
}
#endif
