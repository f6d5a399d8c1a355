import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

/// What all questions of the analysis have in common.
struct AnalysisOptions: ParsableArguments {
    @Option(help: ArgumentHelp("From this day of the project's zone on. Default: the last seven days.", valueName: "day"))
    var from: String?

    @Option(help: ArgumentHelp("Before this day. Default: today is the last.", valueName: "day"))
    var to: String?

    @Option(help: ArgumentHelp("closed: without events that came after their day had closed; all: with them.", valueName: "closed|all"))
    var basis: String?

    @Flag(help: "Print CSV.")
    var csv = false

    @Flag(help: "Exit with 2 if the figures can still change.")
    var final = false

    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if csv && output.json { throw ValidationError("Either --csv or --json.") }
    }

    /// Asks, and prints the answer.
    ///
    /// - Parameter lines: Of a table; nil if the answer lacks what was asked for.
    func run(_ path: String, _ parameters: [(String, String?)], lines: (AnalysisAnswer) -> [String]?) async throws {
        let all = [("from", from), ("to", to), ("basis", basis)] + parameters
        if csv { Terminal.write(try await reading.answer("v1/reports/\(path)", all, accept: "text/csv")) }
        guard !csv || final else { return }
        let bytes = try await reading.answer("v1/reports/\(path)", all)
        guard var answer = try? JSONDecoder().decode(AnalysisAnswer.self, from: Data(bytes)) else { throw ReadOptions.foreignAnswer() }
        answer.values = PropertyLookup.value(of: "rows", in: bytes[...]).map { rows in
            PropertyLookup.elements(of: rows).map { row in
                PropertyLookup.value(of: "value", in: row).map { String(decoding: CanonicalJSON.text($0), as: UTF8.self) } ?? ""
            }
        }
        guard let lines = lines(answer) else { throw ReadOptions.foreignAnswer() }
        if output.json, let line = EventLine(bytes[...]) {
            Terminal.write(line.oneLine)
        } else if !csv {
            lines.forEach(Terminal.say)
            Terminal.say(answer.footer)
            for warning in answer.warnings { Terminal.complain(warning.text) }
        }
        if final, !answer.final { throw ExitCode(2) }
    }
}

/// Which events.
struct FilterOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Only events of this name.", valueName: "name"))
    var event: String?

    @Option(
        name: .customLong("where"), parsing: .singleValue,
        help: ArgumentHelp("Only events with this property: plan:pro. Can be repeated.", valueName: "property:value"))
    var filters: [String] = []

    var parameters: [(String, String?)] { [("event", event)] + filters.map { ("where", $0) } }
}

private let exits = """
    Exits with 0; with 1 if the server does not answer what it was asked; with --final, with 2 if the figures can still change.
    """

struct SeriesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "series", abstract: "Shows events and users hour by hour, or by days, weeks or months.",
        discussion: """
            Users are distinct in each line, and in the total over the whole time: they cannot be added.

            \(exits)

            Examples:
              hapax report series --event order_paid
              hapax report series --unit hour --from 2026-11-22 --to 2026-11-23 --compare
              hapax report series --where plan:pro --over 7 --final --csv > pro.csv
            """)
    @OptionGroup var filter: FilterOptions
    @Option(help: ArgumentHelp("Default: day.", valueName: "hour|day|week|month"))
    var unit: String?
    @Flag(help: "Also the same number of days before.")
    var compare = false
    @Option(help: ArgumentHelp("Also the distinct users of so many days up to each day.", valueName: "7|28"))
    var over: Int?
    @OptionGroup var options: AnalysisOptions

    func run() async throws {
        let parameters = [("unit", unit), ("compare", compare ? "previous" : nil), ("over", over.map(String.init))]
        try await options.run("series", filter.parameters + parameters) { answer in
            func cells(_ figures: AnalysisAnswer.Figures) -> [String] {
                ["\(figures.events)", "\(figures.users)"] + (over == nil ? [] : [figures.users_over.map(String.init) ?? ""])
                    + (compare ? [figures.previous.map { "\($0.events)" } ?? "-", figures.previous.map { "\($0.users)" } ?? "-"] : [])
            }
            let titles =
                ["from", "state", "events", "users"] + (over.map { ["users of \($0) days"] } ?? [])
                + (compare ? ["events before", "users before"] : [])
            guard let points = answer.points else { return nil }
            let rows = points.map { point in
                [unit == "hour" ? String(point.start.prefix(16)).replacing("T", with: " ") : String(point.start.prefix(10)), point.state]
                    + cells(point.figures)
            }
            return Terminal.table([titles] + rows + (answer.total.map { [["total", ""] + cells($0)] } ?? []), texts: 2)
        }
    }
}

struct BreakdownCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "breakdown", abstract: "Shows the values of a property among events, with how many events and users have each.",
        discussion: """
            Values are JSON: the text "1" and the number 1 are two, 1 and 1.0 are one. Users are distinct in each line, also in the lines for all \
            other values and for events without the property.

            \(exits)

            Examples:
              hapax report breakdown plan --event order_paid
              hapax report breakdown utm.source --sort users --limit 50 --from 2026-11-01
            """)
    @Argument(help: "The property; a path is separated by dots.")
    var property: String
    @OptionGroup var filter: FilterOptions
    @Option(help: ArgumentHelp("What the commonest value is. Default: events.", valueName: "events|users"))
    var sort: String?
    @Option(help: "How many values. Default: 20.")
    var limit: Int?
    @OptionGroup var options: AnalysisOptions

    func run() async throws {
        let parameters = [("property", property), ("sort", sort), ("limit", limit.map(String.init))]
        try await options.run("breakdown", filter.parameters + parameters) { answer in
            func line(_ name: String, _ figures: AnalysisAnswer.Figures?) -> [String] {
                [name, figures.map { "\($0.events)" } ?? "", figures.map { "\($0.users)" } ?? ""]
            }
            // In full they are in --json and --csv.
            guard let values = answer.values, let figures = answer.rows else { return nil }
            let rows = zip(values, figures).map { line($0.count > 60 ? $0.prefix(59) + "…" : $0, $1) }
            let others = answer.other?.values ?? 0
            return Terminal.table(
                [[property, "events", "users"]] + rows + (others > 0 ? [line("(\(others) other values)", answer.other)] : [])
                    + [line("(without it)", answer.missing), line("total", answer.total)], texts: 1)
        }
    }
}

struct FunnelCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "funnel", abstract: "Shows how many users do one thing after another.",
        discussion: """
            Give 2 to 8 events in their order; behind an event may stand filters of its properties, as in "order_paid plan:pro". An attempt begins \
            with each event of the first kind in these days; whatever happens in between, the next steps have to follow within --within of \
            it. A user counts with the best attempt.

            \(exits)

            Examples:
              hapax report funnel product_viewed cart_filled order_paid
              hapax report funnel '$AppStart' 'order_paid plan:pro' --within 1d --by install_id
            """)
    @Argument(help: "The events, each with filters behind it.")
    var steps: [String]
    @Option(help: ArgumentHelp("From an attempt's first step to its last. Default: 7d.", valueName: "7d|12h|30m"))
    var within: String?
    @Option(help: ArgumentHelp("Whose steps: install_id follows a device through a login.", valueName: "distinct_id|install_id"))
    var by: String?
    @OptionGroup var options: AnalysisOptions

    func run() async throws {
        var parameters = [("within", within), ("by", by)]
        for (number, step) in steps.enumerated() {
            let parts = step.split(separator: " ")
            parameters.append(("step", parts.first.map(String.init) ?? ""))
            parameters += parts.dropFirst().map { ("where\(number + 1)", String($0)) }
        }
        try await options.run("funnel", parameters) { answer in
            guard let steps = answer.steps else { return nil }
            let rows = steps.map { step in
                [
                    step.step, "\(step.users)", Terminal.percent(step.from_previous), Terminal.percent(step.from_first),
                    Terminal.span(step.median_ms),
                    Terminal.span(step.p90_ms),
                ]
            }
            let open = answer.open.flatMap { $0 > 0 ? ["\($0) may still do the next step"] : nil } ?? []
            return Terminal.table([["step", "users", "of previous", "of first", "median", "p90"]] + rows, texts: 1) + open
        }
    }
}

struct RetentionCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "retention", abstract: "Shows how many of the users who are new on a day come back.",
        discussion: """
            A line is the users who are new on a day (as in the daily report), or in a week; a column is so many days or weeks later. A cell of days \
            that are still open is marked with ~.

            \(exits)

            Examples:
              hapax report retention --from 2026-11-01 --return order_paid
              hapax report retention --start signed_up --unit week --mode on_or_after --from 2026-09-07
            """)
    @Option(help: ArgumentHelp("The event that makes a user new. Default: $AppStart.", valueName: "name"))
    var start: String?
    @Option(help: ArgumentHelp("The event that is a return. Default: any.", valueName: "name"))
    var `return`: String?
    @Option(
        name: .customLong("where"), parsing: .singleValue,
        help: ArgumentHelp("Only returns with this property. Can be repeated.", valueName: "property:value"))
    var filters: [String] = []
    @Option(help: ArgumentHelp("Default: day.", valueName: "day|week"))
    var unit: String?
    @Option(help: ArgumentHelp("Whether a later return counts, too. Default: on.", valueName: "on|on_or_after"))
    var mode: String?
    @OptionGroup var options: AnalysisOptions

    func run() async throws {
        let parameters = [("start", start), ("return", `return`), ("unit", unit), ("mode", mode)] + filters.map { ("where", $0) }
        try await options.run("retention", parameters) { answer in
            guard let cohorts = answer.cohorts, let averages = answer.average else { return nil }
            func cell(_ users: Int64, _ size: Int64) -> String { Terminal.percent(size > 0 ? Double(users) / Double(size) : nil) }
            func padded(_ cells: [String]) -> [String] { cells + Array(repeating: "", count: max(cohorts.count - cells.count, 0)) }
            let rows = cohorts.map { cohort in
                [cohort.day, "\(cohort.size)"]
                    + padded(cohort.returned.map { $0.map { cell($0.users, cohort.size) + ($0.state == "open" ? "~" : "") } ?? "" })
            }
            let average = padded(averages.map { cell($0.users, $0.size) })
            let unassigned = answer.unassigned ?? 0
            return Terminal.table(
                [["new on", "users"] + cohorts.indices.map(String.init)] + rows + [["average", ""] + average], texts: 1)
                + (unassigned > 0 ? ["\(unassigned) others had been there before"] : [])
        }
    }
}

/// What an answer of the analysis holds, whichever it is.
struct AnalysisAnswer: Decodable {
    final class Figures: Decodable {
        var values: Int64?
        var events: Int64
        var users: Int64
        var users_over: Int64?
        var previous: Figures?
    }
    struct Point: Decodable {
        var start: String
        var state: String
        var figures: Figures

        private enum Key: CodingKey { case start, state }

        init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: Key.self)
            (start, state) = (try members.decode(String.self, forKey: .start), try members.decode(String.self, forKey: .state))
            figures = try Figures(from: decoder)
        }
    }
    struct Step: Decodable {
        var step: String
        var users: Int64
        var from_previous: Double?
        var from_first: Double?
        var median_ms: Int64?
        var p90_ms: Int64?
    }
    struct Cohort: Decodable {
        struct Cell: Decodable {
            var users: Int64
            var state: String
        }
        var day: String
        var size: Int64
        var returned: [Cell?]
    }
    struct Average: Decodable {
        var users: Int64
        var size: Int64
    }
    struct Warning: Decodable {
        var code: String

        var text: String {
            switch code {
            case "steps_straddle_login":
                "devices did steps for more than one user, as before and after a login: --by install_id follows the device"
            case "rows_removed": "users have been erased, or events are no longer kept: figures of these days may be lower than they were"
            default: Terminal.printable(code)
            }
        }
    }

    var time_zone: String
    var basis: String
    var as_of: String
    var final: Bool
    var late: Int64
    var ahead: Int64
    var warnings: [Warning]
    var points: [Point]?
    var total: Figures?
    var rows: [Figures]?
    var missing: Figures?
    var other: Figures?
    var steps: [Step]?
    var open: Int64?
    var cohorts: [Cohort]?
    var average: [Average]?
    var unassigned: Int64?
    /// Of the rows, as JSON.
    var values: [String]?

    private enum CodingKeys: CodingKey {
        case time_zone, basis, as_of, final, late, ahead, warnings, points, total, rows, missing, other, steps, open, cohorts, average,
            unassigned
    }

    var footer: String {
        let parts =
            ["time zone: \(Terminal.printable(time_zone))", final ? "final" : "as of \(as_of)"]
            + (late > 0 ? ["\(late) events of these days came late" + (basis == "closed" ? " (--basis all counts them)" : "")] : [])
            + (ahead > 0 ? ["\(ahead) are dated ahead"] : [])
        return parts.joined(separator: "; ")
    }
}
