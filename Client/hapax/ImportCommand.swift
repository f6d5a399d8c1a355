import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct ImportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Delivers a file of events: one JSON object on each line, or CSV.",
        discussion: """
            Each line holds event_id, event, time (Unix milliseconds, or RFC 3339 as "2026-11-25T09:00:00.5+01:00"), distinct_id and, if you \
            like, properties. Lines are sent as they are, but for such a time, which becomes Unix milliseconds: nothing is added, so \
            importing the same file again stores nothing twice. A file's events have users of their own: \
            an opt-out (see identity) is about what is tracked here, and neither stops an import nor deletes what it has stored. While consent is \
            pending nothing is sent from a queue's directory: then an import stores nothing, and exits with 2.

            Lines go through the queue: they are stored there, some thousand at a time, and delivered from there. Waits and tries again when the server \
            does not answer. Events that the server refuses go to the dead letters. Lines of which no event can be made are written to \
            FILE.rejected, with line number and reason, behind what an earlier import has written there. A byte order mark before the first line is skipped.

            An interrupted import of a file goes on where it stopped: FILE.hapax-import, a line of text that is there until the import is done, \
            says where. It counts for the same server and key, and as long as what stands before that place is as it was. --restart begins at the \
            first line; use it after the server's data was lost. So does an import whose place does not count: it says why.

            From a pipe, or standard input, events are sent as they come; rejected lines go to import.rejected in the queue's directory. It cannot be \
            read again: after an import that was interrupted give all of it once more, and what the server has is stored once.

            The counts are of what was delivered meanwhile: events that waited in the queue before are delivered, and counted, too.

            With --csv each row of a table is an event; the first line names the columns. Ids are derived from --id-from (else from all cells) and \
            the day, so that a second import stores nothing. Columns that are not named become properties: numbers, true and false, text. A line \
            at the end names columns that are mixed of these, since 10115 and "01067" are different values to every question, and rows of the future.

            A file may end without an end of line if its last line is a whole JSON object (or row). If not, somebody is still writing it: the line \
            is left for the next run, and the import exits with 2.

            Exits with 0 if every line has been delivered, 2 if some are left (in the queue, for the next hapax flush, or in the file: run it again), \
            3 if all are settled and some were rejected or became dead letters, 1 if the file or the queue cannot be used, 130 or 143 if \
            SIGINT or SIGTERM ended it. The first signal lets what is under way end, a second one does not wait for it, as on a disk that hangs.

            Examples:
              hapax import events.ndjson --give-up-after 600
              hapax import --csv orders.csv --name order_paid --time paid_at --user customer --id-from order_id
              zcat old.ndjson.gz | hapax import -
            """)

    @Argument(help: ArgumentHelp("The file, or - for standard input.", valueName: "file"), completion: .file())
    var file: String

    @Option(
        help: ArgumentHelp(
            "Give up when nothing has been delivered for so many seconds. Default: never. A refusal that time does not change, as of a wrong key, ends the import at once.",
            valueName: "seconds"))
    var giveUpAfter: Int?

    @Flag(help: "Begin at the first line, also if an earlier import was interrupted.")
    var restart = false

    @OptionGroup(title: "CSV") var csv: CSVOptions
    @OptionGroup var server: ServerOptions
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    private var csvOptions: CSVMapping.Options? { csv.options }

    func validate() throws {
        if let giveUpAfter, giveUpAfter < 1 { throw ValidationError("--give-up-after must be at least 1.") }
    }

    func run() async throws {
        var configuration = try server.configuration(queue: queue)
        configuration.batchSize = 500
        configuration.queue.durability = .power
        let descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure("the file cannot be opened: \(String(cString: strerror(errno)))") }
        // What cannot be read again cannot be gone on with.
        var status = stat()
        let isFile = file != "-" && fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
        if isFile, restart {
            do { try ImportNote.remove(file) } catch {
                throw failure("what an earlier run has noted cannot be removed: \(StorageFailure(error))")
            }
        }
        let client = try OpenClient.startForCommand(configuration)
        let run = ImportRun(
            client, descriptor: descriptor, path: isFile ? file : nil,
            rejectedPath: isFile ? file + ".rejected" : queue.directory.path + "/import.rejected",
            destination: try configuration.endpoint().destination, giveUpAfter: giveUpAfter.map { .seconds($0) }, csv: csvOptions)
        if let reason = run.startsOver {
            Terminal.complain("an earlier import was interrupted; this one begins at the first line all the same: \(reason)")
        }
        let (counts, ending) = await run.finish()
        let report = await client.shutdown(within: .zero)
        tell(counts, ending, run, waiting: report.stored)
        for reason in run.reasons.withLock({ $0 }) + run.findings.withLock({ $0.warnings }) { Terminal.complain(reason) }
        if counts.rejected > 0, csvOptions == nil, file.lowercased().hasSuffix(".csv") {
            Terminal.complain("a file of lines of JSON was expected; for a table give --csv")
        }
        if counts.rejected > 0 { Terminal.complain("lines of which no event can be made are in \(run.rejectedPath)") }
        switch ending {
        case .signal(let number): throw ExitCode.signal(number)
        case .failed: throw ExitCode.failure
        case .unfinished, .undelivered: throw ExitCode.undelivered
        case .complete:
            if counts.deadLettered + run.deadLetteredBefore + counts.rejected + run.start.rejected > 0 { throw ExitCode.deadLettered }
        }
    }

    private func failure(_ text: String) -> ExitCode {
        Terminal.complain(text)
        return .failure
    }

    private func tell(_ counts: ImportCounts, _ ending: ImportRun.Ending, _ run: ImportRun, waiting: Int) {
        let start = run.start
        let deadLettered = counts.deadLettered + run.deadLetteredBefore
        var (isComplete, why) = (false, String?.none)
        switch ending {
        case .complete: isComplete = true
        case .unfinished(let line):
            why =
                csvOptions == nil
                ? "the last line is unfinished: it has neither an end of line nor a whole object"
                : "line \(line), the last one, is unfinished: it has too few cells, or one in quotation marks that does not end"
        case .signal: why = "interrupted"
        case .undelivered(let text), .failed(let text): why = text
        }
        if output.json {
            return Terminal.say(json: [
                "lines": .count(counts.lines), "stored": .count(counts.stored), "duplicates": .count(counts.duplicates),
                "dead_lettered": .count(deadLettered), "rejected": .count(counts.rejected + start.rejected),
                "waiting": .count(waiting), "complete": .bool(isComplete), "resumed_after_line": .integer(start.lines),
                "started_over": .optional(run.startsOver),
                "failure": .optional(why),
            ])
        }
        if start.lines > 0 { Terminal.complain("went on after line \(start.lines)") }
        Terminal.say(
            "\(counts.stored) stored, \(counts.duplicates) duplicates, \(deadLettered) dead letters, \(counts.rejected + start.rejected) lines rejected"
        )
        let others = counts.settled - counts.records
        if others > 0 { Terminal.complain("of these counts, \(others) are of events that waited in the queue before") }
        if let why { Terminal.complain("not all delivered: \(why)") }
        if waiting > 0 { Terminal.complain("\(waiting) events wait in the queue; the next hapax flush sends them") }
    }
}
