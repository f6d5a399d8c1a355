import ArgumentParser
import HapaxModel

struct ClockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "clock", abstract: "Believes the store's clock after a jump, or mends what a wrong clock has left.",
        discussion: """
            Days close by the clock of the store: the database's, or this machine's for the embedded store. If it jumps ahead, or was read a day ago \
            for the last time, no day closes for an hour (docs/operations.md). The file of the embedded store belongs to a running server: for accept it is \
            asked over HTTP (POST /v1/admin/clock/accept), for reset it is stopped first. Exit codes: 0 done, 1 failed.
            """,
        subcommands: [Accept.self, Reset.self])

    struct Accept: StoreCommand {
        static let configuration = CommandConfiguration(abstract: "Says that the clock is right: days close by it at once.")
        @OptionGroup var settings: StoreFlags
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            guard case .clock(let present) = try await store.admin.perform(.acceptClock, saysYes: false) else {
                return CommandOutput(text: "")
            }
            return CommandOutput(text: "", note: "The clock shows \(ClockCommand.text(present)). Within ten seconds days close by it.")
        }
    }

    struct Reset: StoreCommand {
        static let configuration = CommandConfiguration(
            abstract: "Once the clock is right again: moves back what was noted ahead of it. Days that have closed stay closed.")
        @OptionGroup var settings: StoreFlags
        var changes: Bool { true }

        func run(on store: CommandStore) async throws -> CommandOutput {
            guard case .clockReset(let reset) = try await store.admin.perform(.resetClock, saysYes: false) else {
                return CommandOutput(text: "")
            }
            var notes = ["The clock shows \(ClockCommand.text(reset.now)). \(EraseCommand.events(Int64(reset.events))) seemed to be later."]
            notes += reset.closed.map { project, until in
                "Days of \(project) have closed up to \(ClockCommand.text(until)): where that is PostgreSQL, it takes events again from then on."
            }
            if reset.closed.isEmpty { notes.append("A server that goes on answering 503 clock_behind needs a restart.") }
            return CommandOutput(text: "", note: notes.joined(separator: "\n"))
        }
    }

    private static func text(_ instant: Int64) -> String { Timestamp(clampingUnixMilliseconds: instant).description }
}
