import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct DeadLettersCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dead-letters",
        abstract: "Lists, exports, retries or deletes events that were refused.",
        discussion: """
            An event becomes a dead letter when it breaks a limit or the server refuses it for good. It is kept, in the file it was in, until you decide. \
            Files that running processes hold are skipped and named.

            Examples:
              hapax dead-letters list
              hapax dead-letters export > refused.ndjson
              hapax dead-letters retry --all && hapax flush
            """,
        subcommands: [List.self, Export.self, Retry.self, PurgeDeadLetters.self])

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "File and sequence, time, id, reason and detail of each.",
            discussion: """
                Without the events themselves; see export. With --json each is an object on a line of its own. Exits with 0, with 1 if a file cannot \
                be used, or 75 if running processes hold some.

                Example:
                  hapax dead-letters list --after 1-100 --limit 100
                """)

        @OptionGroup var page: PageOptions
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try DeadLettersCommand.forEach(queue, page) { file, deadLetter in
                if output.json {
                    return Terminal.say(json: [
                        "file": .count(file), "number": .string("\(RowName(file, deadLetter.number))"),
                        "event_id": .optional(deadLetter.eventID), "reason": .string(deadLetter.reason),
                        "detail": .string(deadLetter.detail),
                        "time": .integer(deadLetter.unixMilliseconds),
                    ])
                }
                let time = deadLetter.time.formatted(.iso8601)
                let id = deadLetter.eventID?.description ?? "no readable id"
                let why = Terminal.printable("\(deadLetter.reason)  \(deadLetter.detail)")
                Terminal.say("\(RowName(file, deadLetter.number))  \(time)  \(id)  \(why)")
            }
        }
    }

    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Writes all of them, events included, as one JSON object on each line.",
            discussion: """
                `event` holds the event as it was; bytes that are not a valid event are in `text`, and in `base64` if they are not UTF-8. \
                Exits with 0, with 1 if a file cannot be used, or 75 if running processes hold some.

                Example:
                  hapax dead-letters export > refused.ndjson
                """)

        @OptionGroup var queue: QueueOptions

        @Flag(help: .hidden)
        var json = false

        func run() async throws {
            try DeadLettersCommand.forEach(queue, nil) { Terminal.write($1.line) }
        }
    }

    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Puts them back into the queue.",
            discussion: """
                In their old places; they are sent by the next upload. Those that break a limit stay, since no server would store them. Durable on return.

                Exits with 0 if all are back, 1 if one of the names is none of them or a file cannot be used, 3 if some stay, 75 if running \
                processes hold files that were meant.

                Example:
                  hapax dead-letters retry 1-3 1-4 && hapax flush
                """)

        @OptionGroup var wanted: WantedDeadLetters
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            var (retried, unfit) = (0, 0)
            try wanted.forEachFile(queue) { file, numbers in
                let result = try file.retryDeadLetters(numbers)
                try file.flushDrive()
                (retried, unfit) = (retried + result.retried.count, unfit + result.unfit)
            } last: {
                if output.json {
                    Terminal.say(json: ["retried": .count(retried), "unfit": .count(unfit)])
                } else {
                    Terminal.say("\(retried) back in the queue, \(unfit) stay")
                }
            }
            if unfit > 0 { throw ExitCode.deadLettered }
        }
    }

    /// Those of the files that can be opened.
    ///
    /// - Parameter page: nil for all.
    private static func forEach(_ queue: QueueOptions, _ page: PageOptions?, _ body: (Int, DeadLetter) -> Void) throws {
        var unopened = UnopenedFiles()
        let numbers = try queue.numbers()
        var left = page?.limit ?? .max
        for (number, after) in page?.files(numbers) ?? numbers.map({ ($0, 0) }) where left > 0 {
            guard let file = unopened.open(number, in: queue.directory) else { continue }
            defer { file.close() }
            var last = after
            while left > 0 {
                let deadLetters = try Terminal.working { try file.deadLetters(after: last, limit: min(left, 500)) }
                guard let end = deadLetters.last else { break }
                for deadLetter in deadLetters { body(number, deadLetter) }
                left -= deadLetters.count
                last = end.number
            }
        }
        unopened.complain(of: "dead letters")
        try unopened.requireAll()
    }
}

/// Which dead letters a command is to work on.
struct WantedDeadLetters: ParsableArguments {
    @Argument(help: ArgumentHelp("Their names, as list shows them.", valueName: "file-number"))
    var names: [RowName] = []
    @Flag(help: "All of them.")
    var all = false

    func validate() throws {
        if names.isEmpty != all { throw ValidationError("Which ones? Give their names, as 1-17, or --all.") }
    }

    /// - Parameters:
    ///   - body: Gets each file with the numbers that are wanted there; nil for all.
    ///   - last: Called once what can be done is done.
    func forEachFile(_ queue: QueueOptions, _ body: (QueueFile, [Int64]?) throws -> Void, last: () -> Void) throws {
        var unopened = UnopenedFiles()
        var unknown = Set(names)
        for number in try queue.numbers() where all || names.contains(where: { $0.file == number }) {
            guard let file = unopened.open(number, in: queue.directory) else {
                unknown = unknown.filter { $0.file != number }
                continue
            }
            defer { file.close() }
            try Terminal.working {
                let present = try names.filter { name in
                    try name.file == number && file.deadLetters(after: name.number - 1, limit: 1).first?.number == name.number
                }
                unknown.subtract(present)
                try body(file, all ? nil : present.map(\.number))
            }
        }
        last()
        unopened.complain(of: "dead letters")
        try unopened.requireAll()
        guard unknown.isEmpty else {
            let text = unknown.sorted().map(\.description).joined(separator: ", ")
            Terminal.complain("no dead letter is called \(text); see hapax dead-letters list")
            throw ExitCode.failure
        }
    }
}
