import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct QueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue",
        abstract: "Lists, shows or deletes events that wait to be delivered.",
        discussion: """
            Looking never disturbs a process that works on the queue. Deleting needs the queue for itself.

            Examples:
              hapax queue list --limit 20
              hapax queue show 01980000-0000-7000-8000-000000000002
              hapax queue purge --yes
            """,
        subcommands: [List.self, Show.self, PurgeQueue.self])

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Number, id, time, size and name of each, oldest first.",
            discussion: """
                The order is the one in which they are sent. Without the events' contents; see show. An event whose bytes changed \
                on the disk, and what other processes stored beside the queue, is told on standard error instead. With --json each event is \
                an object on a line of its own.

                Exits with 0, also if nothing waits, or with 1 if the queue cannot be read or a damaged file that was set aside may hold more.

                Example, the next page:
                  hapax queue list --after 100 --limit 100
                """)

        @OptionGroup var page: PageOptions
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let events = try QueueReader.forCommand(queue).map { reader in
                try QueueReader.complaining { () throws(StorageFailure) in try reader.events(after: page.after, limit: page.limit) }
            }
            for event in events?.whole ?? [] { tell(event) }
            for number in events?.damaged ?? [] {
                Terminal.complain("\(number): the event's bytes changed on the disk; when it is to be sent it becomes a dead letter")
            }
            let spools = SpoolSurvey(of: queue.directory)
            if spools.depth > 0 {
                Terminal.complain("\(spools.depth) more events wait in \(spools.summaries.count) queues stored beside this one")
            }
            spools.complain()
            try queue.requireSalvage()
        }

        private func tell(_ event: QueuedEvent) {
            if output.json {
                return Terminal.say(json: [
                    "number": .integer(event.number), "event_id": .string(event.id.description), "event": .string(event.name),
                    "time": .integer(event.time), "bytes": .count(event.bytes.count),
                ])
            }
            let time = Date(timeIntervalSince1970: Double(event.time) / 1_000).formatted(.iso8601)
            Terminal.say("\(event.number)  \(event.id)  \(time)  \(event.bytes.count) bytes  \(Terminal.printable(event.name))")
        }
    }

    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "One waiting event, as it will be sent.",
            discussion: """
                Looks in the queue and in those stored beside it. Exits with 0 if it waits, 1 if it does not or the queue cannot be read, \
                3 if it is in the dead letters.

                Example:
                  hapax queue show 01980000-0000-7000-8000-000000000002
                """)

        @Argument(help: ArgumentHelp("The event's id.", valueName: "uuid"))
        var id: EventID
        @OptionGroup var queue: QueueOptions

        @Flag(help: .hidden)
        var json = false

        func run() async throws {
            var letter: DeadLetter?
            let spools = try QueueReader.complaining { () throws(StorageFailure) in try queue.directory.spools() }
            for directory in [queue.directory] + spools {
                let found = try QueueReader.complaining { () throws(StorageFailure) -> QueuedEvent? in
                    guard let reader = try QueueReader(directory: directory) else { return nil }
                    let event = try reader.event(of: id)
                    if event == nil, letter == nil { letter = try reader.deadLetter(of: id) }
                    return event
                }
                if let found { return Terminal.write(found.bytes + [0x0A]) }
            }
            if let letter {
                Terminal.complain(
                    "the event does not wait: it is in the dead letters: \(letter.reason): \(letter.detail); see hapax dead-letters export")
                throw ExitCode.deadLettered
            }
            let isKnown = !queue.directory.holdsUnsalvagedAnywhere
            Terminal.complain(
                isKnown
                    ? "no event with this id waits: it was delivered or purged, or was never stored in \(queue.path)"
                    : "no event with this id is in the queue; a damaged file was set aside that may hold it, which the next hapax flush takes over"
            )
            throw ExitCode.failure
        }
    }
}
