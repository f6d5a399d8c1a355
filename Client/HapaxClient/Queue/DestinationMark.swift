import Foundation
import HapaxModel

/// Remembers beside a queue with which server and write key it was last worked on: who uploads sends all that waits, whose it is or not.
///
/// Only to tell of it, since a key that was changed on purpose looks the same as another project's. Not in the queue's database: it holds for
/// the rows of damaged files as well. One that cannot be read or written is none.
struct DestinationMark: Sendable {
    let path: String

    /// - Returns: Whether there was another one.
    func change(to endpoint: Endpoint) -> Bool {
        // Of the key, only what does not give it away.
        let mark = EventID.derived(name: endpoint.url, key: endpoint.key).description
        let found = FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }
        if found != mark { write(mark) }
        return found.map { EventID($0) != nil && $0 != mark } ?? false
    }

    private func write(_ mark: String) {
        let descriptor = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        // What a crash or a full disk cuts off is no id.
        _ = Array(mark.utf8).withUnsafeBytes { Foundation.write(descriptor, $0.baseAddress, $0.count) }
    }
}
