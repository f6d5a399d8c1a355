import ArgumentParser
import HapaxModel

struct RetentionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "retention", abstract: "Shows and sets how long events are kept.",
        discussion: """
            Events are kept for ever, or for some whole months before the running one, by the days of their ids. Works while servers run; the \
            file of the embedded store belongs to a running server, which is asked over HTTP (docs/operations.md).
            """,
        subcommands: [Show.self, Set.self, Apply.self], defaultSubcommand: Show.self)

    struct Show: StoreCommand {
        static let configuration = CommandConfiguration(abstract: "Shows how long events are kept (the default).")
        @OptionGroup var settings: StoreFlags
        @Flag(help: "As JSON.") var json = false
        var changes: Bool { false }

        func run(on store: CommandStore) async throws -> CommandOutput {
            let state = try await store.admin.retention()
            if json { return CommandOutput(text: AccessCommands.json { $0.members(of: state) }) }
            return CommandOutput(text: RetentionCommand.text(state))
        }
    }

    struct Set: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "set", abstract: "Tells what would go if events were kept for some months, and with --yes removes it.")
        @OptionGroup var settings: StoreFlags
        @Argument(
            help: "Whole months before the running one, from \(Retention.allowedMonths.lowerBound) on; or: forever.",
            transform: { text in
                guard let months = text == "forever" ? 0 : Int(text), text == "forever" || Retention.allowedMonths.contains(months) else {
                    throw ValidationError(
                        "must be forever, or a number from \(Retention.allowedMonths.lowerBound) to \(Retention.allowedMonths.upperBound)")
                }
                return months
            }) var months: Int
        @Flag(help: "Set it, and remove what is older. This cannot be taken back.") var yes = false
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            guard case .wouldRemove(let preview) = try await store.admin.perform(.setRetention(months: months), saysYes: yes) else {
                return try await RetentionCommand.remove(store)
            }
            let rows = preview.months.map { [$0.month, "\($0.events)"] }
            var lines = ["Nothing has been changed."]
            if let day = Retention.firstDay(preview.horizon) {
                lines.append("Ids of days before \(day) would be refused as expired, for ever.")
            }
            if preview.undated > 0 { lines.append("Of \(preview.undated) events without a day in their id a tombstone would stay.") }
            lines.append("--yes \(rows.isEmpty && preview.undated == 0 ? "sets it" : "removes them, and cannot be taken back").")
            return CommandOutput(
                text: rows.isEmpty ? "" : AccessCommands.table(["MONTH", "EVENTS"], rows), note: lines.joined(separator: " "))
        }
    }

    struct Apply: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Removes what is due, as a server with the admin role does daily: for cron, where none has it.")
        @OptionGroup var settings: StoreFlags
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            _ = try await store.admin.perform(.applyRetention, saysYes: false)
            return try await RetentionCommand.remove(store)
        }
    }

    private static func remove(_ store: CommandStore) async throws -> CommandOutput {
        _ = try await Retention(database: store.admin.database).perform()
        return CommandOutput(text: text(try await store.admin.retention()))
    }

    private static func text(_ state: Retention.State) -> String {
        let kept = state.months.map { "Events are kept for \($0) months and the running one." } ?? "Events are kept for ever."
        let removed = state.firstDay.map { " Those before \($0) \(state.cleared < state.horizon ? "are being" : "have been") removed." }
        return kept + (removed ?? "")
    }
}
