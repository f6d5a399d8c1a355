import ArgumentParser
import HapaxModel

struct EraseCommand: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "erase", abstract: "Forgets a user: tells what would go, and with --yes erases it.",
        discussion: """
            The events that the project has of this distinct_id up to now become tombstones: their ids stay, so that they cannot return, and \
            nothing else. Figures of closed days stay. Works while servers run; the file of the embedded store belongs to a running server, which \
            is asked over HTTP (docs/operations.md).
            """)
    @OptionGroup var settings: StoreFlags
    @Option(help: "The project.") var project: String?
    @Option(help: "The user's distinct_id.") var user: String?
    @Flag(help: "Erase it. This cannot be taken back.") var yes = false
    @Flag(help: "List the erasures.") var log = false
    var changes: Bool { yes }

    func validate() throws {
        guard log ? project == nil && user == nil && !yes : project != nil && user != nil else {
            throw ValidationError("name --project and --user, or ask for the --log of all, and for nothing else.")
        }
    }

    func run(on store: CommandStore, now: Int64) async throws -> CommandOutput {
        guard let project, let user else {
            let names = Dictionary(try await store.registry.contents().projects.map { ($0.id, $0.name) }) { $1 }
            let rows = try await store.erasures.list().map { erasure in
                [
                    "\(erasure.id)", names[erasure.projectID] ?? "", Self.instant(erasure.askedAt),
                    erasure.doneAt.map(Self.instant) ?? "", "\(erasure.rows)",
                ]
            }
            return CommandOutput(text: AccessCommands.table(["ID", "PROJECT", "ASKED", "DONE", "EVENTS"], rows))
        }
        if !yes {
            let preview = try await store.erasures.preview(project: project, user: user)
            let span = preview.first.flatMap { first in preview.last.map { " received from \(Self.instant(first)) to \(Self.instant($0))" }
            }
            return CommandOutput(
                text: "\(Self.events(preview.rows))\(span ?? "")",
                note: "Nothing has been changed: --yes erases them, and cannot be taken back.")
        }
        let erasure = try await store.erasures.add(project: project, user: user)
        while true {
            if let done = try await store.erasures.perform(erasure, progress: { store.note("\(Self.events($0))…") }) {
                return Self.done(done)
            }
            // A server has begun it, or is closing a day.
            try await Task.sleep(for: .milliseconds(200))
            if let done = try await store.erasures.list(after: erasure.id - 1).first(where: { $0.id == erasure.id && $0.doneAt != nil }) {
                return Self.done(done)
            }
        }
    }

    private static func done(_ erasure: Erasures.Erasure) -> CommandOutput {
        let hint = erasure.rows == 0 ? " No event was of this user: look whether the id is right." : ""
        return CommandOutput(text: "\(events(erasure.rows)) erased", note: "This is erasure \(erasure.id).\(hint)")
    }

    private static func events(_ count: Int64) -> String { count == 1 ? "1 event" : "\(count) events" }

    private static func instant(_ milliseconds: Int64) -> String { Timestamp(clampingUnixMilliseconds: milliseconds).description }
}
