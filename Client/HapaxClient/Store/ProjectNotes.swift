import Foundation
import HapaxModel

/// Which project each server and key of the directory is for, as receipts have said. What waits for a key that was rotated is sent with its
/// successor by that: to the same project of the same server, and to no other.
final class ProjectNotes: Sendable {
    fileprivate struct Note: Hashable, Codable {
        var server: String
        var project: String
    }

    private let file: SmallFile
    private let server: String
    private let destination: EventID
    /// What is known to be in the file of the own destination.
    private let known = Locked<Note?>(nil)
    /// Why they could not be read or written last; said when it begins.
    private let failure = Locked<StorageFailure?>(nil)
    private let report: @Sendable (StorageFailure) -> Void

    init(_ directory: QueueDirectory, _ endpoint: Endpoint, report: @escaping @Sendable (StorageFailure) -> Void) {
        self.report = report
        file = SmallFile(path: directory.projectsPath)
        (server, destination) = (endpoint.server, endpoint.destination)
    }

    /// A receipt for the own server and key names its project. What cannot be written is written with a later one.
    func note(_ project: String) {
        let note = Note(server: server, project: project)
        guard known.withLock({ $0 != note }) else { return }
        let isWritten: Void? = reporting {
            try file.replace {
                var notes: [String: Note] = [:]
                do throws(UnreadableFile) { notes = try read() } catch {
                    guard error.isForeign else { throw error }
                    report(error.failure)
                    file.setAside()
                }
                notes[destination.description] = note
                return try JSONEncoder().encode(notes)
            }
        }
        if isWritten != nil { known.withLock { $0 = note } }
    }

    /// All of the directory that are for the same project; none before a receipt has named it, and none while nobody can read them, which is said.
    var destinations: Set<EventID> {
        guard let notes = reporting({ try read() }), let own = notes[destination.description] else { return [] }
        return Set(notes.filter { $0.value == own }.compactMap { EventID(uuidString: $0.key) })
    }

    /// Whether a receipt has named the own project, as far as that can be read.
    var isNamed: Bool { reporting { try read() }.map { $0[destination.description] != nil } ?? true }

    private func read() throws(UnreadableFile) -> [String: Note] { try file.decoded([String: Note].self) ?? [:] }

    /// - Returns: nil if it fails, which is tried again with the next receipt or look.
    private func reporting<Value>(_ work: () throws -> Value) -> Value? {
        do {
            let value = try work()
            failure.withLock { $0 = nil }
            return value
        } catch {
            let now = StorageFailure(error)
            if failure.withLock({ before in (before != now, before = now).0 }) { report(now) }
            return nil
        }
    }
}

extension QueueDirectory {
    /// Why nobody can read which project each key is for, so that what waits under a rotated key waits on; nil if that can be read.
    package var projectsFailure: StorageFailure? {
        do { _ = try SmallFile(path: projectsPath).decoded([String: ProjectNotes.Note].self) } catch { return StorageFailure(error) }
        return nil
    }
}
