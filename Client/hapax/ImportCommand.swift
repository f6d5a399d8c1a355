import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct ImportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Delivers a file of events, one JSON object on each line.",
        discussion: """
            Each line holds event_id, event, time (Unix milliseconds), distinct_id and, if you like, properties. Lines are sent as they \
            are: ids and times are kept and nothing is added, so importing the same file again stores nothing twice. An opt-out (see identity) \
            is about what is tracked here, and not about a file.

            Waits and tries again when the server does not answer. Lines that break a limit or are refused go to the dead letters with \
            their line number. A byte order mark before the first line is skipped.

            An interrupted import of a file goes on where it stopped, if server, key, path and file are the same and every byte before \
            that place is as it was; otherwise it begins at the first line. --restart always does; use it after the server's data was lost.

            From a pipe, or standard input, events are sent as they come. It cannot be read again: what was read and is not delivered when \
            the import ends early has to be given once more. Give all of it: what the server has is stored once.

            A file may end without an end of line if its last line is a whole JSON object. If not, somebody is still writing it: the line \
            is left for the next run, and the import exits with 2. It does so as well if what it has read was changed meanwhile; lines that \
            are added behind the end are for the next run.

            Exits with 0 if every line has been delivered, 2 if some are left (run it again), 3 if all are settled and some became dead \
            letters, also in an earlier run that this one went on from, 1 if the file cannot be read or a dead letter cannot be stored, \
            130 or 143 if SIGINT or SIGTERM ended it.

            Examples:
              hapax import events.ndjson --give-up-after 600
              zcat old.ndjson.gz | hapax import -
            """)

    @Argument(help: ArgumentHelp("The file, or - for standard input.", valueName: "file"), completion: .file())
    var file: String

    @Option(
        help: ArgumentHelp("Give up when nothing has been delivered for so many seconds. Default: never.", valueName: "seconds"))
    var giveUpAfter: Int?

    @Flag(help: "Begin at the first line, also if an earlier import was interrupted.")
    var restart = false

    @OptionGroup var server: ServerOptions
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if let giveUpAfter, giveUpAfter < 1 { throw ValidationError("--give-up-after must be at least 1.") }
    }

    func run() async throws {
        var configuration = try server.configuration(queue: queue)
        configuration.batchSize = 500
        let descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            Terminal.complain("the file cannot be opened: \(String(cString: strerror(errno)))")
            throw ExitCode.failure
        }
        let run: ImportRun
        do {
            run = try ImportRun(
                descriptor: descriptor, path: file == "-" ? nil : file, configuration: configuration, restart: restart,
                giveUpAfter: giveUpAfter.map { .seconds($0) })
        } catch let error as POSIXError {
            Terminal.complain(
                "what an earlier run has noted cannot be removed, so nothing was done: \(String(cString: strerror(error.code.rawValue)))")
            throw ExitCode.failure
        }
        let result = await run.finish()
        tell(result)
        if let signal = result.signal { throw ExitCode.signal(signal) }
        if result.isDamaged { throw ExitCode.failure }
        if !result.isComplete { throw ExitCode.undelivered }
        if result.counts.deadLettered + result.deadLetteredBefore > 0 { throw ExitCode.deadLettered }
    }

    private func tell(_ result: ImportRun.Result) {
        let counts = result.counts
        if output.json {
            return Terminal.say(json: [
                "lines": .count(counts.lines), "stored": .count(counts.stored), "duplicates": .count(counts.duplicates),
                "dead_lettered": .count(counts.deadLettered), "dead_lettered_before": .count(result.deadLetteredBefore),
                "complete": .bool(result.isComplete),
                "read_and_gone": .count(result.gone),
                "resumed_after_line": .integer(result.resumedAfterLine), "failure": .optional(result.failure),
            ])
        }
        if result.resumedAfterLine > 0 { Terminal.complain("went on after line \(result.resumedAfterLine)") }
        Terminal.say("\(counts.stored) stored, \(counts.duplicates) duplicates, \(counts.deadLettered) dead letters")
        if result.deadLetteredBefore > 0 { Terminal.complain("\(result.deadLetteredBefore) dead letters in the part imported before") }
        if counts.deadLettered + result.deadLetteredBefore > 0 { Terminal.complain("see hapax dead-letters list") }
        if !result.isComplete { Terminal.complain("not all delivered\(result.failure.map { ": " + $0 } ?? "")") }
        if result.gone > 0 {
            Terminal.complain("\(result.gone) lines were read and not delivered, and cannot be read again here: give them once more")
        }
    }
}
