import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct ReportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report", abstract: "Reads a project's figures.",
        subcommands: [DailyReportCommand.self, SeriesCommand.self, BreakdownCommand.self, FunnelCommand.self, RetentionCommand.self])
}

struct DailyReportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "daily",
        abstract: "Shows users, events, sessions of each day, in the project's time zone.",
        discussion: """
            A closed day never changes again, but for the number of events that arrived after its report had closed (late); with --basis \
            all these are in its figures, which then can change. An open day shows what has arrived by now. Figures of apps (active and \
            new users, sessions) are shown if there are any. Below stand the commonest events of all these days together.

            Exits with 0, or with 1 if the server does not answer what it was asked.

            Examples:
              hapax report daily
              hapax report daily --from 2026-11-01 --to 2026-12-01 --csv > november.csv
              hapax report daily --csv --by event > events.csv
            """)

    @Option(help: ArgumentHelp("From this day of the project's zone on. Default: the last seven days.", valueName: "day"))
    var from: String?

    @Option(help: ArgumentHelp("Before this day. Default: today is the last.", valueName: "day"))
    var to: String?

    @Option(help: ArgumentHelp("closed: without late events; all: with them.", valueName: "closed|all"))
    var basis: String?

    @Flag(help: "Print CSV: one line a day, with its bounds.")
    var csv = false

    @Option(help: ArgumentHelp("With --csv; event: one line for each name of a day's events, with its count.", valueName: "day|event"))
    var by: String?

    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if csv && output.json { throw ValidationError("Either --csv or --json.") }
        if by != nil && !csv { throw ValidationError("--by goes with --csv.") }
    }

    func run() async throws {
        let answer = try await reading.answer(
            "v1/reports/daily", [("from", from), ("to", to), ("basis", basis), ("by", by)], accept: csv ? "text/csv" : "application/json")
        if csv { return Terminal.write(answer) }
        if output.json, let line = EventLine(answer[...]) { return Terminal.write(line.oneLine) }
        guard let report = try? JSONDecoder().decode(DailyFigures.self, from: Data(answer)) else { throw ReadOptions.foreignAnswer() }
        report.lines.forEach(Terminal.say)
        for warning in report.warnings {
            if warning.code == "counting_late" { Terminal.complain("counting what came late: ask again in some seconds") }
            guard warning.code == "only_late", let day = warning.day, let late = warning.late else { continue }
            Terminal.complain("\(day): all its \(late) events arrived after its report had closed; --basis all counts them")
        }
    }
}

/// What a report's table is made of.
private struct DailyFigures: Decodable {
    struct Day: Decodable {
        struct Name: Decodable {
            var event: String
            var count: Int64
        }
        struct Events: Decodable {
            var total: Int64
            var by_name: [Name]
        }
        var day: String
        var state: String
        var users: Int64
        var active_users: Int64
        var new_users: Int64
        var sessions: Int64
        var mean_session_ms: Int64?
        var mean_use_ms: Int64?
        var events: Events
        var late: Int64
        var ahead: Int64
    }

    struct Query: Decodable { var time_zone: String }

    struct Warning: Decodable {
        var code: String
        var day: String?
        var late: Int64?
    }

    var query: Query
    var days: [Day]
    var warnings: [Warning]

    var lines: [String] {
        typealias Column = (title: String, isShown: Bool, cell: (Day) -> String)
        let hasApp = days.contains { $0.active_users > 0 || $0.sessions > 0 }
        let columns: [Column] = [
            ("day", true, { $0.day }), ("state", true, { $0.state }), ("users", true, { "\($0.users)" }),
            ("events", true, { "\($0.events.total)" }), ("active", hasApp, { "\($0.active_users)" }),
            ("new", hasApp, { "\($0.new_users)" }),
            ("sessions", hasApp, { "\($0.sessions)" }), ("mean session", hasApp, { Terminal.span($0.mean_session_ms) }),
            ("mean use", hasApp, { Terminal.span($0.mean_use_ms) }), ("late", true, { "\($0.late)" }),
            ("ahead", days.contains { $0.ahead > 0 }, { "\($0.ahead)" }),
        ]
        let shown = columns.filter(\.isShown)
        let rows = [shown.map(\.title)] + days.map { day in shown.map { $0.cell(day) } }
        return Terminal.table(rows, texts: 2) + ["time zone: \(Terminal.printable(query.time_zone))"] + names
    }

    /// The commonest events of all days together.
    private var names: [String] {
        let counts = days.flatMap(\.events.by_name).reduce(into: [:]) { $0[$1.event, default: 0] += $1.count }
        let sorted = counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.prefix(Self.shownNames)
        let rest = days.reduce(0) { $0 + $1.events.total } - sorted.reduce(0) { $0 + $1.value }
        let rows = sorted.map { [$0.key, "\($0.value)"] } + (rest > 0 ? [["(all others)", "\(rest)"]] : [])
        return rows.isEmpty
            ? [] : [""] + Terminal.table([["commonest events", days.count == 1 ? "count" : "count, all days"]] + rows, texts: 1)
    }

    private static let shownNames = 10
}
