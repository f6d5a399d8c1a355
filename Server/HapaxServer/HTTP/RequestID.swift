import HTTPTypes
import HapaxModel

/// A name for one request, in its answer's header and in its refusal, to find it again in a log.
enum RequestID {
    static let field = HTTPField.Name("X-Request-Id") ?? .server

    private static let randomness = Locked(BufferedRandomness())

    /// Sixteen hexadecimal digits.
    static func make() -> String {
        let text = String(randomness.withLock { $0.next() }, radix: 16)
        return String(repeating: "0", count: 16 - text.count) + text
    }
}
