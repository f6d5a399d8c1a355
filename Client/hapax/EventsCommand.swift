import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct EventsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events",
        abstract: "Shows what a server has stored: the latest events, or one by its id.",
        discussion: """
            Without an id: one line for each event, the last received first, beginning with when it was received. If there may be more, \
            standard error says with which --after the list goes on. Imported history was received when it was imported: --happened-from \
            and --happened-to ask for when events happened.

            With an id: whether it is stored, and the event; or why it was refused, as far back as that server remembers. Exits with 0 only \
            if it is stored, with 1 if it was refused, if nothing is known of it, or if the server refuses.

            Examples:
              hapax events --user customer-1 --where plan:pro --from 2026-11-01
              hapax events 01980000-0000-7000-8000-000000000002 --json
              hapax events order-17
            """)

    @Argument(help: ArgumentHelp("An event's id, or the text that another vendor's SDK has given it.", valueName: "id"))
    var id: String?

    @Option(help: ArgumentHelp("Only events of this name.", valueName: "name"))
    var event: String?

    @Option(help: ArgumentHelp("Only events of this user (distinct_id).", valueName: "user"))
    var user: String?

    @Option(help: ArgumentHelp("Only events of this install.", valueName: "id"))
    var install: EventID?

    @Option(name: .customLong("where"), help: ArgumentHelp("Only events with this property: PROPERTY:VALUE.", valueName: "property"))
    var property: String?

    @Option(help: ArgumentHelp("So many at most, up to 1000.", valueName: "number"))
    var limit = 100

    @Option(help: ArgumentHelp("Go on where an earlier list ended.", valueName: "place"))
    var after: String?

    @OptionGroup var span: SpanOptions
    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let answer = try await reading.answer(id.map { "v1/events/\(Self.encoded($0))" } ?? "v1/events", id == nil ? filters : [])
        guard let line = EventLine(answer[...]) else { throw ReadOptions.foreignAnswer() }
        if id != nil { try tellOne(line, answer) } else { try tellAll(line, answer) }
    }

    private static func encoded(_ id: String) -> String {
        id.addingPercentEncoding(withAllowedCharacters: .alphanumerics.union(CharacterSet(charactersIn: "-._~"))) ?? id
    }

    private var filters: [(String, String?)] {
        [
            ("event", event), ("distinct_id", user), ("install_id", install?.description), ("where", property),
            ("limit", "\(limit)"), ("after", after),
        ] + span.parameters
    }

    private func tellOne(_ line: EventLine, _ answer: [UInt8]) throws {
        if output.json { Terminal.write(line.oneLine) } else { Terminal.say(line.text(hasDate: true, isColored: false)) }
        if line.text("state") != "stored" { throw ExitCode.failure }
    }

    private func tellAll(_ line: EventLine, _ answer: [UInt8]) throws {
        guard let events = PropertyLookup.value(of: "events", in: answer[...]) else { throw ReadOptions.foreignAnswer() }
        for event in PropertyLookup.elements(of: events) {
            guard let line = EventLine(event) else { throw ReadOptions.foreignAnswer() }
            if output.json { Terminal.write(line.oneLine) } else { Terminal.say(line.text(hasDate: true, isColored: false)) }
        }
        if let next = line.text("next") { Terminal.complain("there may be more: --after \(next)") }
    }
}
