import ArgumentParser
import HapaxModel

struct AcceptLossesCommand: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "accept-losses", abstract: "Closes what is missing in the books: tells how much, and with --yes accepts it.",
        discussion: """
            For events that are lost for good, or that were brought back under other numbers, as by an import from an older store: hapax reconcile \
            then counts them as refused, with the reason accepted_loss. What comes under its number after all is stored as ever. Exit codes: 0 done, \
            1 failed.

            Examples:
              hapax-server accept-losses --project shop
              hapax-server accept-losses --project shop --install 0198c0de-… --yes
            """)
    @OptionGroup var settings: StoreFlags
    @Option(help: "The project.") var project: String
    @Option(help: "Of this install only, as hapax reconcile names it.") var install: String?
    @Flag(help: "Accept them.") var yes = false
    // A dry run reads through the store as well.
    var changes: Bool { true }

    func validate() throws {
        if let install, EventID(uuidString: install) == nil { throw ValidationError("--install must be a UUID.") }
    }

    func run(on store: CommandStore) async throws -> CommandOutput {
        let verb = AdminVerb.acceptLosses(project: project, install: install)
        guard case .losses(let count, _) = try await store.admin.perform(verb, saysYes: yes) else { return CommandOutput(text: "") }
        return CommandOutput(
            text: "\(EraseCommand.events(count)) missing\(yes ? ", accepted" : "")",
            note: yes ? nil : "Nothing has been changed: --yes accepts them.")
    }
}
