import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct QueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue",
        abstract: "Lists, shows or deletes events that wait to be delivered.",
        discussion: """
            Of the files that nobody works on: those of a running process are its own, and are named.

            Examples:
              hapax queue list --limit 20
              hapax queue show 01980000-0000-7000-8000-000000000002
              hapax queue purge --yes
            """,
        subcommands: [List.self, Show.self, PurgeQueue.self])

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "File and sequence, id, time, size and name of each, oldest first in each file.",
            discussion: """
                Without the events' contents; see show. An event whose bytes changed on the disk is told on standard error instead. With --json \
                each event is an object on a line of its own.

                Exits with 0, also if nothing waits, 1 if a file cannot be used, or 75 if running processes hold some.

                Example, the next page:
                  hapax queue list --after 1-100 --limit 100
                """)

        @OptionGroup var page: PageOptions
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            var unopened = UnopenedFiles()
            var left = page.limit
            for (number, after) in page.files(try queue.numbers()) where left > 0 {
                guard let file = unopened.open(number, in: queue.directory) else { continue }
                defer { file.close() }
                let found = try Terminal.working { try file.events(after: after, limit: left) }
                left -= found.whole.count
                for event in found.whole { tell(event, number) }
                for row in found.damaged {
                    Terminal.complain(
                        "\(RowName(number, row)): the event's bytes changed on the disk; when it is to be sent it becomes a dead letter")
                }
            }
            unopened.complain(of: "what waits")
            try unopened.requireAll()
        }

        private func tell(_ event: QueuedEvent, _ file: Int) {
            if output.json {
                return Terminal.say(json: [
                    "file": .count(file), "sequence": .integer(event.number), "event_id": .string(event.id.description),
                    "event": .string(event.name), "time": .integer(event.time), "bytes": .count(event.bytes.count),
                    "held": .bool(event.isHeld),
                ])
            }
            let time = Date(timeIntervalSince1970: Double(event.time) / 1_000).formatted(.iso8601)
            let held = event.isHeld ? "  held: the server refuses it" : ""
            let name = Terminal.printable(event.name)
            Terminal.say("\(RowName(file, event.number))  \(event.id)  \(time)  \(event.bytes.count) bytes  \(name)\(held)")
        }
    }

    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "One waiting event, as it will be sent.",
            discussion: """
                Exits with 0 if it waits, 1 if it does not or a file cannot be used, 3 if it is in the dead letters, 75 if it may be in a file that a \
                running process holds.

                Example:
                  hapax queue show 01980000-0000-7000-8000-000000000002
                """)

        @Argument(help: ArgumentHelp("The event's id.", valueName: "uuid"))
        var id: EventID
        @OptionGroup var queue: QueueOptions

        @Flag(help: .hidden)
        var json = false

        func run() async throws {
            var unopened = UnopenedFiles()
            var deadLetter: DeadLetter?
            for number in try queue.numbers() {
                guard let file = unopened.open(number, in: queue.directory) else { continue }
                defer { file.close() }
                if let event = try Terminal.working({ try file.event(of: id) }) { return Terminal.write(event.bytes + [0x0A]) }
                deadLetter = try deadLetter ?? Terminal.working { try file.deadLetter(of: id) }
            }
            if let deadLetter {
                Terminal.complain(
                    "the event does not wait: it is in the dead letters: \(deadLetter.reason): \(deadLetter.detail); see hapax dead-letters export"
                )
                throw ExitCode.deadLettered
            }
            unopened.complain(of: "events")
            try unopened.requireAll()
            Terminal.complain("no event with this id waits: it was delivered or purged, or was never stored in \(queue.path)")
            throw ExitCode.failure
        }
    }
}

extension PageOptions {
    /// Which files the page is of, and behind which row it begins in each.
    func files(_ numbers: [Int]) -> [(number: Int, after: Int64)] {
        guard let after else { return numbers.map { ($0, 0) } }
        return numbers.filter { $0 >= after.file }.map { ($0, $0 == after.file ? after.number : 0) }
    }
}
