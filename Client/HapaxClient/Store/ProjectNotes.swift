import Foundation
import HapaxModel

/// Which project each server and key of the directory is for, as receipts have said. What waits for a key that was rotated is sent with its
/// successor by that: to the same project of the same server, and to no other.
final class ProjectNotes: Sendable {
    private struct Note: Hashable, Codable {
        var server: String
        var project: String
    }

    private let file: SmallFile
    private let server: String
    private let destination: EventID
    /// What is known to be in the file of the own destination.
    private let known = Locked<Note?>(nil)

    init(_ directory: QueueDirectory, _ endpoint: Endpoint) {
        file = SmallFile(path: directory.projectsPath)
        (server, destination) = (endpoint.server, endpoint.destination)
    }

    /// A receipt for the own server and key names its project. What cannot be written is written with a later one.
    func note(_ project: String) {
        let note = Note(server: server, project: project)
        guard known.withLock({ $0 != note }) else { return }
        let isWritten: Void? = try? file.replace {
            var notes = try read()
            notes[destination.description] = note
            return try JSONEncoder().encode(notes)
        }
        if isWritten != nil { known.withLock { $0 = note } }
    }

    /// All of the directory that are for the same project; none before a receipt has named it.
    var destinations: Set<EventID> {
        guard let notes = try? read(), let own = notes[destination.description] else { return [] }
        return Set(notes.filter { $0.value == own }.compactMap { EventID(uuidString: $0.key) })
    }

    /// What cannot be understood is begun anew: it holds nothing that receipts do not say again.
    private func read() throws -> [String: Note] {
        guard let data = try file.read() else { return [:] }
        return (try? JSONDecoder().decode([String: Note].self, from: data)) ?? [:]
    }
}
