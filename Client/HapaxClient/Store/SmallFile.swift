import Foundation
import HapaxSQLite

/// A small file of the queue's directory that is replaced as a whole. It survives any queue file.
struct SmallFile: Sendable {
    let path: String
    /// What makes a directory's entries durable; tests fail it.
    var flush: @Sendable (Int32) -> Int32 = DriveCache.synchronize

    /// - Returns: nil if there is none.
    /// - Throws: Also if it is not known whether it is there, as where a file stands in the directory's place.
    func read() throws -> Data? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            let reason = errno
            if reason == ENOENT { return nil }
            throw POSIXError(.init(rawValue: reason) ?? .EIO)
        }
        return try FileHandle(fileDescriptor: descriptor, closeOnDealloc: true).readToEnd() ?? Data()
    }

    /// What is there as JSON.
    ///
    /// - Returns: nil if there is none.
    /// - Throws: ``UnreadableFile``, also if it holds something else.
    func decoded<Value: Decodable>(_ type: Value.Type) throws(UnreadableFile) -> Value? {
        do { return try read().map { try JSONDecoder().decode(type, from: $0) } } catch {
            throw UnreadableFile((path as NSString).lastPathComponent, error)
        }
    }

    /// Makes room for a new one where what is there is something else; people may look at it.
    func setAside() { _ = rename(path, path + ".damaged") }

    /// Durable on return. Changes of several processes follow each other.
    ///
    /// - Parameters:
    ///   - mayStay: Whether what is written may stay where it is not known to be durable; else what was there before is there again.
    ///   - content: What is to be there, made while nobody else makes something.
    func replace(mayStay: Bool = true, _ content: () throws -> Data) throws {
        let directory = open((path as NSString).deletingLastPathComponent, O_RDONLY | O_CLOEXEC)
        guard directory >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(directory) }
        Self.lock(directory)
        defer { flock(directory, LOCK_UN) }
        let temporary = try write(try content())
        defer { unlink(temporary) }
        let former = mayStay ? nil : try secondName(temporary + ".former")
        defer { if let former { unlink(former) } }
        guard rename(temporary, path) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        guard flush(directory) != 0 else { return }
        let failure = POSIXError(.init(rawValue: errno) ?? .EIO)
        if !mayStay { _ = former.map { rename($0, path) } ?? unlink(path) }
        throw failure
    }

    /// Makes it if there is none; who comes first makes it.
    func begin(_ content: Data) throws {
        let temporary = try write(content)
        defer { unlink(temporary) }
        do { try FirstName.give(path, to: temporary) } catch {
            switch error {
            case .taken: break
            case .unsupported: throw StorageFailure.withoutFirstNames
            case .system(let number): throw POSIXError(.init(rawValue: number) ?? .EIO)
            }
        }
        let directory = open((path as NSString).deletingLastPathComponent, O_RDONLY | O_CLOEXEC)
        defer { close(directory) }
        guard directory >= 0, flush(directory) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    /// Keeps what is there under another name as well, before that is needed: the disk may fail then.
    ///
    /// - Returns: nil if there is none.
    private func secondName(_ name: String) throws -> String? {
        if link(path, name) == 0 { return name }
        // A file system without hard links keeps a copy.
        return errno == ENOENT ? nil : try read().map { try write($0) }
    }

    /// - Returns: Where it is, under a name that no other process uses.
    private func write(_ content: Data) throws -> String {
        let path = path + "." + UUID().uuidString
        let descriptor = OwnedFile.descriptor(path, isNew: true)
        guard descriptor >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(descriptor) }
        let bytes = [UInt8](content)
        guard Foundation.write(descriptor, bytes, bytes.count) == bytes.count, DriveCache.synchronize(descriptor) == 0 else {
            let failure = POSIXError(.init(rawValue: errno) ?? .EIO)
            unlink(path)
            throw failure
        }
        return path
    }

    /// Waits for whoever changes one at this moment, but not for a process that was stopped while it did.
    private static func lock(_ directory: Int32) {
        for _ in 0..<lockAttempts {
            if flock(directory, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR) { return }
            // flock waits for ever or not at all.
            usleep(lockPause)
        }
    }

    private static let lockAttempts = 1_000
    private static let lockPause: UInt32 = 1_000
}

/// A small file is there, or may be, and nobody knows what it says: it is not taken for none.
struct UnreadableFile: Error {
    var failure: StorageFailure
    /// It can be read, and is not what we write.
    var isForeign: Bool

    init(_ name: String, _ error: any Error) {
        isForeign = error is DecodingError
        let reason = isForeign ? "it holds something else" : StorageFailure(error).description
        failure = StorageFailure(code: 0, description: "the file \(name) of the queue's directory cannot be read: \(reason)")
    }
}
