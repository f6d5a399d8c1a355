import Foundation
import HapaxSQLite

/// A file that takes up room while there is enough, and is removed to have some when there is none. All who work in a directory share one.
struct Ballast: Sendable {
    private let path: String
    private let bytes: Int
    /// Whether the room is held back now.
    private(set) var isKept = false

    /// Makes nothing: the first who stores something does, on the writer's thread.
    init(path: String, bytes: Int) {
        self.path = path
        self.bytes = bytes
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        isKept = Self.holds(descriptor, bytes)
    }

    /// Takes the room, whole or not at all.
    ///
    /// - Returns: Whether it is held.
    @discardableResult
    mutating func keep() -> Bool {
        // Another process may have given it up.
        if isKept, access(path, F_OK) == 0 { return true }
        var descriptor = OwnedFile.descriptor(path)
        // Another user's is replaced.
        if descriptor < 0, errno == EACCES, unlink(path) == 0 { descriptor = OwnedFile.descriptor(path) }
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        isKept = Self.holds(descriptor, bytes) || Self.fill(descriptor, bytes)
        if isKept { DeviceStorage.excludeFromBackup(path) } else { unlink(path) }
        return isKept
    }

    mutating func release() {
        unlink(path)
        isKept = false
    }

    /// Whether it has been filled by an earlier run.
    private static func holds(_ descriptor: Int32, _ bytes: Int) -> Bool {
        var status = stat()
        return fstat(descriptor, &status) == 0 && Int(status.st_size) >= bytes && Int(status.st_blocks) * 512 >= bytes
    }

    private static func fill(_ descriptor: Int32, _ bytes: Int) -> Bool {
        #if canImport(Darwin)
        // A file with holes holds nothing back, so every page is written.
        let page = [UInt8](repeating: 0xB5, count: 64 * 1024)
        var left = bytes
        while left > 0 {
            let written = page.withUnsafeBytes { write(descriptor, $0.baseAddress, min(left, $0.count)) }
            if written < 0, errno == EINTR { continue }
            if written <= 0 { return false }
            left -= written
        }
        return true
        #else
        var failure: Int32
        repeat { failure = posix_fallocate(descriptor, 0, bytes) } while failure == EINTR
        return failure == 0
        #endif
    }
}
