import Foundation
import HapaxModel

/// A file descriptor that is closed when the last reference goes, and on exec.
package final class Descriptor: Sendable {
    package let number: Int32

    package struct Failure: Error, Hashable, CustomStringConvertible {
        package let call: String
        package let code: Int32
        package var description: String { "\(call): \(String(cString: strerror(code)))" }

        package init(_ call: String, _ code: Int32 = errno) {
            self.call = call
            self.code = code
        }
    }

    /// Held while a descriptor is made and flagged, and while a child is started, so that no child inherits one by accident: the calls
    /// that do both at once (`pipe2`, `accept4`) are not in reach of Swift.
    static let inheritance = Locked(())

    /// Takes ownership of what `make` returns.
    init(_ make: () -> Int32) {
        number = Self.inheritance.withLock { _ in
            let number = make()
            _ = fcntl(number, F_SETFD, FD_CLOEXEC)
            return number
        }
    }

    /// A second descriptor for the same open file, this one closed on exec.
    package static func duplicate(_ number: Int32) -> Descriptor {
        Descriptor { dup(number) }
    }

    /// Takes ownership; closed on exec already.
    init(_ number: Int32) { self.number = number }

    deinit { if number >= 0 { close(number) } }

    package static func pipe() throws -> (reading: Descriptor, writing: Descriptor) {
        var ends: [Int32] = [-1, -1]
        let status = inheritance.withLock { _ in
            let status = Foundation.pipe(&ends)
            for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            return status
        }
        guard status == 0 else { throw Failure("pipe") }
        return (Descriptor(ends[0]), Descriptor(ends[1]))
    }

    package static func opened(_ path: String, _ flags: Int32) throws -> Descriptor {
        let number = open(path, flags | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw Failure("open") }
        return Descriptor(number)
    }

    package func write(_ text: String) throws {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Foundation.write(number, $0.baseAddress, $0.count) }
            if count < 0 {
                if errno == EINTR { continue }
                throw Failure("write")
            }
            rest = rest.dropFirst(count)
        }
    }

    /// - Returns: What could be read, empty at the end.
    package func read(upTo maximum: Int = 64 * 1024) throws -> [UInt8] {
        while true {
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: maximum) { buffer, initialized in
                count = Foundation.read(number, buffer.baseAddress, maximum)
                initialized = max(count, 0)
            }
            if count >= 0 { return bytes }
            guard errno == EINTR else { throw Failure("read") }
        }
    }
}
