import Foundation
import HapaxSQLite

/// Remembers on disk that events are refused: a file that is there or not.
///
/// Not in the queue's database: whoever opted out stays so when that is damaged, deleted or replaced (D16).
struct OptOutMark: Sendable {
    let path: String
    /// What makes a directory's entries durable; tests fail it.
    private let flush: @Sendable (Int32) -> Int32
    /// Whether the last one to ask opted out, and that could not be written.
    private var isUnwritten = false

    init(path: String, flush: @escaping @Sendable (Int32) -> Int32 = DriveCache.synchronize) { (self.path, self.flush) = (path, flush) }

    /// Nobody who may have opted out is taken for somebody who has not.
    var isSet: Bool {
        if isUnwritten || access(path, F_OK) == 0 { return true }
        // At once: whatever takes memory can change it.
        let reason = errno
        return reason != ENOENT && reason != ENOTDIR
    }

    /// Whether events are refused; nil if nobody can tell, as while the directory is away.
    var found: Bool? {
        if isUnwritten { return true }
        let url = URL(fileURLWithPath: path)
        let directory = open(url.deletingLastPathComponent().path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { return nil }
        defer { close(directory) }
        return faccessat(directory, url.lastPathComponent, F_OK, 0) == 0 || errno != ENOENT
    }

    /// Durable on return, against a power cut as well. If it throws, an opt-out holds as long as this value does.
    mutating func set(_ isSet: Bool) throws {
        // What could not be written before holds until its opposite is.
        isUnwritten = isUnwritten || isSet
        try write(isSet)
        isUnwritten = false
    }

    private func write(_ isSet: Bool) throws {
        if isSet {
            let descriptor = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)
            guard descriptor >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
            close(descriptor)
        } else if unlink(path) != 0, errno != ENOENT {
            throw POSIXError(.init(rawValue: errno) ?? .EIO)
        }
        let directory = open((path as NSString).deletingLastPathComponent, O_RDONLY | O_CLOEXEC)
        guard directory >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(directory) }
        guard flush(directory) == 0 else {
            let failure = POSIXError(.init(rawValue: errno) ?? .EIO)
            // What is not known to be gone is there again: nobody takes events whose user may have opted out.
            if !isSet { close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)) }
            throw failure
        }
    }
}
