import ArgumentParser
import Foundation
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
    @Option(help: "A file to which a line with the project and the user is added once it is erased; the store keeps no such list.")
    var record: String?
    @Option(help: "Such a file: erases its users again, after a backup from before was restored.") var replay: String?
    @Flag(help: "List the erasures.") var log = false
    var changes: Bool { yes }

    private struct Line: Codable {
        var project: String
        var user: String
    }

    func validate() throws {
        let isNamed = project != nil && user != nil
        let isAlone = project == nil && user == nil && record == nil
        guard log ? isAlone && replay == nil && !yes : replay == nil ? isNamed : isAlone else {
            throw ValidationError("name --project and --user, or a file to --replay, or ask for the --log of all, and for nothing else.")
        }
    }

    func run(on store: CommandStore, now: Int64) async throws -> CommandOutput {
        if log { return try await list(store) }
        let lines = try replay.map { try Self.lines($0) } ?? [Line(project: project ?? "", user: user ?? "")]
        if !yes {
            var texts: [String] = []
            for line in lines {
                let preview = try await store.erasures.preview(project: line.project, user: line.user)
                let span = preview.first.flatMap { first in
                    preview.last.map { " received from \(Self.instant(first)) to \(Self.instant($0))" }
                }
                texts.append("\(Self.events(preview.rows))\(span ?? "")")
            }
            return CommandOutput(
                text: texts.joined(separator: "\n"), note: "Nothing has been changed: --yes erases them, and cannot be taken back.")
        }
        // Opened before anything is erased: what cannot be recorded is not erased.
        let file = try record.map { try Self.appending(to: $0) }
        var outputs: [CommandOutput] = []
        for line in lines {
            outputs.append(Self.done(try await erase(line, store)))
            try file?.write(contentsOf: JSONEncoder().encode(line) + Data("\n".utf8))
        }
        try file?.synchronize()
        return CommandOutput(
            text: outputs.map(\.text).joined(separator: "\n"), note: outputs.compactMap(\.note).joined(separator: "\n"))
    }

    private func list(_ store: CommandStore) async throws -> CommandOutput {
        let names = Dictionary(try await store.registry.contents().projects.map { ($0.id, $0.name) }) { $1 }
        let rows = try await store.erasures.list().map { erasure in
            [
                "\(erasure.id)", names[erasure.projectID] ?? "", Self.instant(erasure.askedAt),
                erasure.doneAt.map(Self.instant) ?? "", "\(erasure.rows)",
            ]
        }
        return CommandOutput(text: AccessCommands.table(["ID", "PROJECT", "ASKED", "DONE", "EVENTS"], rows))
    }

    private func erase(_ line: Line, _ store: CommandStore) async throws -> Erasures.Erasure {
        let erasure = try await store.erasures.add(project: line.project, user: line.user)
        while true {
            if let done = try await store.erasures.perform(erasure, progress: { store.note("\(Self.events($0))…") }) { return done }
            // A server has begun it, or is closing a day.
            try await Task.sleep(for: .milliseconds(200))
            if let done = try await store.erasures.list(after: erasure.id - 1).first(where: { $0.id == erasure.id && $0.doneAt != nil }) {
                return done
            }
        }
    }

    private static func lines(_ path: String) throws -> [Line] {
        guard let data = FileManager.default.contents(atPath: path) else {
            throw Registry.Problem.invalid(parameter: "--replay", "names a file that cannot be read")
        }
        return try data.split(separator: UInt8(ascii: "\n")).enumerated().map { number, line in
            guard let line = try? JSONDecoder().decode(Line.self, from: line) else {
                throw Registry.Problem.invalid(parameter: "--replay", #"has no {"project": …, "user": …} in line \#(number + 1)"#)
            }
            return line
        }
    }

    private static func appending(to path: String) throws -> FileHandle {
        let files = FileManager.default
        if !files.fileExists(atPath: path) { _ = files.createFile(atPath: path, contents: nil, attributes: [.posixPermissions: 0o600]) }
        guard let file = FileHandle(forUpdatingAtPath: path) else {
            throw Registry.Problem.invalid(parameter: "--record", "names a file that cannot be written to")
        }
        try file.seekToEnd()
        return file
    }

    private static func done(_ erasure: Erasures.Erasure) -> CommandOutput {
        let hint = erasure.rows == 0 ? " No event was of this user: look whether the id is right." : ""
        return CommandOutput(text: "\(events(erasure.rows)) erased", note: "This is erasure \(erasure.id).\(hint)")
    }

    private static func events(_ count: Int64) -> String { count == 1 ? "1 event" : "\(count) events" }

    private static func instant(_ milliseconds: Int64) -> String { Timestamp(clampingUnixMilliseconds: milliseconds).description }
}
