import Foundation
import HapaxModel

/// What people are shown of each server and key that the directory's files are for, in its file `destinations`: a queue file itself names them by
/// a hash only. Of a key it holds the beginning, and of a failure what our own server said (I14).
///
/// Delivery does not depend on it: one that cannot be written is written with the next change.
package final class DestinationNotes: Sendable {
    package struct Note: Hashable, Sendable, Codable {
        /// The server's base URL.
        package var server: String
        /// Of the key: its kind and first characters.
        package var key: String
        /// Why the latest request failed; nil once one has not.
        package var failure: String?
        /// What the server said of it.
        package var detail: String?
        /// When this failure came first, in Unix milliseconds.
        package var since: Int64?

        /// For people.
        package var name: String { "\(server) (\(key))" }
    }

    private let file: SmallFile
    private let destination: String
    /// Of the own destination, as it was last read or written.
    private let known: Locked<Note>

    init(_ directory: QueueDirectory, _ endpoint: Endpoint) {
        file = SmallFile(path: directory.destinationsPath)
        destination = endpoint.destination.description
        let note = Note(server: endpoint.baseURL, key: endpoint.keyBeginning)
        // One that cannot be read now is written over with the first change.
        let earlier = (try? Self.all(in: directory)) ?? [:]
        known = Locked(earlier[destination] ?? note)
        if earlier[destination] == nil { write(note) }
    }

    /// A request has failed, for a reason that lies with the network or the server.
    func failed(_ failure: DeliveryFailure, _ detail: String?, now: Int64) {
        guard failure.isOfServer else { return }
        change { note in
            // Of an event that still waits the server says nothing new.
            guard note.failure != failure.brief || (detail != nil && note.detail != detail) else { return }
            (note.failure, note.detail, note.since) = (failure.brief, detail, now)
        }
    }

    /// The server has accepted something.
    ///
    /// - Parameter isNews: Whether another process may have noted a failure.
    func succeeded(isNews: Bool) {
        change(always: isNews) { ($0.failure, $0.detail, $0.since) = (nil, nil, nil) }
    }

    /// Of all destinations in a directory; none before a client has begun there.
    ///
    /// - Throws: If the file is there and cannot be read.
    /// - Returns: By the ids of the destinations.
    package static func all(in directory: QueueDirectory) throws -> [String: Note] {
        guard let data = try SmallFile(path: directory.destinationsPath).read() else { return [:] }
        return decoded(data)
    }

    /// What cannot be understood is begun anew: each client notes its own destination again.
    private static func decoded(_ data: Data) -> [String: Note] { (try? JSONDecoder().decode([String: Note].self, from: data)) ?? [:] }

    private func change(always: Bool = false, _ change: (inout Note) -> Void) {
        var note = known.withLock { $0 }
        let before = note
        change(&note)
        if note != before || always { write(note) }
    }

    private func write(_ note: Note) {
        let isWritten: Void? = try? file.replace {
            var notes = try file.read().map(Self.decoded) ?? [:]
            notes[destination] = note
            return try JSONEncoder().encode(notes)
        }
        if isWritten != nil { known.withLock { $0 = note } }
    }
}

extension Endpoint {
    /// The server without the path of its route.
    package var baseURL: String { server.hasSuffix("/v1/events") ? String(server.dropLast("/v1/events".count)) : server }

    /// Enough to tell keys apart, and no help to guess one: the kind and four characters, of a short key of somebody's own making fewer.
    package var keyBeginning: String {
        let parts = key.split(separator: "_", maxSplits: 2, omittingEmptySubsequences: false)
        let kind = parts.count == 3 && parts[0] == "hapax" && parts[1].count == 1 ? "hapax_\(parts[1])_" : ""
        let secret = key.dropFirst(kind.count)
        return kind + secret.prefix(min(4, secret.count / 3)) + "…"
    }
}

extension DeliveryFailure {
    /// Whether it lies with the server, or on the way to it.
    var isOfServer: Bool {
        switch self {
        case .transport(.aborted): false
        case .transport, .status, .notAReceipt, .askedToRetry: true
        case .queue, .noBackgroundTime, .consentPending, .notOpen, .shutDown, .cancelled, .outOfTime: false
        }
    }

    /// In a word or two, as `401 unknown_key`.
    var brief: String {
        if case .status(let status, let code?) = self { "\(status) \(code)" } else { "\(self)" }
    }
}
