import ArgumentParser
import Foundation
import HapaxModel

/// A command that works on the store itself, whether a server runs or not.
protocol StoreCommand: ParsableCommand {
    var settings: StoreFlags { get }
    /// Whether it changes something.
    var changes: Bool { get }
    /// Whether it may be the first one to use a store.
    var creates: Bool { get }

    /// - Returns: What is printed to standard output, and to standard error.
    func run(on store: CommandStore) async throws -> CommandOutput
}

extension StoreCommand {
    var creates: Bool { false }
}

/// What a command works on.
struct CommandStore: Sendable {
    var admin: Admin
    /// Tells people how far it is.
    var note: @Sendable (String) -> Void
}

struct CommandOutput: Sendable {
    /// For programs: a list, or a key.
    var text: String
    /// For people.
    var note: String?
}

/// Which store, in the same settings as the server's.
struct StoreFlags: ParsableArguments {
    @Option(help: .setting(.store)) var store: String?
    @Option(help: .setting(.storeAdmin)) var storeAdmin: String?
    @Option(help: .setting(.config)) var config: String?

    var flags: [String: String] {
        [ServerSetting.store.name: store, ServerSetting.storeAdmin.name: storeAdmin, ServerSetting.config.name: config]
            .compactMapValues { $0 }
    }
}

enum AccessCommands {
    /// Days, as in `30d` or `30`, or hours, as in `12h`.
    static func time(_ text: String) -> Duration? {
        let unit: Int64 = text.hasSuffix("h") ? 3_600 : 86_400
        let digits = text.hasSuffix("h") || text.hasSuffix("d") ? text.dropLast() : text[...]
        guard let count = Int64(digits), (0...876_000).contains(count), count * unit <= 876_000 * 3_600 else { return nil }
        return .seconds(count * unit)
    }

    /// Columns under their titles.
    static func table(_ titles: [String], _ rows: [[String]]) -> String {
        let widths = titles.indices.map { column in ([titles] + rows).map { $0[column].count }.max() ?? 0 }
        return ([titles] + rows).map { row in
            zip(row, widths).map { $0.padding(toLength: max($1, $0.count), withPad: " ", startingAt: 0) }.joined(separator: "  ")
                .replacing(/\ +$/, with: "")
        }.joined(separator: "\n")
    }

    static func json(_ members: (inout JSONWriter) -> Void) -> String {
        var writer = JSONWriter()
        writer.object(members)
        return String(decoding: writer.bytes, as: UTF8.self)
    }
}

struct ProjectsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "projects", abstract: "Lists, adds, sets and removes projects.",
        discussion: """
            Works on the store itself, whether a server runs or not; servers notice a change within seconds. The file of the embedded store can \
            be changed only while no server runs: a running one is asked over HTTP (docs/operations.md).
            """,
        subcommands: [List.self, Add.self, Set.self, Remove.self], defaultSubcommand: List.self)

    struct List: StoreCommand {
        static let configuration = CommandConfiguration(abstract: "Lists the projects (the default).")
        @OptionGroup var settings: StoreFlags
        @Flag(help: "As JSON.") var json = false
        var changes: Bool { false }

        func run(on store: CommandStore) async throws -> CommandOutput {
            let contents = try await store.admin.contents()
            if json {
                var derived: [Int32: [Registry.DerivedEvents]] = [:]
                for project in contents.projects { derived[project.id] = try await store.admin.derivedEvents(of: project) }
                return CommandOutput(text: AccessCommands.json { [derived] in $0.members(ofProjects: contents, derived) })
            }
            let now = store.admin.now
            let rows = contents.projects.map { project in
                [
                    project.name, project.publicID, project.derivedIDs.rawValue, project.eventsPerSecond.map { "\($0)/s" } ?? "",
                    project.zoneText(at: now),
                    "\(contents.keys.count { $0.projectID == project.id && $0.state(at: now) == .active })",
                ]
            }
            return CommandOutput(text: AccessCommands.table(["PROJECT", "PUBLIC ID", "DERIVED IDS", "LIMIT", "TIME ZONE", "KEYS"], rows))
        }
    }

    struct Add: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Adds a project, with a write key and a read key.",
            discussion: "Prints a line for each key: its kind and the key, which is shown only now.")
        @OptionGroup var settings: StoreFlags
        @Argument(help: "Its name.") var name: String
        @Flag(name: .customLong("without-keys"), help: "Make no keys.") var isWithoutKeys = false
        @Option(help: "Where its days begin, from the first one on, such as Europe/Berlin. Default: UTC.") var timeZone: String?
        var changes: Bool { true }
        var creates: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            _ = try await store.admin.perform(.addProject(name: name, timeZone: timeZone), saysYes: false)
            var lines: [String] = []
            for kind in isWithoutKeys ? [] : [KeyKind.write, .read] {
                guard case .key(_, let secret?, _) = try await store.admin.perform(.addKey(kind, project: name), saysYes: false) else {
                    continue
                }
                lines.append("\(kind.rawValue) \(secret)")
            }
            let keys =
                lines.isEmpty
                ? ""
                : " Its keys are shown only now: the write key is for apps, the read key for people. hapax-server keys add admin makes one for you."
            return CommandOutput(
                text: lines.joined(separator: "\n"), note: "The project \(name) has been added.\(keys)")
        }
    }

    struct Set: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Sets what holds for a project.",
            discussion: """
                --derived-ids server tells first what came with write keys in the last 14 days and would be refused; if there was anything, it \
                changes nothing, and exits with 1. With --yes it does not look.
                """)
        @OptionGroup var settings: StoreFlags
        @Argument(help: "Its name.") var name: String
        @Option(
            name: .customLong("derived-ids"), help: "Whose derived ids it takes: any sender's, or only those that come with a server key.")
        var derivedIDs: Registry.DerivedIDs?
        @Option(help: "Events a second that each server takes of it; 0 for no limit.") var limit: Int?
        @Option(help: "Where its days begin, such as Europe/Berlin: from two days later on, once a server has seen the project.")
        var timeZone: String?
        @Flag(help: "Set it although events would be refused.") var yes = false
        var changes: Bool { true }

        func validate() throws {
            if derivedIDs == nil, limit == nil, timeZone == nil {
                throw ValidationError("name what to set: --derived-ids, --limit, --time-zone.")
            }
        }

        func run(on store: CommandStore) async throws -> CommandOutput {
            let verb = AdminVerb.setProject(name: name, derivedIDs: derivedIDs, eventsPerSecond: limit, timeZone: timeZone)
            guard case .project(let project) = try await store.admin.perform(verb, saysYes: yes) else { return CommandOutput(text: "") }
            let rate = project.eventsPerSecond.map { "at most \($0) a second at each server" } ?? "as many as can be"
            return CommandOutput(
                text: "",
                note:
                    "\(project.name) takes derived ids of: \(project.derivedIDs.rawValue); events: \(rate); days of \(project.zoneText(at: store.admin.now))"
            )
        }
    }
}

extension ProjectsCommand {
    struct Remove: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Removes a project: tells what would go, and with --yes removes its events, figures and keys.",
            discussion: """
                Its keys end first; ten seconds later, when no server takes them any more, all that it has goes, in short transactions. Clients that \
                still send get 401 and keep their events. An interrupted removal goes on at the next server or command.
                """)
        @OptionGroup var settings: StoreFlags
        @Argument(help: "Its name.") var name: String
        @Flag(help: "Remove it. This cannot be taken back.") var yes = false
        var changes: Bool { yes }

        func run(on store: CommandStore) async throws -> CommandOutput {
            switch try await store.admin.perform(.removeProject(name: name), saysYes: yes) {
            case .wouldErase(let preview, _, let keys):
                return CommandOutput(
                    text: "\(EraseCommand.text(preview)); \(keys == 1 ? "1 key works" : "\(keys ?? 0) keys work")",
                    note: "Nothing has been changed: --yes removes them, and cannot be taken back.")
            case .erasing(let begun, _):
                store.note("Its keys have ended. In ten seconds no server takes them any more; then the events go…")
                var rows: Int64 = 0
                for erasure in begun { rows += try await store.admin.finished(erasure, progress: { store.note("\($0) rows…") }).rows }
                return CommandOutput(text: "\(EraseCommand.events(rows)) removed", note: "The project \(name) has been removed.")
            default: return CommandOutput(text: "")
            }
        }
    }
}

extension Registry.Project {
    fileprivate func zoneText(at now: Int64) -> String {
        guard let timeZone else { return "UTC" }
        guard let from = timeZoneFrom, from.daysSince1970 > Int32(clamping: now / 86_400_000) else { return timeZone }
        return "\(timeZone) from \(from) on"
    }
}

extension Registry.DerivedIDs: ExpressibleByArgument {}
extension KeyKind: ExpressibleByArgument {}

struct KeysCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys", abstract: "Lists, adds, changes, rotates and revokes keys.",
        discussion: ProjectsCommand.configuration.discussion,
        subcommands: [List.self, Add.self, SetOrigins.self, Rotate.self, Revoke.self],
        defaultSubcommand: List.self)

    struct List: StoreCommand {
        static let configuration = CommandConfiguration(abstract: "Lists the keys (the default). The keys themselves are kept nowhere.")
        @OptionGroup var settings: StoreFlags
        @Flag(help: "As JSON.") var json = false
        var changes: Bool { false }

        func run(on store: CommandStore) async throws -> CommandOutput {
            let (contents, now) = (try await store.admin.contents(), store.admin.now)
            if json {
                return CommandOutput(
                    text: AccessCommands.json {
                        $0.member("keys", list: contents.keys) { writer, key in
                            writer.object { $0.members(of: key, in: contents, now: now) }
                        }
                    })
            }
            let rows = contents.keys.map { key in
                [
                    "\(key.id)", key.isReadOnly ? "admin, reads" : key.kind.rawValue,
                    contents.projects.first { $0.id == key.projectID }?.name ?? "", key.beginning + "…",
                    key.state(at: now).rawValue, KeysCommand.day(key.createdAt), key.expiresAt.map(KeysCommand.day) ?? "",
                    key.lastUsed?.description ?? "", ([key.name] + key.origins.texts).filter { !$0.isEmpty }.joined(separator: " "),
                ]
            }
            return CommandOutput(
                text: AccessCommands.table(
                    ["ID", "KIND", "PROJECT", "BEGINS", "STATE", "MADE", "EXPIRES", "LAST USED", "NAME"], rows))
        }
    }

    struct Add: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Makes a key and prints it.", discussion: "It is shown only now: the store keeps its SHA-256.")
        @OptionGroup var settings: StoreFlags
        @Argument(help: "write (for apps), server (for services), browser (for pages), read or admin.") var kind: KeyKind
        var creates: Bool { kind == .admin }
        @Option(help: "The project. An admin key without it is for all.") var project: String?
        @Flag(help: "For an admin key that sees everything and changes nothing, as for monitoring.") var readOnly = false
        @Option(
            name: .customLong("origin"),
            help: "Of a browser key: whose pages may use it, as https://shop.example or https://*.shop.example; once for each.")
        var origins: [String] = []
        @Option(
            help: ArgumentHelp(
                "A token that senders have already, as another vendor's, for a write or browser key: then nothing is made.",
                valueName: "token"))
        var value: String?
        @Option(help: "What it is for, to tell it from others.") var name = ""
        @Option(help: "When it ends: 90d, 12h. Without this it does not end.", transform: KeysCommand.end) var expires: Duration?
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            let verb = AdminVerb.addKey(
                kind, project: project, name: name, isReadOnly: readOnly, origins: origins, value: value, lasts: expires)
            guard case .key(let key, let secret?, _) = try await store.admin.perform(verb, saysYes: false) else {
                return CommandOutput(text: "")
            }
            return CommandOutput(text: secret, note: "This is key \(key.id); it is shown only now.\(KeysCommand.end(of: key))")
        }
    }

    struct SetOrigins: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "set", abstract: "Says anew whose pages may use a browser key: at every server within five seconds.")
        @OptionGroup var settings: StoreFlags
        @Argument(help: "Its number.", transform: KeysCommand.number) var id: Int32
        @Option(name: .customLong("origin"), help: "As of keys add; those that are not named go.") var origins: [String] = []
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            guard case .key(let key, _, _) = try await store.admin.perform(.setKey(id, origins: origins), saysYes: false) else {
                return CommandOutput(text: "")
            }
            return CommandOutput(text: "", note: "Key \(key.id) is for pages of \(key.origins.texts.joined(separator: ", ")).")
        }
    }

    struct Rotate: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Makes a key in the place of another one, which goes on for a while, and prints it.")
        @OptionGroup var settings: StoreFlags
        @Argument(help: "The number of the old key.", transform: KeysCommand.number) var id: Int32
        @Option(help: "How long the old key still works: 30d, 12h, 0.", transform: KeysCommand.time) var grace: Duration?
        @Option(
            help: "When the new key ends: 90d, 12h. Without this it lasts as long as the old one was to, if that was to end.",
            transform: KeysCommand.end)
        var expires: Duration?
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            let verb = AdminVerb.rotateKey(id, grace: grace, lasts: expires)
            guard case .key(let key, let secret?, let old?) = try await store.admin.perform(verb, saysYes: false) else {
                return CommandOutput(text: "")
            }
            return CommandOutput(
                text: secret,
                note: "This is key \(key.id); it is shown only now.\(KeysCommand.end(of: key))"
                    + (old.expiresAt.map { " Key \(old.id) works until \(Timestamp(clampingUnixMilliseconds: $0))." } ?? ""))
        }
    }

    struct Revoke: StoreCommand {
        static let configuration = CommandConfiguration(abstract: "Ends a key: within five seconds no server takes it any more.")
        @OptionGroup var settings: StoreFlags
        @Argument(help: "Its number.", transform: KeysCommand.number) var id: Int32
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            guard case .key(let key, _, _) = try await store.admin.perform(.revokeKey(id), saysYes: false) else {
                return CommandOutput(text: "")
            }
            return CommandOutput(text: "", note: "Key \(key.id) (\(key.beginning)…) has been revoked.")
        }
    }

    @Sendable private static func number(_ text: String) throws -> Int32 {
        guard let number = Int32(text), "\(number)" == text else { throw ValidationError("must be a number as hapax-server keys lists it") }
        return number
    }

    private static func end(of key: Registry.Key) -> String {
        key.expiresAt.map { " It ends at \(Timestamp(clampingUnixMilliseconds: $0))." } ?? ""
    }

    private static func day(_ milliseconds: Int64) -> String {
        String(Timestamp(clampingUnixMilliseconds: milliseconds).description.prefix(10))
    }

    @Sendable private static func time(_ text: String) throws -> Duration {
        guard let time = AccessCommands.time(text) else {
            throw ValidationError("must be days or hours, as in 30d or 12h, and at most a hundred years")
        }
        return time
    }

    @Sendable private static func end(_ text: String) throws -> Duration {
        let time = try time(text)
        guard time > .zero else { throw ValidationError("must be above 0: a key that has ended is of no use") }
        return time
    }
}
