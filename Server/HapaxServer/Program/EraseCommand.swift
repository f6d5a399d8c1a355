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
    @Flag(
        help: """
            Also the ids that the user had before logging in, as `$identify` says, unless they are somebody else's, too. A sender with a write \
            key can claim any: look first.
            """)
    var linked = false
    @Flag(help: "Also refuse the user's later events, which are then dead letters of the clients. Takes ten seconds more.") var block =
        false
    @Flag(help: "Take events of a user again who is blocked; nothing else.") var unblock = false
    @Flag(help: "Erase it. This cannot be taken back.") var yes = false
    @Option(
        help: """
            A file to which a line with the project and the user is added before it is erased, or once it is unblocked; the store keeps no such \
            list.
            """)
    var record: String?
    @Option(help: "Such a file: erases, blocks and unblocks its users again, after a backup from before was restored.") var replay: String?
    @Flag(help: "List the erasures.") var log = false
    var changes: Bool { yes || unblock }

    private struct Line: Codable {
        var project: String
        var user: String
        /// As of when, in Unix milliseconds: who came again later stays.
        var at: Int64?
        /// Whether the user's later events are refused.
        var block: Bool?
        /// The user's events are taken again, and nothing is erased.
        var unblock: Bool?
    }

    func validate() throws {
        let isNamed = project != nil && user != nil
        let isAlone = project == nil && user == nil && record == nil
        let isPlain = !linked && !block
        guard log || unblock || replay != nil ? isPlain : true,
            log ? isAlone && replay == nil && !yes && !unblock : replay == nil ? isNamed : isAlone,
            !unblock || (replay == nil && !yes)
        else {
            throw ValidationError(
                "name --project and --user, or a file to --replay, or ask for the --log of all, and for nothing else. --unblock goes with --project, --user and --record alone."
            )
        }
    }

    func run(on store: CommandStore) async throws -> CommandOutput {
        if log { return try await list(store) }
        let now = store.admin.now
        if unblock {
            let line = Line(project: project ?? "", user: user ?? "", at: now, unblock: true)
            _ = try await store.admin.perform(.unblock(project: line.project, user: line.user), saysYes: false)
            // Afterwards: a line too many would take events again of somebody who is still blocked.
            if let record { try Self.add(line, to: record, otherwise: "the user is unblocked all the same") }
            return CommandOutput(
                text: "", note: "Events of this user are taken again, within five seconds; ids that were blocked with --linked are not.")
        }
        guard let replay else {
            return try await erase(Line(project: project ?? "", user: user ?? "", at: now, block: block ? true : nil), store)
        }
        var (texts, failures) = ([String](), [String]())
        for (number, line) in try Self.lines(replay).enumerated() where !line.isEmpty {
            do {
                guard let line = try? JSONDecoder().decode(Line.self, from: line) else {
                    throw Registry.Problem.invalid(parameter: "it", #"is no {"project": …, "user": …}"#)
                }
                texts.append("line \(number + 1): \(try await replayed(line, store))")
            } catch let problem as Registry.Problem {
                failures.append("line \(number + 1): \(problem.text)")
            }
        }
        if !failures.isEmpty {
            if !texts.isEmpty { store.note(texts.joined(separator: "\n")) }
            throw Registry.Problem.invalid(parameter: "--replay", "could not be done in full; \(failures.joined(separator: "; "))")
        }
        return CommandOutput(text: texts.joined(separator: "\n"), note: yes ? nil : Self.nothing)
    }

    /// What has become of a line, without whom it is about.
    private func replayed(_ line: Line, _ store: CommandStore) async throws -> String {
        guard line.unblock == true else {
            let text = try await erase(line, store).text
            return line.block == true ? "\(text), \(yes ? "blocked" : "to be blocked")" : text
        }
        guard yes else { return "to be unblocked" }
        do {
            _ = try await store.admin.perform(.unblock(project: line.project, user: line.user), saysYes: false)
            return "unblocked"
        } catch let problem as Registry.Problem where problem == Registry.notBlocked { return "not blocked" }
    }

    private static let nothing = "Nothing has been changed: --yes erases them, and cannot be taken back."

    private func erase(_ line: Line, _ store: CommandStore) async throws -> CommandOutput {
        let (isReplayed, blocks) = (replay != nil, line.block == true)
        if !yes, !linked, !isReplayed { await hint(line, store) }
        var admin = store.admin
        // Before it is erased, so that nobody is erased without a line; a line too many does no harm.
        admin.willErase = { user in
            guard let record else { return }
            try Self.add(
                Line(project: line.project, user: user, at: line.at, block: line.block), to: record, otherwise: "nothing was erased")
        }
        let verb = AdminVerb.erase(
            project: line.project, user: line.user, linked: linked, blocks: blocks, upTo: isReplayed && !blocks ? line.at : nil)
        switch try await admin.perform(verb, saysYes: yes) {
        case .wouldErase(let preview, let links, _):
            var lines = [Self.text(preview)]
            lines += links.map {
                "\($0.user)  \($0.isShared ? "stays: it is somebody else's, too" : "\(Self.events($0.rows)), besides")"
            }
            if blocks, !isReplayed { lines.append("Later events of this user would be refused.") }
            if linked, links.isEmpty { lines.append("No $identify event of this user names another id.") }
            return CommandOutput(text: lines.joined(separator: "\n"), note: Self.nothing)
        case .erasing(let begun, let links):
            if blocks { store.note("In ten seconds no server takes events of this user any more; then the rest goes…") }
            var outputs: [CommandOutput] = []
            for erasure in begun {
                outputs.append(Self.done(try await admin.finished(erasure, progress: { store.note("\(Self.events($0))…") })))
            }
            let stayed = links.contains(where: \.isShared) ? ["Ids that are somebody else's, too, have stayed."] : []
            return CommandOutput(
                text: outputs.map(\.text).joined(separator: "\n"), note: (outputs.compactMap(\.note) + stayed).joined(separator: "\n"))
        default: return CommandOutput(text: "")
        }
    }

    /// Without it the rest is printed all the same.
    private func hint(_ line: Line, _ store: CommandStore) async {
        do {
            guard try await store.admin.links(project: line.project, user: line.user).contains(where: { !$0.isShared }) else { return }
            store.note("There are ids from before the user logged in, which nothing ties to the user afterwards: see --linked.")
        } catch is Registry.Problem {
            // The trial itself says it.
        } catch {
            store.note("Whether this user has other ids could not be found out: \(error)")
        }
    }

    private func list(_ store: CommandStore) async throws -> CommandOutput {
        let names = Dictionary(try await store.admin.contents().projects.map { ($0.id, $0.name) }) { $1 }
        var list: [Erasures.Erasure] = []
        while true {
            let part = try await store.admin.erasures(after: list.last?.id ?? 0)
            list += part
            if part.count < ServerLimits.erasures { break }
        }
        let rows = list.map { erasure in
            [
                "\(erasure.id)", names[erasure.projectID] ?? "", Self.instant(erasure.askedAt),
                erasure.doneAt.map(Self.instant) ?? "", "\(erasure.rows)",
            ]
        }
        return CommandOutput(text: AccessCommands.table(["ID", "PROJECT", "ASKED", "DONE", "EVENTS"], rows))
    }

    private static func lines(_ path: String) throws -> [Data] {
        guard let data = FileManager.default.contents(atPath: path) else {
            throw Registry.Problem.invalid(parameter: "--replay", "names a file that cannot be read")
        }
        return data.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { line in
            line.allSatisfy { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\r") } ? Data() : line
        }
    }

    /// On the disk on return. A line that was torn before is ended first.
    ///
    /// - Parameter otherwise: What has happened if it cannot be written.
    private static func add(_ line: Line, to path: String, otherwise: String) throws {
        let descriptor = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0o600)
        defer { if descriptor >= 0 { close(descriptor) } }
        var last = UInt8(ascii: "\n")
        let end = descriptor < 0 ? 0 : lseek(descriptor, 0, SEEK_END)
        let isKnown = end <= 0 || pread(descriptor, &last, 1, end - 1) == 1
        let torn = last == UInt8(ascii: "\n") ? "" : "\n"
        let bytes = Array(torn.utf8) + [UInt8](try JSONEncoder().encode(line)) + Array("\n".utf8)
        guard descriptor >= 0, isKnown, write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0 else {
            throw Registry.Problem.invalid(parameter: "--record", "names a file that cannot be written to; \(otherwise)")
        }
    }

    private static func done(_ erasure: Erasures.Erasure) -> CommandOutput {
        let hint = erasure.rows == 0 ? " No event was of this user: look whether the id is right." : ""
        return CommandOutput(text: "\(events(erasure.rows)) erased", note: "This is erasure \(erasure.id).\(hint)")
    }

    static func events(_ count: Int64) -> String { count == 1 ? "1 event" : "\(count) events" }

    /// How many, and when they were received.
    static func text(_ preview: Erasures.Preview) -> String {
        let span = preview.first.flatMap { first in
            preview.last.map { " received from \(instant(first)) to \(instant($0))" }
        }
        return "\(events(preview.rows))\(span ?? "")"
    }

    private static func instant(_ milliseconds: Int64) -> String { Timestamp(clampingUnixMilliseconds: milliseconds).description }
}
