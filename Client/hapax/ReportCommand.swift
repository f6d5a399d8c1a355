import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct ReportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report", abstract: "Reads a project's figures.", subcommands: [DailyReportCommand.self])
}

struct DailyReportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "daily",
        abstract: "Shows users, events, sessions of each day, in the project's time zone.",
        discussion: """
            A closed day never changes again, but for the number of events that came after it closed (late). An open day shows what has \
            arrived by now. Figures of apps (active and new users, sessions) are shown if there are any.

            Exits with 0, or with 1 if the server does not answer what it was asked.

            Examples:
              hapax report daily
              hapax report daily --from 2026-11-01 --to 2026-12-01 --csv > november.csv
            """)

    @Option(help: ArgumentHelp("From this day of the project's zone on. Default: the last seven days.", valueName: "day"))
    var from: String?

    @Option(help: ArgumentHelp("Before this day. Default: today is the last.", valueName: "day"))
    var to: String?

    @Option(help: ArgumentHelp("closed: as days were when they closed; all: with what came later.", valueName: "closed|all"))
    var basis: String?

    @Flag(help: "Print CSV: one line a day, with its bounds.")
    var csv = false

    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if csv && output.json { throw ValidationError("Either --csv or --json.") }
    }

    func run() async throws {
        let answer = try await reading.answer(
            "v1/reports/daily", [("from", from), ("to", to), ("basis", basis)], accept: csv ? "text/csv" : "application/json")
        if csv { return Terminal.write(answer) }
        if output.json, let line = EventLine(answer[...]) { return Terminal.write(line.oneLine) }
        guard let report = try? JSONDecoder().decode(DailyFigures.self, from: Data(answer)) else { throw ReadOptions.foreignAnswer() }
        report.lines.forEach(Terminal.say)
        for warning in report.warnings where warning.code == "only_late" {
            Terminal.complain("\(warning.day): all its \(warning.late) events came after it closed; --basis all shows them")
        }
    }
}

/// What a report's table is made of.
private struct DailyFigures: Decodable {
    struct Day: Decodable {
        struct Events: Decodable { var total: Int64 }
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
        var day: String
        var late: Int64
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
            ("sessions", hasApp, { "\($0.sessions)" }), ("mean session", hasApp, { Self.span($0.mean_session_ms) }),
            ("mean use", hasApp, { Self.span($0.mean_use_ms) }), ("late", true, { "\($0.late)" }),
            ("ahead", days.contains { $0.ahead > 0 }, { "\($0.ahead)" }),
        ]
        let shown = columns.filter(\.isShown)
        let rows = [shown.map(\.title)] + days.map { day in shown.map { $0.cell(day) } }
        let widths = shown.indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        return rows.map { row in
            zip(row, widths).enumerated().map { column, cell in
                let blank = String(repeating: " ", count: cell.1 - cell.0.count)
                return Terminal.printable(column < 2 ? cell.0 + blank : blank + cell.0)
            }.joined(separator: "  ")
        } + ["days of \(Terminal.printable(query.time_zone))"]
    }

    private static func span(_ milliseconds: Int64?) -> String {
        guard let milliseconds else { return "-" }
        let seconds = (milliseconds + 500) / 1_000
        if milliseconds < 1_000 { return "\(milliseconds) ms" }
        if seconds < 60 { return "\(seconds) s" }
        return seconds < 3_600 ? "\(seconds / 60) m \(seconds % 60) s" : "\(seconds / 3_600) h \(seconds / 60 % 60) m"
    }
}
