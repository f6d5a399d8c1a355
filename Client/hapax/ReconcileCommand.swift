import ArgumentParser
import Foundation
import HapaxModel

struct ReconcileCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reconcile",
        abstract: "Says whether every event that a client has given a number has an end: stored, refused with a reason, or still waiting.",
        discussion: """
            Each client says of its numbers what became of them, and the server keeps book of each install in the transactions that store its \
            events. A number without an end is missing: the event was lost on the way, or with a store that was restored from before. Figures \
            are since each install began. Senders without numbers (curl, other SDKs) are not in it: of them only what arrived is known. A write \
            key is public: the books audit honest clients, and prove nothing against forged ones. They are what was told: rows that somebody has \
            removed by hand are looked for by hapax-server check --deep.

            Exits with 0 if every event is accounted for, with 1 if events are missing, with 2 if none is missing but installs have been silent \
            for a week with something waiting, and with 3 if it cannot be said: the server does not answer what it was asked, no install has \
            reported, or one lost track of its numbers.

            Examples:
              hapax reconcile
              hapax reconcile --since 2026-11-01 --json
            """)

    @Option(help: ArgumentHelp("Only installs heard from since this day (UTC) or instant (RFC 3339).", valueName: "time"))
    var since: String?

    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let answer: [UInt8]
        do { answer = try await reading.answer("v1/trust", [("since", since)]) } catch is ExitCode { throw Self.cannotSay }
        guard let books = try? JSONDecoder().decode(Books.self, from: Data(answer)) else {
            _ = ReadOptions.foreignAnswer()
            throw Self.cannotSay
        }
        if output.json, let line = EventLine(answer[...]) {
            Terminal.write(line.oneLine)
        } else {
            books.lines.map(Terminal.printable).forEach(Terminal.say)
        }
        switch books.verdict {
        case "balanced": return
        case "missing": throw ExitCode.failure
        case "unheard": throw ExitCode(2)
        default: throw Self.cannotSay
        }
    }

    private static let cannotSay = ExitCode(3)
}

/// What the books say, in lines for people.
private struct Books: Decodable {
    struct Part: Decodable {
        var installs: Int64
        var events: Int64
    }
    struct Reason: Decodable {
        var reason: String
        var by: String
        var events: Int64
        var since: String
    }
    struct Loss: Decodable {
        var install_id: String
        var missing: Int64
        var missing_since: String?
        var missing_ranges: [[Int64]]
    }

    var as_of: String
    var verdict: String
    var installs: Int64
    var heard_from: String?
    var heard_to: String?
    var since: String?
    var given, stored, duplicates, refused, discarded, waiting, missing, repeated, waiting_installs: Int64
    var waiting_since: String?
    var unheard: Part
    /// Not of servers before 0.1.
    var vanished_browsers: Part?
    var unknown: Part
    var reasons: [Reason]
    var losses: [Loss]

    private static let shownRanges = 3

    var lines: [String] {
        guard installs > 0 else {
            return [
                "No install has reported \(since.map { "since \($0)" } ?? "yet"): of senders without numbers only what arrived is known."
            ]
        }
        let heard = "\(Self.count(installs, "install")) heard from \(heard_from ?? "") to \(heard_to ?? ""), as of \(as_of)"
        var lines = [headline, heard]
        lines.append(
            "\(given) given a number since each began = \(stored) stored + \(duplicates) duplicates + \(refused) refused + \(discarded) discarded on the device "
                + "+ \(waiting) waiting + \(missing) missing")
        for reason in reasons {
            lines.append(
                "  \(reason.reason)  \(reason.events), \(reason.by == "client" ? "on the device" : "by the server"), since \(reason.since)")
        }
        if waiting > 0 {
            lines.append("Waiting on \(Self.count(waiting_installs, "install")), the longest silent since \(waiting_since ?? "")")
        }
        if unheard.installs > 0 {
            lines.append(
                "Unheard: \(Self.count(unheard.installs, "install")) silent for over 7 days, last words: \(unheard.events) waiting; /v1/installs?sort=silent lists them"
            )
        }
        if let vanished = vanished_browsers, vanished.installs > 0 {
            lines.append(
                "Vanished: \(Self.count(vanished.installs, "browser")) silent for over 7 days, last words: \(vanished.events) waiting; many never come back"
            )
        }
        if unknown.installs > 0 {
            lines.append(
                "Unknown: \(Self.count(unknown.installs, "install")) with too many gaps to keep track of, \(unknown.events) given: \"is_unknown\" in /v1/installs"
            )
        }
        if repeated > 0 { lines.append("Given twice: \(Self.count(repeated, "number")); a queue was copied, or restored from a copy") }
        for loss in losses {
            let ranges = loss.missing_ranges.prefix(Self.shownRanges).map { range in
                range.first == range.last ? "\(range.first ?? 0)" : "\(range.first ?? 0)–\(range.last ?? 0)"
            }
            let rest = loss.missing_ranges.count > Self.shownRanges ? ", …" : ""
            lines.append(
                "Missing: install \(loss.install_id), \(loss.missing): numbers \(ranges.joined(separator: ", "))\(rest), noticed \(loss.missing_since ?? "")"
            )
        }
        if missing > 0 {
            lines.append(
                "hapax status --json on a device names its install. Was the database restored from before, or a queue changed by hand? What is lost for "
                    + "good is closed by hapax-server accept-losses (docs/reading.md).")
        }
        return lines
    }

    private var headline: String {
        switch verdict {
        case "balanced": "Every event accounted for, as told; hapax-server check --deep looks for the rows."
        case "missing": "\(Self.count(missing, "event")) missing."
        case "unheard": "Nothing missing; \(Self.count(unheard.installs, "install")) unheard."
        default: "It cannot be said of every event."
        }
    }

    private static func count(_ count: Int64, _ what: String) -> String { "\(count) \(what)\(count == 1 ? "" : "s")" }
}
