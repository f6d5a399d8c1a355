import Foundation
import HapaxModel

/// The backoff of each destination, in the directory's file `pause`: all who send there respect it, so that a thousand short-lived commands do
/// not knock a thousand times (I16).
///
/// A hint: one that cannot be read or written is none, and of two who write at once the last one stays.
package struct DestinationPause: Sendable {
    let path: String
    let destination: EventID

    package init(path: String, destination: EventID) { (self.path, self.destination) = (path, destination) }

    package struct Pause: Hashable, Sendable, Codable {
        /// Unix milliseconds.
        package var until: Int64
        /// In a row.
        var failures: Int
    }

    /// - Parameter now: Unix milliseconds: what lies farther ahead than any pause comes from a clock that ran ahead.
    package func current(now: Int64) -> Pause? {
        guard var pause = all[destination.description], pause.until <= now + Int64(RetryPolicy.delivery.cap / .milliseconds(1)) else {
            return nil
        }
        pause.failures = min(max(pause.failures, 0), Self.maximumFailures)
        return pause
    }

    /// Far beyond where the wait grows no more.
    private static let maximumFailures = 1_000

    /// - Parameter pause: nil once the server has answered.
    /// - Returns: Whether that changes anything.
    @discardableResult
    func set(_ pause: Pause?) -> Bool {
        var all = all
        guard all[destination.description] != pause else { return false }
        all[destination.description] = pause
        guard let data = try? JSONEncoder().encode(all) else { return true }
        try? data.write(to: URL(fileURLWithPath: path), options: .atomic)
        return true
    }

    /// The next failure is a first one.
    func forgive() {
        guard var pause = all[destination.description] else { return }
        pause.failures = 0
        set(pause)
    }

    private var all: [String: Pause] {
        FileManager.default.contents(atPath: path).flatMap { try? JSONDecoder().decode([String: Pause].self, from: $0) } ?? [:]
    }
}
