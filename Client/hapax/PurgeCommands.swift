import ArgumentParser
import HapaxClient
import HapaxModel

/// `queue purge`.
struct PurgeQueue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Deletes every event that waits, for ever.",
        discussion: """
            In all files that nobody works on, or in those of one destination (--destination), as of a server that is gone. The events are counted as `purged`, which the server is told. Dead letters stay unless \
            --with-dead-letters is given. Asks first on a terminal; elsewhere give --yes. Durable on return.

            Exits with 0 if nothing waits any more, 1 if a file cannot be used or the answer was no, 64 without a terminal and without \
            --yes, 75 if running processes hold files: those processes' events stay.

            Example:
              hapax queue purge --with-dead-letters --yes --json
              hapax queue purge --destination hapax_w_AhyY --yes
            """)

    @Option(
        help: ArgumentHelp(
            "Only what waits for this server and key, as hapax status names them: the server's URL, the beginning of the key, or the id.",
            valueName: "destination"))
    var destination: String?

    @Flag(help: "Delete the dead letters as well.")
    var withDeadLetters = false
    @OptionGroup var confirmation: Confirmation
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let (numbers, name) = try chosen()
        let what = "every waiting event\(withDeadLetters ? " and dead letter" : "")\(name.map { " for " + $0 } ?? "")"
        try confirmation.ask("Delete \(what) in \(queue.path) for ever?")
        var unopened = UnopenedFiles()
        var (waiting, deadLetters) = (0, 0)
        defer { tell(waiting, deadLetters, unopened) }
        for number in numbers {
            guard let file = unopened.open(number, in: queue.directory) else { continue }
            defer { file.close() }
            try Terminal.working {
                waiting += try file.purgeWaiting()
                if withDeadLetters { deadLetters += try file.purgeDeadLetters() }
                try file.flushDrive()
            }
        }
        unopened.complain(of: "what waits")
        try unopened.requireAll()
    }

    /// Which files are meant, and for what.
    private func chosen() throws -> (files: [Int], name: String?) {
        guard let destination else { return (try queue.numbers(), nil) }
        guard let chosen = try queue.destination(destination) else { throw ExitCode.failure }
        return (chosen.files, chosen.name)
    }

    private func tell(_ waiting: Int, _ deadLetters: Int, _ unopened: UnopenedFiles) {
        if output.json {
            return Terminal.say(json: [
                "purged": .count(waiting), "purged_dead_letters": .count(deadLetters), "owned_files": .count(unopened.owned.count),
                "unusable_files": .count(unopened.unusable.count),
            ])
        }
        Terminal.say("\(waiting) waiting events deleted" + (withDeadLetters ? ", \(deadLetters) dead letters deleted" : ""))
    }
}

/// `dead-letters purge`.
struct PurgeDeadLetters: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Deletes dead letters, for ever.",
        discussion: """
            They stay counted in `dead_lettered`. Consider export first. Asks first on a terminal; elsewhere give --yes. Durable on return.

            Exits with 0 if done, 1 if one of the names is none of them, a file cannot be used or the answer was no, 64 without a terminal and \
            without --yes, 75 if running processes hold files that were meant.

            Example:
              hapax dead-letters export > refused.ndjson && hapax dead-letters purge --all --yes
            """)

    @OptionGroup var wanted: WantedDeadLetters
    @OptionGroup var confirmation: Confirmation
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        try confirmation.ask("Delete \(wanted.all ? "all" : "\(wanted.names.count)") dead letters for ever?")
        var purged = 0
        try wanted.forEachFile(queue) { file, numbers in
            purged += try file.purgeDeadLetters(numbers)
            try file.flushDrive()
        } last: {
            if output.json {
                Terminal.say(json: ["purged_dead_letters": .count(purged)])
            } else {
                Terminal.say("\(purged) dead letters deleted")
            }
        }
    }
}
