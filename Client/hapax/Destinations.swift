import Foundation
import HapaxClient
import HapaxModel

/// The servers and keys that a queue's files are for, as people are shown them, and how their latest request ended.
struct Destinations {
    /// By their ids.
    private let notes: [String: DestinationNotes.Note]
    private let directory: QueueDirectory

    /// What cannot be read is said, and then each is named by its id.
    init(in directory: QueueDirectory) {
        self.directory = directory
        do { notes = try DestinationNotes.all(in: directory) } catch {
            Terminal.complain("which servers and keys the files are for cannot be read: \(StorageFailure(error))")
            notes = [:]
        }
    }

    func note(_ id: EventID) -> DestinationNotes.Note? { notes["\(id)"] }

    /// When a client asks there again by itself; nil where none is to wait, in Unix milliseconds.
    func nextTry(_ id: EventID) -> Int64? {
        let now = Date().unixMilliseconds
        let pause = DestinationPause(path: directory.pausePath, destination: id).current(now: now)
        return pause.flatMap { $0.until > now ? $0.until : nil }
    }

    /// As `https://events.example.org (hapax_w_AhyY…)`, with the id where another key begins alike; the id alone where a client of an earlier version
    /// began the file.
    func name(_ id: EventID?) -> String {
        guard let id, let name = note(id)?.name else { return id.map { "\($0)" } ?? "unknown" }
        return Terminal.printable(name) + (notes.values.count { $0.name == name } > 1 ? ", id \(id)" : "")
    }

    /// With the ids, by which a command takes them.
    func names(_ ids: Set<EventID>) -> String {
        ids.map { id in note(id).map { "\(Terminal.printable($0.name)), id \(id)" } ?? "id \(id)" }.sorted().joined(separator: "; ")
    }

    /// As `…: 401 unknown_key, next try 23:38`, and what the server said on a line of its own.
    ///
    /// - Parameter waits: Whether anything is to be sent there; else nobody tries again.
    func lines(_ id: EventID, waits: Bool) -> [String] {
        guard let note = note(id), let failure = note.failure else { return [name(id)] }
        guard waits else { return ["\(name(id)): nothing waits; the latest request ended with \(Terminal.printable(failure))"] }
        let next = nextTry(id).map { "next try \(Self.clockTime($0))" } ?? "next try with the next upload"
        let since = note.since.map { ["fails since \(Date(unixMilliseconds: $0).formatted(.iso8601))"] } ?? []
        let said = note.detail.map { ["the server says: \(Terminal.printable($0))"] } ?? []
        return ["\(name(id)): \(Terminal.printable(failure)), \(next)"] + said + since
    }

    /// - Parameter text: A name of ``name(_:)``, a server's URL, the beginning of a key as it is shown, or an id.
    func matching(_ text: String, among ids: Set<EventID>) -> Set<EventID> {
        // A variable that was not set names nothing, nor does a key of which nothing is shown.
        guard !text.isEmpty else { return [] }
        return ids.filter { id in
            let note = note(id)
            return ["\(id)", note?.name, note?.server, note?.key, note.map { String($0.key.dropLast()) }].contains(text)
        }
    }

    /// By the clock of this machine.
    private static func clockTime(_ time: Int64) -> String {
        let parts = Calendar.current.dateComponents([.hour, .minute], from: Date(unixMilliseconds: time))
        return [parts.hour, parts.minute].map { String(format: "%02d", $0 ?? 0) }.joined(separator: ":")
    }
}
