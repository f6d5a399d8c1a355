import ArgumentParser
import Foundation
import HapaxModel

/// What a command says: results on standard output, everything else on standard error.
enum Terminal {
    static func say(_ text: String) {
        write(Array((text + "\n").utf8))
    }

    /// One object on one line, its keys sorted.
    static func say(json fields: [String: PropertyValue]) {
        var writer = JSONWriter()
        writer.object(fields)
        write(writer.bytes + [0x0A])
    }

    /// A text from an event, so that nothing in it commands the terminal or breaks the line.
    static func printable(_ text: String) -> String {
        text.printable
    }

    /// What it quotes, as a server's reason for a refusal, commands no terminal.
    static func complain(_ text: String) {
        note("hapax: " + printable(text) + "\n")
    }

    /// On standard error, as it is. Where nobody can read it there is nobody to tell.
    static func note(_ text: String) {
        _ = attempt(Array(text.utf8), on: STDERR_FILENO)
    }

    /// Ends the process if standard output cannot be written: everything durable was made so before. A reader that is gone is no failure
    /// to speak of.
    static func write(_ bytes: [UInt8]) {
        if let failure = attempt(bytes) { exit(after: failure) }
    }

    /// The same for who has more to do, and is to call ``exit(after:)`` then.
    ///
    /// - Returns: `errno`; nil if it was written.
    static func attempt(_ bytes: [UInt8], on descriptor: Int32 = STDOUT_FILENO) -> Int32? {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Foundation.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN || errno == EWOULDBLOCK {
                // Whoever opened it has set it to non-blocking: what cannot be written yet is waited for.
                var ready = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&ready, 1, -1)
            } else if errno != EINTR {
                return errno
            }
        }
        return nil
    }

    /// - Parameter what: Standard output, or the file that stands for it.
    static func exit(after failure: Int32, _ what: String = "standard output") -> Never {
        if failure == EPIPE { Foundation.exit(ExitCode.signal(SIGPIPE).rawValue) }
        complain("\(what) cannot be written: \(String(cString: strerror(failure)))")
        Foundation.exit(ExitCode.outputFailed.rawValue)
    }
}

extension PropertyValue {
    static func optional(_ id: EventID?) -> PropertyValue { id.map { .string($0.description) } ?? .null }
    static func optional(_ number: Int64?) -> PropertyValue { number.map { .integer($0) } ?? .null }
    static func optional(_ text: String?) -> PropertyValue { text.map { .string($0) } ?? .null }
    static func count(_ number: Int) -> PropertyValue { .integer(Int64(number)) }
}
