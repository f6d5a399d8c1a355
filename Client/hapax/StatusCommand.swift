import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct StatusCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Shows what waits, what was delivered and what was refused.",
        discussion: """
            What was delivered is of the queue itself; those stored beside it do not count towards it once they are delivered and removed. \
            Looks only; a process that works on the queue is not disturbed. Exits with 0 also if something waits, \
            with 1 if a queue, or one stored beside it, cannot be read.

            Example:
              hapax status --json
            """)

    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let main = try QueueReader.forCommand(queue).map { reader in
            try QueueReader.complaining { () throws(StorageFailure) in try reader.summary() }
        }
        let spools = SpoolSurvey(of: queue.directory)
        tell(main, spools)
        spools.complain()
        if !spools.unusable.isEmpty { throw ExitCode.failure }
    }

    private func tell(_ main: QueueReader.Summary?, _ spools: SpoolSurvey) {
        if output.json { return Terminal.say(json: fields(main, spools)) }
        Terminal.say("queue        \(queue.path)")
        if let main { tell(main) } else { Terminal.say("             does not exist yet") }
        if queue.directory.isOptedOut { Terminal.say("opted out    events are refused; see hapax identity") }
        for file in damagedFiles { Terminal.say("damaged      \(file), set aside") }
        if !spools.summaries.isEmpty {
            Terminal.say(
                "beside it    \(spools.depth) events and \(spools.deadLetters) dead letters in \(spools.summaries.count) spooled queues")
        }
        if !spools.unusable.isEmpty { Terminal.say("unusable     \(spools.unusable.count) spooled queues") }
    }

    private func tell(_ main: QueueReader.Summary) {
        Terminal.say("install      \(main.books.installID)")
        Terminal.say("waiting      \(main.books.depth) events, \(main.books.bytes) bytes\(age(main.oldest))")
        Terminal.say("delivered    \(main.books.stored) stored, \(main.books.duplicates) duplicates")
        Terminal.say("dead letters \(main.deadLetters)")
        for (reason, count) in main.books.drops.byReason.sorted(by: { $0.key < $1.key }) {
            Terminal.say("dropped      \(count) (\(reason))")
        }
    }

    private var damagedFiles: [String] { queue.directory.filesSetAside + queue.directory.filesSetAsideBeside }

    private func age(_ oldest: Int64?) -> String {
        guard let oldest else { return "" }
        let seconds = Int64(Date().timeIntervalSince1970) - oldest / 1_000
        return ", the oldest \(max(seconds, 0)) s old"
    }

    private func fields(_ main: QueueReader.Summary?, _ spools: SpoolSurvey) -> Properties {
        func count(_ number: KeyPath<QueueBooks, Int64>) -> PropertyValue { .integer(main?.books[keyPath: number] ?? 0) }
        return [
            "queue": .string(queue.path), "install_id": .optional(main?.books.installID), "depth": count(\.depth),
            "bytes": count(\.bytes), "oldest": .optional(main?.oldest), "created": count(\.lastSequence),
            "adopted": count(\.adopted), "stored": count(\.stored), "duplicates": count(\.duplicates),
            "dead_lettered": count(\.deadLettered), "discarded": count(\.discarded),
            "dead_letters": .count(main?.deadLetters ?? 0), "damaged_files": .count(damagedFiles.count),
            "opted_out": .bool(queue.directory.isOptedOut),
            "dropped": .object(main?.books.drops.byReason.mapValues { .integer($0) } ?? [:]), "spools": .count(spools.summaries.count),
            "spooled": .integer(spools.depth), "spooled_dead_letters": .count(spools.deadLetters),
            "unusable_spools": .count(spools.unusable.count),
        ]
    }
}
