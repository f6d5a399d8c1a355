import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct DeadLettersCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dead-letters",
        abstract: "Lists, exports, retries or deletes events that were refused.",
        discussion: """
            An event becomes a dead letter when it breaks a limit or the server refuses it for good. It is kept until you decide.

            Examples:
              hapax dead-letters list
              hapax dead-letters export > refused.ndjson
              hapax dead-letters retry --all && hapax flush
            """,
        subcommands: [List.self, Export.self, Retry.self, PurgeDeadLetters.self])

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Number, time, id, reason and detail of each.",
            discussion: """
                Without the events themselves; see export. With --json each is an object on a line of its own. Those of queues stored \
                beside this one are only counted. Looks only; a process that works on the queue is not disturbed. Exits with 0, or with 1 if the \
                queue cannot be read or a damaged file that was set aside may hold more.

                Example:
                  hapax dead-letters list --after 100 --limit 100
                """)

        @OptionGroup var page: PageOptions
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            defer { DeadLettersCommand.tellOfOthers(queue) }
            for letter in try DeadLettersCommand.read(queue, after: page.after, limit: page.limit) {
                if output.json {
                    Terminal.say(json: [
                        "number": .integer(letter.number), "event_id": .optional(letter.eventID), "reason": .string(letter.reason),
                        "detail": .string(letter.detail), "time": .integer(letter.time),
                    ])
                } else {
                    let time = Date(timeIntervalSince1970: Double(letter.time) / 1_000).formatted(.iso8601)
                    let id = letter.eventID?.description ?? "no readable id"
                    let why = Terminal.printable("\(letter.reason)  \(letter.detail)")
                    Terminal.say("\(letter.number)  \(time)  \(id)  \(why)")
                }
            }
            try queue.requireSalvage()
        }
    }

    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Writes all of this queue, events included, as one JSON object on each line.",
            discussion: """
                `event` holds the event as it was; bytes that are not a valid event are in `text`, and in `base64` if they are not UTF-8. \
                Those of queues stored beside this one are only counted. Looks only. Exits with 0, or with 1 if the queue cannot be read or \
                a damaged file that was set aside may hold more.

                Example:
                  hapax dead-letters export > refused.ndjson
                """)

        @OptionGroup var queue: QueueOptions

        @Flag(help: .hidden)
        var json = false

        func run() async throws {
            defer { DeadLettersCommand.tellOfOthers(queue) }
            var last: Int64 = 0
            while true {
                let letters = try DeadLettersCommand.read(queue, after: last, limit: 500)
                guard let end = letters.last else { return try queue.requireSalvage() }
                for letter in letters { Terminal.write(letter.line) }
                last = end.number
            }
        }
    }

    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Puts them back into the queue.",
            discussion: """
                They are sent by the next upload. Those that break a limit stay, since no server would store them. Durable on return.

                Exits with 0 if all are back, 1 if a number is none of them or the queue cannot be used, 3 if some stay, 75 if another \
                process works on the queue.

                Example:
                  hapax dead-letters retry 3 4 && hapax flush
                """)

        @Argument(help: "Their numbers.")
        var numbers: [Int64] = []
        @Flag(help: "All of them.")
        var all = false
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            if numbers.isEmpty != all { throw ValidationError("Which ones? Give their numbers, or --all.") }
        }

        func run() async throws {
            guard try QueueReader.isThere(queue) else {
                if !all { try DeadLettersCommand.complain(unknown: numbers) }
                return tell(RetriedDeadLetters())
            }
            let owner = try EventQueue.forCommand(queue)
            defer { owner.close() }
            // The queue is ours: none comes or goes between this and the retry.
            let (result, unknown) = try await owner.changingAll { owner in
                let present = Set(try owner.deadLetterNumbers())
                return (try owner.retryDeadLetters(all ? nil : numbers), numbers.filter { !present.contains($0) })
            }
            tell(result)
            try DeadLettersCommand.complain(unknown: unknown)
            if result.unfit > 0 { throw ExitCode.deadLettered }
        }

        private func tell(_ result: RetriedDeadLetters) {
            if output.json {
                Terminal.say(json: ["retried": .count(result.retried.count), "unfit": .count(result.unfit)])
            } else {
                Terminal.say("\(result.retried.count) back in the queue, \(result.unfit) stay")
            }
        }
    }

    static func complain(unknown: [Int64]) throws {
        guard !unknown.isEmpty else { return }
        let numbers = Set(unknown).sorted().map { "\($0)" }.joined(separator: ", ")
        Terminal.complain("no dead letter has number \(numbers); see hapax dead-letters list")
        throw ExitCode.failure
    }

    /// Of events that were tracked while another process worked on the queue.
    fileprivate static func tellOfOthers(_ queue: QueueOptions) {
        let spools = SpoolSurvey(of: queue.directory)
        if spools.deadLetters > 0 {
            Terminal.complain(
                "\(spools.deadLetters) more are in \(spools.summaries.count) queues stored beside this one, until these are delivered")
        }
        spools.complain()
    }

    fileprivate static func read(_ queue: QueueOptions, after: Int64, limit: Int) throws -> [DeadLetter] {
        guard let reader = try QueueReader.forCommand(queue) else { return [] }
        return try QueueReader.complaining { () throws(StorageFailure) in try reader.deadLetters(after: after, limit: limit) }
    }
}
