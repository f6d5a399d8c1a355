import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct DeadLettersCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dead-letters",
        abstract: "Lists, exports or retries events that were refused.",
        discussion: "An event becomes a dead letter when it breaks a limit or the server refuses it for good. It is kept until you decide.",
        subcommands: [List.self, Export.self, Retry.self])

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Number, time, id, reason and detail of each.", discussion: "Without the events themselves; see export.")

        @Option(help: ArgumentHelp("Show so many at most.", valueName: "count"))
        var limit = 100
        @Option(help: ArgumentHelp("Only those after this number.", valueName: "number"))
        var after: Int64 = 0
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            if limit < 1 { throw ValidationError("--limit must be at least 1.") }
        }

        func run() async throws {
            for letter in try DeadLettersCommand.read(queue, after: after, limit: limit) {
                if output.json {
                    Terminal.say(json: [
                        "number": .integer(letter.number), "event_id": .optional(letter.eventID), "reason": .string(letter.reason),
                        "detail": .string(letter.detail), "time": .integer(letter.time),
                    ])
                } else {
                    let time = Date(timeIntervalSince1970: Double(letter.time) / 1_000).formatted(.iso8601)
                    Terminal.say(
                        "\(letter.number)  \(time)  \(letter.eventID?.description ?? "no readable id")  \(letter.reason)  \(letter.detail)")
                }
            }
        }
    }

    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Writes all of them, events included, as one JSON object on each line.",
            discussion: "`event` holds the event as it was; bytes that are not a valid event are in `text`.")

        @OptionGroup var queue: QueueOptions

        @Flag(help: .hidden)
        var json = false

        func run() async throws {
            var last: Int64 = 0
            while true {
                let letters = try DeadLettersCommand.read(queue, after: last, limit: 500)
                guard let end = letters.last else { return }
                for letter in letters { Terminal.write(letter.line) }
                last = end.number
            }
        }
    }

    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Puts them back into the queue.",
            discussion: """
                They are sent by the next upload. Those that break a limit stay, since no server would store them. Exits \
                with 1 if a number is none of them.
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
            guard try QueueReader.forCommand(queue) != nil else {
                if !all { try complain(unknown: numbers) }
                return tell(RetriedDeadLetters())
            }
            let owner: EventQueue
            do throws(QueueOpenError) {
                owner = try EventQueue.open(queue.path, whenTaken: .refuse, durability: .power, clock: SystemClock())
            } catch {
                switch error {
                case .taken:
                    Terminal.complain("another process works on the queue")
                    throw ExitCode.queueTaken
                case .unusable(let failure):
                    Terminal.complain("the queue cannot be used: \(failure)")
                    throw ExitCode.failure
                }
            }
            defer { owner.close() }
            let result: RetriedDeadLetters
            var unknown: [Int64] = []
            do {
                // The queue is ours: none comes or goes between this and the retry.
                unknown = try numbers.filter { try owner.deadLetters(after: $0 - 1, limit: 1).first?.number != $0 }
                result = try owner.retryDeadLetters(all ? nil : numbers)
            } catch {
                Terminal.complain("the queue cannot be written; nothing was changed")
                throw ExitCode.failure
            }
            tell(result)
            try complain(unknown: unknown)
            if result.unfit > 0 { throw ExitCode.deadLettered }
        }

        private func complain(unknown: [Int64]) throws {
            guard !unknown.isEmpty else { return }
            Terminal.complain("no dead letter has number \(unknown.map { "\($0)" }.joined(separator: ", "))")
            throw ExitCode.failure
        }

        private func tell(_ result: RetriedDeadLetters) {
            if output.json {
                Terminal.say(json: ["retried": .count(result.retried.count), "unfit": .count(result.unfit)])
            } else {
                Terminal.say("\(result.retried.count) back in the queue, \(result.unfit) stay")
            }
        }
    }

    fileprivate static func read(_ queue: QueueOptions, after: Int64, limit: Int) throws -> [DeadLetter] {
        do {
            return try QueueReader.forCommand(queue)?.deadLetters(after: after, limit: limit) ?? []
        } catch let failure as StorageFailure {
            Terminal.complain("the queue cannot be read: \(failure)")
            throw ExitCode.failure
        }
    }
}

extension QueueReader {
    static func forCommand(_ queue: QueueOptions) throws -> QueueReader? {
        do throws(StorageFailure) {
            return try QueueReader(directory: queue.directory)
        } catch {
            Terminal.complain("the queue cannot be read: \(error)")
            throw ExitCode.failure
        }
    }
}
