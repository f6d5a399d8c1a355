import ArgumentParser
import HapaxModel

struct AuditCommand: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit", abstract: "Lists what admins have changed in the last 400 days, over HTTP and here: when, who, what.",
        discussion: """
            Holds no key and nobody's id: who is a key by its number and name, or a user of a machine; an erasure is named by its project. \
            Exit codes: 0 done, 1 failed.

            Examples:
              hapax-server audit
              hapax-server audit --project shop --json
            """)
    @OptionGroup var settings: StoreFlags
    @Option(help: "Of this project only.") var project: String?
    @Flag(help: "As JSON, newest first.") var json = false
    var changes: Bool { false }

    func run(on store: CommandStore) async throws -> CommandOutput {
        var entries: [AuditLog.Entry] = []
        while true {
            let part = try await store.admin.audit(before: entries.last?.id, project: project)
            entries += part
            if part.count < ServerLimits.auditEntries { break }
        }
        if json { return CommandOutput(text: AccessCommands.json { $0.members(of: entries) }) }
        // The latest one is what a terminal shows.
        let rows = entries.reversed().map { entry in
            [Timestamp(clampingUnixMilliseconds: entry.at).description, entry.actor, entry.verb, entry.project ?? "", entry.detail]
        }
        return CommandOutput(
            text: AccessCommands.table(["AT", "BY", "WHAT", "PROJECT", ""], rows),
            note: project != nil && rows.isEmpty ? "Nothing is noted of a project of that name." : nil)
    }
}
