import ArgumentParser
import Foundation
import HapaxModel

struct SendersCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "senders",
        abstract: "Shows who sends without numbers: other vendors' SDKs, curl, pages that keep nothing.",
        discussion: """
            A line for each library, with what became of its events, by the day of their arrival (UTC). Of what a sender lost before it sent, \
            nothing is known: hapax reconcile has the books of those that number their events. A server that is killed forgets the counts of \
            its last two seconds; the events themselves are the truth.

            Exits with 0 if the server has answered, even if nobody has sent, else with 1.

            Examples:
              hapax senders
              hapax senders --from 2026-11-01 --to 2026-11-30 --json
            """)

    @Option(help: ArgumentHelp("The first day. Default: 30 days up to today.", valueName: "day")) var from: String?
    @Option(help: ArgumentHelp("The last day. Default: today.", valueName: "day")) var to: String?

    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    private struct Answer: Decodable {
        struct Sender: Decodable {
            var via, library, first_day, last_day: String
            var received, stored, duplicates, conflicts, rejected, expired, retry: Int64
        }
        var senders: [Sender]
    }

    func run() async throws {
        let answer = try await reading.answer("v1/senders", [("from", from), ("to", to)])
        guard let found = try? JSONDecoder().decode(Answer.self, from: Data(answer)), let line = EventLine(answer[...]) else {
            throw ReadOptions.foreignAnswer()
        }
        if output.json { return Terminal.write(line.oneLine) }
        guard !found.senders.isEmpty else { return Terminal.say("Nothing came from senders without numbers in these days.") }
        let rows = found.senders.map { sender in
            [sender.library.isEmpty ? "unnamed" : sender.library, sender.via, sender.last_day]
                + [sender.received, sender.stored, sender.duplicates, sender.conflicts, sender.rejected, sender.expired, sender.retry].map {
                    "\($0)"
                }
        }
        let head = ["SENDER", "VIA", "LAST DAY", "RECEIVED", "STORED", "DUPLICATES", "CONFLICTS", "REJECTED", "EXPIRED", "AGAIN"]
        Terminal.table([head] + rows, texts: 3).forEach(Terminal.say)
    }
}
